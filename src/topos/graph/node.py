"""The printable form of a row, one small frozen type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from topos.element import Element
from topos.graph.spec import Row, Spec
from topos.graph.symbol import Symbol
from topos.op import Opcode
from topos.shape import Shape


class Node(NamedTuple):
    """One node: its symbol, instruction, operands, shape and element (`None` for a selection)."""

    symbol: Symbol
    opcode: Opcode
    operands: tuple[Symbol, ...]
    shape: Shape
    element: Element | None

    @property
    def is_source(self) -> bool:
        """Whether it is a leaf, a parameter or an input."""
        return self.opcode.is_source


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
        return Node(Symbol(family, index), row.opcode, operands, row.shape, row.element)
