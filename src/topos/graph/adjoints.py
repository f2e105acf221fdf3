"""What `differentiate` and `vjp` recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from topos.errors import KinshipError
from topos.graph.symbol import Symbol


class Adjoints:
    """The target and one `(wrt, gradient)` pair per entry asked for, in order; live values, or symbols once detached.

    `roots()` are the symbols of the target and of the gradients, in order: what an entry takes.

    >>> from topos import Tape
    >>> tape = Tape()
    >>> weight = tape.parameter(3.0)
    >>> adjoints = tape.differentiate(weight * weight, [weight]).detach()
    >>> network = tape.into_network()
    >>> network.entry(adjoints.roots()).interpret(network.parameters()).of(adjoints.roots())
    [Tensor(9., f32), Tensor(6., f32)]
    """

    __slots__ = ("_pairs", "_roots", "target")

    def __init__(self, target: Any, pairs: Sequence[tuple[Any, Any]]) -> None:
        self.target = target
        self._pairs = tuple(pairs)
        self._roots = [_symbol(target), *(_symbol(gradient) for _, gradient in self._pairs)]

    def of(self, wrt: Any) -> Any:
        """The gradient with respect to one entry, a value or its symbol. Raises `KinshipError` for another."""
        symbol = _symbol(wrt)
        for asked, gradient in self._pairs:
            if _symbol(asked) == symbol:
                return gradient
        raise KinshipError(f"adjoints: no gradient was asked for with respect to {symbol}")

    def roots(self) -> list[Symbol]:
        """The symbols of the target, then of each gradient."""
        return list(self._roots)

    def detach(self) -> Adjoints:
        """The same with symbols for values."""
        return Adjoints(_symbol(self.target), [(_symbol(wrt), _symbol(gradient)) for wrt, gradient in self._pairs])

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def __repr__(self) -> str:
        pairs = ", ".join(f"{_symbol(wrt)}: {_symbol(gradient)}" for wrt, gradient in self._pairs)
        return f"Adjoints(target={self._roots[0]}, {{{pairs}}})"


def _symbol(operand: Any) -> Symbol:
    return operand if isinstance(operand, Symbol) else operand.symbol()
