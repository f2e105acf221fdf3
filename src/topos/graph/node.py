"""The printable form of a row, one small frozen type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from topos.element import Element
from topos.graph.place import Place, described
from topos.graph.spec import Row, Spec
from topos.graph.symbol import Symbol
from topos.op import Opcode
from topos.records import NamedTuple
from topos.shape import Shape


class Node(NamedTuple):
    """One node: its symbol, instruction, operands, shape, element (`None` for a selection) and name, if it has one.

    `place` is where it was recorded, as `line` spells it.
    """

    symbol: Symbol
    opcode: Opcode
    operands: tuple[Symbol, ...]
    shape: Shape
    element: Element | None
    name: str | None
    place: Place | None

    @property
    def is_source(self) -> bool:
        """Whether it is a leaf, a parameter or an input."""
        return self.opcode.is_source

    @property
    def line(self) -> str:
        """The user's file and line, and the composition called there: `model.py:41 (softmax)`; empty where unknown."""
        return described(self.place, self.opcode.rule)

    def __repr__(self) -> str:
        facts = ", ".join(f"{fact}={getattr(self, fact)!r}" for fact in self._fields[:-1])
        return f"Node({facts}, line={self.line!r})"


class Nodes(Sequence[Node]):
    """The first `length` rows of a spec as nodes, made when asked for."""

    def __init__(self, spec: Spec, length: int) -> None:
        self._spec, self._length = spec, length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Node: ...
    @overload
    def __getitem__(self, index: slice) -> list[Node]: ...
    def __getitem__(self, index: int | slice) -> Node | list[Node]:
        if isinstance(index, slice):
            return [self._node(i, self._spec.rows[i]) for i in range(*index.indices(self._length))]
        position = range(self._length)[index]
        return self._node(position, self._spec.rows[position])

    def __iter__(self) -> Iterator[Node]:
        for index in range(self._length):
            yield self._node(index, self._spec.rows[index])

    def _node(self, index: int, row: Row) -> Node:
        family = self._spec.family
        operands = tuple([Symbol(family, operand) for operand in row.operands])
        name = self._spec.names.get(index)
        return Node(Symbol(family, index), row.opcode, operands, row.shape, row.element, name, row.place)
