"""Selections written out where an instruction wants their numbers in memory: rows of a schedule beside the spec's."""

from __future__ import annotations

from collections.abc import Sequence

from topos.graph.spec import Row, Spec
from topos.op import Cast, MatMul, Movement


def with_dense_selections(spec: Spec, scheduled: Sequence[int]) -> tuple[Spec, list[int]]:
    """The schedule with a `Cast` in front of every product that reads a selection or a movement of one.

    Where there is none, the spec is the one given; else one with more rows at its end, whose products read them.
    """
    rooted = _rooted(spec, scheduled)
    if not any(isinstance(spec.rows[row].opcode, MatMul) and rooted & {*spec.rows[row].operands} for row in scheduled):
        return _copy(spec), list(scheduled)
    extended = _copy(spec)
    order: list[int] = []
    casts: dict[tuple[int, str], int] = {}
    for row in scheduled:
        recorded = spec.rows[row]
        if isinstance(recorded.opcode, MatMul):
            element = spec.element_of(row)
            operands = list(recorded.operands)
            for position, operand in enumerate(operands):
                if operand not in rooted:
                    continue
                key = operand, element.name
                if key not in casts:
                    shape = spec.rows[operand].shape
                    casts[key] = len(extended.rows)
                    order.append(casts[key])
                    extended.rows.append(Row(Cast(element), (operand,), shape, element, recorded.place, row))
                operands[position] = casts[key]
            extended.rows[row] = recorded._replace(operands=tuple(operands))
        order.append(row)
    return extended, order


def _rooted(spec: Spec, scheduled: Sequence[int]) -> set[int]:
    """The selections and their movements."""
    rooted: set[int] = set()
    for row in scheduled:
        recorded = spec.rows[row]
        moves = isinstance(recorded.opcode, Movement) and recorded.operands[0] in rooted
        if moves or spec.is_selection(row):
            rooted.add(row)
    return rooted


def _copy(spec: Spec) -> Spec:
    """A spec of the same nodes, whose rows may be replaced and added to."""
    copy = Spec(spec.element)
    for slot in Spec.__slots__:
        setattr(copy, slot, getattr(spec, slot))
    copy.rows, copy.payloads = list(spec.rows), dict(spec.payloads)
    return copy
