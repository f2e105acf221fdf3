"""Kernels whose rows are all worked out where they are stored: the lanes are neighbours along the last axis."""

from __future__ import annotations

from topos.backend.native.costs import lanes_up_to
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.line_counts import counts, step_along
from topos.backend.native.line_work import Lines, Work
from topos.backend.native.lines import alike_at_the_end, first_line
from topos.backend.native.loops import lanes_for
from topos.backend.native.near import lanes_axis
from topos.backend.native.nest import Frame
from topos.backend.native.program import Call
from topos.backend.native.reads import Place
from topos.backend.native.registers import Integer
from topos.backend.native.target import Target
from topos.backend.native.views import merged
from topos.op import Fold
from topos.op.reduction import AlongAxis


def line_kernel(lowering: Lowering, group: Group, target: Target) -> Call:
    """The rows that a group stores, and those that make them."""
    after = _after(lowering, group)
    shape, steps = _merged(lowering, group, after)
    axis = lanes_axis(shape)
    lanes = lanes_up_to(lanes_for(lowering, group, target), shape[axis])
    step = step_along(lowering, group.rows, group.writes, lanes_axis(group.shape))
    active = lanes // step * step
    if not active:
        lanes = active = 1
    line = first_line(len(shape), lanes, active)
    frame = Frame(lowering, target, lanes)
    for operand, map in zip(group.reads, steps[len(group.writes) :], strict=True):
        frame.read(operand).maps = [map]
    results = [frame.add(lowering.views[row], frame.element(row).dtype.itemsize) for row in group.writes]
    work = Work(frame, group, (after, after and len(shape) - (group.shape.rank - after)))

    def body(outer: tuple[Integer, ...], _begin: Integer, _end: Integer) -> None:
        *before, block = outer
        index = frame.function.multiply(block, active)
        is_whole = active == lanes and not shape[axis] % active
        exists = None if is_whole else work.exists(index, line.lanes, shape[axis])
        first = (*before, index, *[0] * (len(shape) - axis - 1))
        lines = Lines(first, axis if lanes > 1 else -1, [line], [exists])
        for row, result, own in zip(group.writes, results, steps, strict=False):
            m = frame.arithmetic(frame.element(row))
            (value,) = work.row(row, lines)
            if exists is None or isinstance(index, int) or own[axis] != 1:
                left = frame.function.add(shape[axis], frame.function.multiply(index, -1))
                count = None if exists is None else frame.function.least(left, active)
                frame.store(m, value, result, own[: axis + 1], Place(tuple(before), index, count))
            else:
                place = m.offset(result, frame.offset(own[: axis + 1], Place(tuple(before), index, None)))
                frame.function.store_masked(m.closed(value), place, exists, m.bytes)

    size = group.shape.volume * round(counts(lowering, group.rows, group.writes, group.shape).work)
    tiles = frame.tiled([*shape[:axis], -(-shape[axis] // active), 1], size, body)
    return Call((frame.kernel("lines", tiles),), frame.pointers)


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
