"""Terms over axes: what is reduced along some of them, repeated along some, or transposed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from topos.engine.pattern.columns import Columns
from topos.engine.pattern.terms import Found, Term
from topos.op import Broadcast, BroadcastAlong, MaxAlong, Opcode, Permute, Reshape, SumAlong
from topos.shape import Shape


class Along(Term):
    """A reduction along one or several axes, which get a name: those of the operand, in ascending order."""

    def __init__(self, kind: type[Opcode], operand: Term, axes: str) -> None:
        self.kind, self.operand, self.axes = kind, operand, axes

    def _roots(self) -> frozenset[type[Opcode]]:
        return frozenset((self.kind,))

    def _needs(self) -> frozenset[type[Opcode]]:
        return self.roots | self.operand.needs

    def ways(self, columns: Columns, row: int, found: Found) -> Iterator[Found]:
        rows, taken = [], []
        while type(columns.rows[row].opcode) is self.kind:
            rows.append(row)
            taken.append(columns.rows[row].opcode.axis)  # type: ignore[attr-defined]
            (row,) = columns.rows[row].operands
            left = list(columns.rows[row].shape.axes)
            axes = tuple(sorted(left.pop(axis) for axis in reversed(taken)))
            way = found.fact(self.axes, axes)
            if way is not None:
                yield from self.operand.matches(columns, row, way.covering(*rows))


class Spread(Term):
    """A value repeated along new axes, which get a name; without any where `least` is 0."""

    def __init__(self, operand: Term, axes: str, least: int = 1) -> None:
        self.operand, self.axes, self.least = operand, axes, least

    def _roots(self) -> frozenset[type[Opcode]]:
        return frozenset((BroadcastAlong, Broadcast, Reshape)) if self.least else frozenset()

    def _needs(self) -> frozenset[type[Opcode]]:
        return self.operand.needs

    def ways(self, columns: Columns, row: int, found: Found) -> Iterator[Found]:
        """The furthest down first."""
        for at, axes, rows in reversed(list(_spread(columns, row))):
            way = found.fact(self.axes, axes) if len(axes) >= self.least else None
            if way is not None:
                yield from self.operand.matches(columns, at, way.covering(*rows))


def _spread(columns: Columns, row: int) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Each row that a row repeats, itself first: the axes along which it does, and the rows on the way."""
    left: list[Any] = list(columns.rows[row].shape.axes)
    axes: list[Any] = []
    rows: list[int] = []
    while True:
        yield row, tuple(sorted(axes)), tuple(rows)
        opcode = columns.rows[row].opcode
        if isinstance(opcode, BroadcastAlong) and left[opcode.axis] is not None:
            axes.append(left.pop(opcode.axis))
        elif isinstance(opcode, Broadcast):
            axes, left = [*axes, *left], []
        elif isinstance(opcode, Reshape):
            squeezed = _squeezed(left, columns.rows[row].shape, columns.rows[columns.rows[row].operands[0]].shape)
            if squeezed is None:
                return
            left = squeezed
        else:
            return
        rows.append(row)
        (row,) = columns.rows[row].operands


def _squeezed(axes: list[Any], shape: Shape, operand: Shape) -> list[Any] | None:
    """The axes as the operand of a reshape has them that only moves extents of 1, which are nobody's."""
    kept = [(axis, extent) for axis, extent in zip(axes, shape, strict=True) if extent != 1]
    if [extent for _, extent in kept] != [extent for extent in operand if extent != 1]:
        return None
    names = iter(kept)
    return [next(names)[0] if extent != 1 else None for extent in operand]


class Regrouped(Term):
    """A value whose leading axes, all but the last two, were joined or taken apart, or not."""

    def __init__(self, operand: Term) -> None:
        self.operand = operand

    def _roots(self) -> frozenset[type[Opcode]]:
        return self.operand.roots | {Reshape} if self.operand.roots else frozenset()

    def _needs(self) -> frozenset[type[Opcode]]:
        return self.operand.needs

    def ways(self, columns: Columns, row: int, found: Found) -> Iterator[Found]:
        shape = columns.rows[row].shape
        yield from self.operand.matches(columns, row, found)
        while isinstance(columns.rows[row].opcode, Reshape):
            found = found.covering(row)
            (row,) = columns.rows[row].operands
            if columns.rows[row].shape[-2:] != shape[-2:]:
                return
            yield from self.operand.matches(columns, row, found)


class Transposed(Term):
    """A value with its last two axes swapped."""

    def __init__(self, operand: Term) -> None:
        self.operand = operand

    def _roots(self) -> frozenset[type[Opcode]]:
        return frozenset((Permute,))

    def ways(self, columns: Columns, row: int, found: Found) -> Iterator[Found]:
        opcode = columns.rows[row].opcode
        if isinstance(opcode, Permute):
            *leading, last, other = opcode.order
            if (last, other) == (opcode.order.rank - 1, opcode.order.rank - 2) and leading == sorted(leading):
                yield from self.operand.matches(columns, columns.rows[row].operands[0], found.covering(row))


def sums(operand: Term, axes: str) -> Term:
    """The sum along axes."""
    return Along(SumAlong, operand, axes)


def maxima(operand: Term, axes: str) -> Term:
    """The largest along axes."""
    return Along(MaxAlong, operand, axes)
