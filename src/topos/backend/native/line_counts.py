"""What it takes to work out rows at lines of places: how much text, and how much work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import lcm

from topos.backend.native.groups import Lowering
from topos.backend.native.lines import Inner, Line, along, block, fewest, inner
from topos.backend.native.near import MOST_NEAR, UNROLLED, lanes_axis
from topos.op import Fold
from topos.op.reduction import AlongAxis
from topos.records import NamedTuple
from topos.shape import Shape

LANES = 8
"""Of a register, whatever the machine has: groups are the same on all of them."""
MOST_WRITTEN_OUT = 1 << 9
"""Rows and reads that are written one by one: of more, the text takes too long to compile."""
FAR = 4
"""What reading neighbours counts for that lie far apart: each lane is loaded by itself."""
MOST_LINES = 4
"""Registers of places that a kernel works out together."""
MOST_UNROLLED = 1 << 7
"""Rows and reads beyond which the offsets of folds across the lanes are loops."""
MUCH_LESS = 0.9
"""What the work has to come down to for more registers to be worth their text."""


class Counts(NamedTuple):
    """What rows take that are worked out for `places` neighbours together: rows and reads, written and run.

    Windows of up to `unrolled` offsets across the lanes are written one by one.
    """

    places: int
    unrolled: int
    text: int
    work: float


class _Scope(NamedTuple):
    """The axis of the lanes, and how often something is written and run beside what its kernel stands at."""

    axis: int
    text: int
    work: float


Rows = Sequence[int]


def counts(lowering: Lowering, rows: Rows, writes: Rows, shape: Shape, lanes: int = LANES) -> Counts:
    """The way to work out rows, all of them at the places of a shape, that takes the least of each place.

    No more text is written for it than is compiled soon, where there is such a way. Each place is alone where windows
    are so far apart that no few registers have the same for all that follow them.
    """
    axis = lanes_axis(shape)
    step, reach = _along(lowering, rows, writes, axis)
    # As many places as fill a register, as the windows of one register or of two hold all of, or as one step.
    wanted = [lanes // step * step, *((many * lanes - reach // step) * step for many in (1, 2)), step]
    found = [
        _written(lowering, rows, writes, _Scope(axis, 1, 1.0), block(shape.rank, axis, places, lanes), places)
        for places in sorted({*wanted})
        if 0 < places <= MOST_LINES * lanes and lanes > 1
    ]
    if not found:
        alone = _Scope(-1, 1, float(lanes))
        return _written(lowering, rows, writes, alone, block(shape.rank, axis, 1, 1), 1)
    best, *others = [each for each in found if each.text <= MOST_WRITTEN_OUT] or found[:1]
    for each in others:
        if each.work / each.places < MUCH_LESS * best.work / best.places:
            best = each
    return best


def _written(lowering: Lowering, rows: Rows, writes: Rows, scope: _Scope, lines: list[Line], places: int) -> Counts:
    """What it takes at some lines, in loops where it is much that would be written one by one."""
    count = _counts(lowering, rows, writes, scope, lines, Counts(places, UNROLLED, 0, 0.0))
    if count.text <= MOST_UNROLLED:
        return count
    return _counts(lowering, rows, writes, scope, lines, Counts(places, 1, 0, 0.0))


def inside(lowering: Lowering, rows: Mapping[int, object], row: int) -> Iterator[tuple[int, int, Inner]]:
    """The operands of a row that are rows of its kernel: each, the row that it is, and how it steps through that."""
    for operand in lowering.spec.rows[row].operands:
        view = lowering.views.get(operand)
        if operand not in lowering.constants and view is not None and view.row in rows:
            place = inner(view, lowering.spec.rows[view.row].shape)
            assert place is not None
            yield operand, view.row, place


def _along(lowering: Lowering, rows: Rows, writes: Rows, axis: int) -> tuple[int, int]:
    """How far places lie apart, along an axis of what is written, whose windows are neighbours; how far those reach."""
    reached: dict[int, dict[int, tuple[int, int]]] = {row: {} for row in rows}
    reached.update({row: {axis: (1, 0)} for row in writes})
    steps, reaches = 1, 0
    for row in reversed(rows):
        opcode = lowering.spec.rows[row].opcode
        for lane, (step, reach) in reached[row].items():
            at = lane
            if isinstance(opcode, Fold) and opcode.axis == lane:
                step, reach = step * opcode.step, reach + step * (opcode.size - 1) * opcode.dilation
            elif isinstance(opcode, Fold):
                at += opcode.axis < lane
            elif isinstance(opcode, AlongAxis):
                at += opcode.axis <= lane
            steps, reaches = lcm(steps, step), max(reaches, reach)
            for _, base, place in inside(lowering, reached, row):
                there = place.axis(at)
                if there >= 0:
                    before = reached[base].get(there, (1, 0))
                    reached[base][there] = lcm(before[0], step), max(before[1], reach)
    return steps, reaches


def _counts(lowering: Lowering, rows: Rows, writes: Rows, scope: _Scope, lines: list[Line], count: Counts) -> Counts:
    asked: dict[int, dict[_Scope, dict[Line, None]]] = {row: {} for row in rows}
    asked.update({row: {scope: dict.fromkeys(lines)} for row in writes})
    text, work = 0, 0.0
    for row in reversed(rows):
        recorded = lowering.spec.rows[row]
        for own, some in asked[row].items():
            text += own.text * len(some)
            work += own.work * len(some)
            below, made = _made(lowering, row, own, [*some], count.unrolled)
            within = {operand: (base, place) for operand, base, place in inside(lowering, asked, row)}
            for operand in recorded.operands:
                if operand in within:
                    base, place = within[operand]
                    there = below._replace(axis=place.axis(below.axis))
                    few = fewest([place.line(line) for line in made], there.axis)
                    asked[base].setdefault(there, {}).update(dict.fromkeys(few))
                elif operand not in lowering.constants:
                    step = lowering.views[operand].strides[below.axis] if below.axis >= 0 else 0
                    text += below.text * len(made)
                    work += below.work * len(made) * (1 if 0 <= step < MOST_NEAR else FAR)
    return count._replace(text=text, work=work)


def _made(lowering: Lowering, row: int, scope: _Scope, lines: list[Line], unrolled: int) -> tuple[_Scope, list[Line]]:
    """The lines of what a row reads."""
    recorded = lowering.spec.rows[row]
    opcode = recorded.opcode
    if isinstance(opcode, Fold):
        if opcode.axis == scope.axis:
            return scope, [each for line in lines for each in along(line, opcode)]
        more = opcode.size if opcode.size <= unrolled else 1
        axis = scope.axis + (opcode.axis < scope.axis)
        runs = scope.work * opcode.size / opcode.step
        parts = [part for line in lines for part in line.by_place(opcode.axis).values()]
        return _Scope(axis, scope.text * more, runs), [part.with_axis(opcode.axis, 0) for part in parts]
    if isinstance(opcode, AlongAxis):
        extent = lowering.spec.rows[recorded.operands[0]].shape[opcode.axis]
        axis = scope.axis + (opcode.axis <= scope.axis)
        return scope._replace(axis=axis), [line.with_axis(opcode.axis, at) for line in lines for at in range(extent)]
    return scope, lines
