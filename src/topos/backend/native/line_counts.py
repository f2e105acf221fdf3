"""What it takes to work out rows at lines of places: how much text, and how much work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import lcm

from topos.backend.native.groups import Lowering
from topos.backend.native.lines import Inner, Line, along, fewest, first_line, inner, terms
from topos.backend.native.near import UNROLLED, lanes_axis
from topos.op import Fold
from topos.op.reduction import AlongAxis
from topos.records import NamedTuple
from topos.shape import Shape

LANES = 8
"""Of a register, whatever the machine has: groups are the same on all of them."""


class Counts(NamedTuple):
    """Rows and reads written out for a register's worth of places, and how many of them run for each place."""

    text: int
    work: float


class _Scope(NamedTuple):
    """The axis of the lanes, and how often something is written and run beside what its kernel stands at."""

    axis: int
    text: int
    work: float


Rows = Sequence[int]


def inside(lowering: Lowering, rows: Mapping[int, object], row: int) -> Iterator[tuple[int, int, Inner]]:
    """The operands of a row that are rows of its kernel: each, the row that it is, and how it steps through that."""
    for operand in lowering.spec.rows[row].operands:
        view = lowering.views.get(operand)
        if operand not in lowering.constants and view is not None and view.row in rows:
            place = inner(view, lowering.spec.rows[view.row].shape)
            assert place is not None
            yield operand, view.row, place


def step_along(lowering: Lowering, rows: Rows, writes: Rows, axis: int) -> int:
    """How far places lie apart, along an axis of what is written, whose windows are neighbours all through."""
    reached: dict[int, dict[int, int]] = {row: {} for row in rows}
    reached.update({row: {axis: 1} for row in writes})
    longest = 1
    for row in reversed(rows):
        opcode = lowering.spec.rows[row].opcode
        for lane, step in reached[row].items():
            at, own = lane, step
            if isinstance(opcode, Fold):
                own = step * opcode.step if opcode.axis == lane else step
                at += opcode.axis < lane
            elif isinstance(opcode, AlongAxis):
                at += opcode.axis <= lane
            longest = lcm(longest, own)
            for _, base, place in inside(lowering, reached, row):
                there = place.axis(at)
                if there >= 0:
                    reached[base][there] = lcm(reached[base].get(there, 1), own)
    return longest


def counts(lowering: Lowering, rows: Rows, writes: Rows, shape: Shape) -> Counts:
    """What rows take that are all worked out at the places of a shape where some of them are written."""
    axis = lanes_axis(shape)
    active = LANES // (step := step_along(lowering, rows, writes, axis)) * step
    scope = _Scope(axis, 1, LANES / active) if active else _Scope(-1, 1, LANES)
    line = first_line(shape.rank, LANES if active else 1, active or 1)
    asked: dict[int, dict[_Scope, dict[Line, None]]] = {row: {} for row in rows}
    asked.update({row: {scope: {line: None}} for row in writes})
    text, work = 0, 0.0
    for row in reversed(rows):
        recorded = lowering.spec.rows[row]
        for own, lines in asked[row].items():
            text += own.text * len(lines)
            work += own.work * len(lines)
            below, made = _made(lowering, row, own, [*lines])
            places = {operand: (base, place) for operand, base, place in inside(lowering, asked, row)}
            for operand in recorded.operands:
                if operand in places:
                    base, place = places[operand]
                    there = below._replace(axis=place.axis(below.axis))
                    some = fewest(place.lines(made, below.axis), there.axis)
                    asked[base].setdefault(there, {}).update(dict.fromkeys(some))
                elif operand not in lowering.constants:
                    text += below.text * len(made)
                    work += below.work * len(made)
    return Counts(text, work)


def _made(lowering: Lowering, row: int, scope: _Scope, lines: list[Line]) -> tuple[_Scope, list[Line]]:
    """The lines of what a row reads."""
    recorded = lowering.spec.rows[row]
    opcode = recorded.opcode
    if isinstance(opcode, Fold):
        if opcode.axis == scope.axis:
            return scope, along(lines, opcode)
        more = opcode.size if opcode.size <= UNROLLED else 1
        axis = scope.axis + (opcode.axis < scope.axis)
        runs = scope.work * opcode.size / opcode.step
        return _Scope(axis, scope.text * more, runs), [line.with_axis(opcode.axis, 0) for line in lines]
    if isinstance(opcode, AlongAxis):
        extent = lowering.spec.rows[recorded.operands[0]].shape[opcode.axis]
        axis = scope.axis + (opcode.axis <= scope.axis)
        return scope._replace(axis=axis), terms(lines, opcode.axis, extent)
    return scope, lines
