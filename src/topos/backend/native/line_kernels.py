"""Kernels whose rows are all worked out where they are stored: the lanes are neighbours along the last axis."""

from __future__ import annotations

from collections.abc import Sequence

from topos.backend.native.arithmetic import Arithmetic
from topos.backend.native.costs import lanes_up_to
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.line_counts import counts
from topos.backend.native.line_work import Work
from topos.backend.native.lines import Lines, alike_at_the_end, block
from topos.backend.native.loops import lanes_for
from topos.backend.native.near import lanes_axis
from topos.backend.native.nest import Frame
from topos.backend.native.program import Call
from topos.backend.native.reads import Place
from topos.backend.native.registers import TRUTH, Integer, Operand, listed, vector
from topos.backend.native.target import Target
from topos.backend.native.views import merged
from topos.backend.native.vocabulary import Lanes
from topos.op import Fold
from topos.op.reduction import AlongAxis


def line_kernel(lowering: Lowering, group: Group, target: Target) -> Call:
    """The rows that a group stores, and those that make them."""
    after = _after(lowering, group)
    shape, steps = _merged(lowering, group, after)
    axis = lanes_axis(shape)
    lanes = lanes_up_to(lanes_for(lowering, group, target), shape[axis])
    count = counts(lowering, group.rows, group.writes, group.shape, lanes)
    lanes = lanes if count.places > 1 else 1
    frame = Frame(lowering, target, lanes)
    for operand, map in zip(group.reads, steps[len(group.writes) :], strict=True):
        frame.read(operand).maps = [map]
    results = [frame.add(lowering.views[row], frame.element(row).dtype.itemsize) for row in group.writes]
    work = Work(frame, group, (after, after and len(shape) - (group.shape.rank - after)), count.unrolled)
    lines = block(len(shape), axis, min(count.places, shape[axis]), lanes)
    is_whole = not shape[axis] % count.places

    def body(outer: tuple[Integer, ...], _begin: Integer, _end: Integer) -> None:
        *before, number = outer
        index = frame.function.multiply(number, count.places)
        first = (*before, index, *[0] * (len(shape) - axis - 1))
        exists = [
            None if is_whole and None not in line.lanes else work.exists(index, line.along(axis), shape[axis])
            for line in lines
        ]
        at = Lines(first, axis if lanes > 1 else -1, lines, exists)
        values = [work.row(row, at) for row in group.writes]
        left = frame.function.add(shape[axis], frame.function.multiply(index, -1))

        def store(is_whole: bool) -> None:
            for row, result, own, some in zip(group.writes, results, steps, values, strict=False):
                for line, value in zip(lines, some, strict=True):
                    begin = line.along(axis)[0]
                    assert begin is not None
                    count = sum(place is not None for place in line.lanes)
                    here = count if is_whole else frame.function.least(frame.function.add(left, -begin), count)
                    place = Place(tuple(before), frame.function.add(index, begin), here)
                    _store(frame, frame.arithmetic(frame.element(row)), value, result, own[: axis + 1], place)

        if is_whole or isinstance(left, int):
            store(is_whole)
        else:
            is_part = frame.function.below(left, count.places)
            frame.function.when(is_part, lambda: store(False), rarely=True)
            frame.function.when(frame.function.let(TRUTH, f"xor i1 {is_part.text}, true"), lambda: store(True))

    blocks = -(-shape[axis] // count.places)
    size = round(group.shape.volume * lanes * count.work / count.places)
    tiles = frame.tiled([*shape[:axis], blocks, 1], size, body)
    return Call((frame.kernel("lines", tiles),), frame.pointers)


def _store(frame: Frame, m: Arithmetic, value: Lanes, pointer: Operand, steps: Sequence[int], place: Place) -> None:
    """Puts lanes at a place; so many of them that it is known, in whole pieces: masked stores take long."""
    count, function = place.lanes, frame.function
    if not isinstance(count, int) or steps[-1] != 1 or count == frame.lanes:
        frame.store(m, value, pointer, steps, place)
        return
    stored, first = m.closed(value), m.offset(pointer, frame.offset(steps, place))
    size, begin = frame.lanes, 0
    while begin < count:
        size //= 2
        if count - begin >= size:
            lanes = listed(vector("i32", size), tuple(range(begin, begin + size)))
            part = f"shufflevector {stored}, {stored.type.text} poison, {lanes}"
            if size == 1:
                part = f"extractelement {stored}, i64 {begin}"
            piece = function.let(vector(stored.type.item, size), part)
            function.store(piece, m.offset(first, begin), m.bytes)
            begin += size


def _after(lowering: Lowering, group: Group) -> int:
    """How many of the last axes are the same axes of all rows, from end to end."""
    spec, after = lowering.spec, group.shape.rank
    for row in group.rows:
        opcode, operands = spec.rows[row].opcode, spec.rows[row].operands
        if isinstance(opcode, Fold):
            after = min(after, spec.rows[row].shape.rank - 1 - opcode.axis)
        elif isinstance(opcode, AlongAxis):
            after = min(after, spec.rows[row].shape.rank - opcode.axis)
        for view in (lowering.views[operand] for operand in operands if operand not in lowering.constants):
            if view.row in group.rows:
                after = min(after, alike_at_the_end(view, spec.rows[view.row].shape))
    return after


def _merged(lowering: Lowering, group: Group, after: int) -> tuple[list[int], list[list[int]]]:
    """The shape with its last axes made as few as they can be; the steps of results and reads."""
    strides = [lowering.view(row).strides for row in (*group.writes, *group.reads)]
    if not after:
        return [*group.shape], [[*own] for own in strides]
    extents, steps = merged(group.shape[len(group.shape) - after :], [own[len(own) - after :] for own in strides])
    return [*group.shape[:-after], *extents], [[*own[:-after], *new] for own, new in zip(strides, steps, strict=True)]
