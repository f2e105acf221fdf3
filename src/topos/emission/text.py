"""The lines of an emitted module: named values, and whoever writes the operations that make them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from topos.records import NamedTuple


class Named(NamedTuple):
    """A value of the text: its name, extents, and the type of its numbers."""

    name: str
    shape: tuple[int, ...]
    type: str

    @property
    def tensor(self) -> str:
        """Its type as text: `tensor<2x3xf32>`."""
        return f"tensor<{'x'.join([*map(str, self.shape), self.type])}>"


class Writer:
    """Writes operations, each a line or a few; what a node takes before its last one is named after it.

    The last operation of node 5 is `%v5`; one before it, `%v5_seed` or whatever it is.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._last: tuple[str, str] | None = None
        self._node, self._location = 0, ""
        self._taken: dict[str, int] = {}

    def begin(self, node: int, location: str = "") -> None:
        """What follows is written for a node, which stands at that place."""
        self._node, self._location = node, location
        self._taken = {}

    def operation(
        self,
        name: str,
        operands: Sequence[Named],
        shape: Iterable[int],
        kind: str,
        *,
        attributes: str = "",
        called: str = "",
        short: bool = False,
    ) -> Named:
        """Writes `stablehlo.NAME` over operands, of a result like that; `short` where all have one type."""
        result = self.named(called or name, shape, kind)
        given = ", ".join(operand.name for operand in operands)
        types = result.tensor if short else self.signature(operands, result)
        return self.line(result, f"stablehlo.{name} {given}{attributes} : {types}")

    def line(self, result: Named, text: str) -> Named:
        """Writes whatever makes a result that `named` gave."""
        self.flush()
        self._last = result.name, f"{text}{self._location}"
        return result

    def named(self, called: str, shape: Iterable[int], kind: str) -> Named:
        """A name for a value that is about to be written."""
        count = self._taken[called] = self._taken.get(called, 0) + 1
        suffix = called if count == 1 else f"{called}_{count}"
        return Named(f"%v{self._node}_{suffix}", tuple(shape), kind)

    def finish(self, value: Named) -> Named:
        """The value of the node, under the node's own name."""
        if self._last is None or self._last[0] != value.name:
            value = self.operation("reshape", [value], value.shape, value.type)
        assert self._last is not None
        named = value._replace(name=f"%v{self._node}")
        self._last = named.name, self._last[1]
        self.flush()
        return named

    def flush(self) -> None:
        """Nothing that was written is renamed any more."""
        if self._last is not None:
            self.lines.append(f"    {self._last[0]} = {self._last[1]}")
            self._last = None

    @staticmethod
    def signature(operands: Sequence[Named], result: Named) -> str:
        """`(tensor<2xf32>) -> tensor<f32>`."""
        return f"({', '.join(operand.tensor for operand in operands)}) -> {result.tensor}"
