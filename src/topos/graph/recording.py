"""A spec while it grows: what values and derivative rules ask of the tape that they write to."""

from __future__ import annotations

from typing import Any

from topos.errors import ConsumedError, KinshipError, SealedError
from topos.graph.append import append
from topos.graph.spec import Ids, Row, Spec
from topos.graph.symbol import Symbol
from topos.graph.value import Trace
from topos.op import LEAF, Source
from topos.tensor import Tensor
from topos.tensor.tensor import constant


class Recording:
    """The live rows behind a tape, until it is sealed; `origin` is the row whose derivative rule writes, if any."""

    __slots__ = ("_consumed", "_scopes", "_spec", "origin")

    def __init__(self, spec: Spec) -> None:
        self._spec: Spec | None = spec
        self._consumed = ""
        self._scopes: list[str] = []
        self.origin: int | None = None

    append = append  # not wrapped: one call less per node

    @property
    def spec(self) -> Spec:
        """The rows, for a value. Raises `SealedError` that names the line that sealed the tape."""
        if self._spec is None:
            raise SealedError(
                f"value: its tape was sealed{self._where()}; take value.symbol() before sealing, "
                "or reopen with network.into_tape() and tape.resolve(symbol)"
            )
        return self._spec

    def constant(self, like: int, count: int) -> int:
        """Appends a leaf filled with a count, of a row's shape and element."""
        spec = self.spec
        row = spec.rows[like]
        return self.place(LEAF, constant(row.shape, row.element or spec.element, count))

    def place(self, opcode: Source, payload: Tensor | Ids) -> int:
        """Appends a source with its payload, or with what its ids must look like."""
        spec = self.spec
        index = len(spec.rows)
        try:
            if isinstance(payload, Ids):
                spec.ids[index] = payload
                return spec.add(opcode, (), payload.rows, None, self.origin)
            spec.payloads[index] = payload.among(spec.element)
            return spec.add(opcode, (), payload.shape, payload.element, self.origin)
        except BaseException:  # an interrupt: a payload without its row would become the next row's
            spec.truncate(index)
            raise

    def index_of(self, operand: Any, rule: str) -> int:
        """The row of one of this tape's values or of a symbol of its family."""
        if isinstance(operand, Trace):
            if operand.recording is not self:
                operand.recording.row(operand.index)
                raise KinshipError(f"{rule}: a value of another tape stands beside this one's")
            self.row(operand.index)
            return operand.index
        return self.spec.index_of(operand, rule)

    def row(self, index: int) -> Row:
        """A row of the live spec."""
        rows = self.spec.rows
        if index >= len(rows):
            raise KinshipError(f"value: node %{index} was taken back when the call that recorded it failed")
        return rows[index]

    def write(self, origin: int | None) -> None:
        """From now on nodes are those that the derivative rule of row `origin` writes; `None`: the user's own."""
        self.origin = origin

    def mark(self) -> int:
        """How many nodes there are, for `reset`."""
        return len(self.spec.rows)

    def reset(self, mark: int) -> None:
        """Takes back what was recorded after `mark`, if the tape is still live."""
        if self._spec is not None:
            self._spec.truncate(mark)

    def symbol_at(self, index: int) -> Symbol:
        """A row's detached name."""
        self.row(index)
        return Symbol(self.spec.family, index)

    def payload_at(self, index: int) -> Tensor:
        """What a source was recorded with."""
        return self.spec.payload(index)

    def absent_at(self, index: int) -> int | None:
        """The id with which a selection selects nothing."""
        self.row(index)
        return self.spec.absent(index)

    def name_at(self, index: int, name: str) -> None:
        """Names a row, inside the scopes that are open."""
        self.row(index)
        self.spec.name(index, self._scoped(name))

    def label_at(self, index: int) -> str:
        """A row for people."""
        self.row(index)
        return self.spec.label(index)

    def _live(self) -> Spec:
        if self._spec is None:
            raise ConsumedError(f"tape: consumed{self._where()} by into_network; network.into_tape() reopens the spec")
        return self._spec

    def _where(self) -> str:
        return f" at {self._consumed}" if self._consumed else ""

    def _scoped(self, name: str) -> str:
        return ".".join([*self._scopes, name]) if isinstance(name, str) and name else name
