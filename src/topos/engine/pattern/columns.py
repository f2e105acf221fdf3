"""The rows of a spec as a search reads them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from topos.graph.spec import Row, Spec
from topos.op import Cast, Elementwise, Movement, Opcode, Pad
from topos.records import NamedTuple
from topos.tensor import Tensor

DEEPEST = 4
"""Instructions over constants that are worked out to see which number they are."""


class Number(NamedTuple):
    """A row that is one number at every place, and the rows that spell it."""

    value: float
    rows: tuple[int, ...]


class _Spelled(NamedTuple):
    """A number as it is written: in which rows, how many of them one after another."""

    value: Tensor
    rows: tuple[int, ...]
    depth: int


class Columns:
    """The first `length` rows: which are constants, who reads which, and which instructions there are at all."""

    def __init__(self, spec: Spec, length: int) -> None:
        self.spec = spec
        self.rows: Sequence[Row] = spec.rows if length == len(spec.rows) else spec.rows[:length]
        self._numbers: dict[int, _Spelled | None] = {}

    @cached_property
    def kinds(self) -> frozenset[type[Opcode]]:
        """The instructions that occur."""
        return frozenset({type(row.opcode) for row in self.rows})

    @cached_property
    def readers(self) -> list[list[int]]:
        """For each row, the rows that read it, in order."""
        readers: list[list[int]] = [[] for _ in self.rows]
        for index, row in enumerate(self.rows):
            for operand in dict.fromkeys(row.operands):
                readers[operand].append(index)
        return readers

    def number(self, row: int) -> Number | None:
        """The one number that a row is at every place, as far as it is written: leaves, spread or computed with."""
        found = self._number(row, DEEPEST)
        return None if found is None else Number(float(found.value), found.rows)

    def _number(self, row: int, depth: int) -> _Spelled | None:
        if row not in self._numbers:
            found = self._written(row, depth)
            if found is None and depth < DEEPEST:
                return None  # a shorter look may have been too short
            self._numbers[row] = found
        return self._numbers[row]

    def _written(self, row: int, depth: int) -> _Spelled | None:
        recorded = self.rows[row]
        if recorded.opcode.name == "Leaf":
            payload = self.spec.payloads[row].as_constant()
            return None if payload is None else _Spelled(payload, (row,), 0)
        if not depth or not recorded.operands or not isinstance(recorded.opcode, Movement | Elementwise | Cast):
            return None
        operands = []
        for operand in recorded.operands:
            found = self._number(operand, depth - 1)
            if found is None or found.depth == DEEPEST:
                return None
            operands.append(found)
        rows = tuple(dict.fromkeys((*(row for found in operands for row in found.rows), row)))
        value = operands[0].value
        if not isinstance(recorded.opcode, Movement):
            with np.errstate(all="ignore"):
                value = recorded.opcode.express([found.value for found in operands])
        return _Spelled(value, rows, 1 + max(found.depth for found in operands))

    def is_view(self, row: int) -> bool:
        """Whether a row only says where numbers are read."""
        return isinstance(self.rows[row].opcode, Movement | Pad)


def zero_addend(columns: Columns, row: int) -> tuple[int, tuple[int, ...]] | None:
    """What is added to a zero at this row, as the scan does, and the rows that spell the zero."""
    recorded = columns.rows[row]
    if recorded.opcode.name == "Add":
        for zero, other in (recorded.operands, recorded.operands[::-1]):
            number = columns.number(zero)
            if number is not None and number.value == 0:
                return other, number.rows
    return None
