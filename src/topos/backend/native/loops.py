"""Kernels that walk a shape once: elementwise chains, copies and pads."""

from __future__ import annotations

import numpy as np

from topos.backend.native.groups import Group, Lowering
from topos.backend.native.nest import Frame, Place, merged, total, weight
from topos.backend.native.program import Call
from topos.backend.native.registers import Integer
from topos.backend.native.target import Target
from topos.backend.native.views import View, dense, dense_strides
from topos.op import Pad
from topos.shape import Shape


def lanes_for(lowering: Lowering, group: Group, target: Target) -> int:
    """A register's worth of the group's numbers; of the narrower ones where it mixes elements."""
    spec = lowering.spec
    wide = all((spec.rows[row].element or spec.element).dtype.itemsize == 8 for row in group.rows)
    return target.lanes(8 if wide else 4)


def elementwise(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """A chain of elementwise rows over one shape, each value in a register, the stored ones written as they come."""
    frame = Frame(lowering, group.rows, target, lanes_for(lowering, group, target))
    if not readable(lowering, group):
        return None
    for row in group.reads:
        frame.read(row)
    outputs = [(row, frame.add(dense(row, group.shape), frame.element(row).dtype.itemsize)) for row in group.writes]
    reads = frame.reads()
    own = dense_strides(group.shape)
    extents, steps = merged(group.shape, [*[frame.strides(row) for row in reads], own])
    for row, addressed in zip(reads, steps, strict=False):
        frame.address(row, addressed)
    written = steps[-1]

    def body(outer: tuple[Integer, ...], begin: Integer, end: Integer) -> None:
        frame.vectors(begin, end, extents[-1], lambda index, count: at(Place(outer, index, count)))

    def at(place: Place) -> None:
        values = frame.evaluate(place)
        for row, pointer in outputs:
            frame.store(frame.arithmetic(frame.element(row)), values[row], pointer, written, place)

    work = total(extents) * weight(lowering, group.rows)
    tiles = frame.tiled(extents, work, body) if total(extents) else 1
    return Call((frame.function.kernel("elementwise", tiles),), frame.pointers)


def readable(lowering: Lowering, group: Group) -> bool:
    """Whether every selection that a group reads stands as it is over the group's shape, its vocab the last axis."""
    for row in group.reads:
        view = lowering.views[row]
        if lowering.spec.is_selection(view.row) and (view.row != row or lowering.spec.rows[row].shape[-1] == 1):
            return False
    return True


def copy(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """A movement's numbers next to one another.

    As they are read, or, where a reshape's strides do not merge, in the operand's row-major order.
    """
    (row,) = group.rows
    (operand,) = lowering.spec.rows[row].operands
    if lowering.spec.is_selection(lowering.views[operand].row):
        return None
    frame = Frame(lowering, [], target, lanes_for(lowering, group, target))
    view = lowering.moved(row)
    frame.read(operand, view)
    shape = lowering.spec.rows[operand].shape if view is None else view.shape
    return _copied(frame, operand, row, shape, View(row, 0, shape, dense_strides(shape)), 1)


def pad(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """The fill everywhere, then the operand in its place."""
    (row,) = group.rows
    recorded = lowering.spec.rows[row]
    opcode = recorded.opcode
    assert isinstance(opcode, Pad)
    (operand,) = recorded.operands
    constant = operand in lowering.constants
    if not constant and lowering.spec.is_selection(lowering.views[operand].row):
        return None
    frame = Frame(lowering, [], target, lanes_for(lowering, group, target))
    if not constant:
        frame.read(operand)
    shape = lowering.spec.rows[operand].shape
    strides = dense_strides(recorded.shape)
    place = View(row, opcode.start * strides[opcode.axis], shape, strides)
    m = frame.arithmetic(frame.element(row))
    result = frame.add(dense(row, recorded.shape), m.element.dtype.itemsize)
    fill = m.constant(m.element.round(np.array(opcode.fill))[()])
    volume = recorded.shape.volume
    frame.vectors(0, volume, volume, lambda index, count: m.store(fill, m.offset(result, index), count))
    return _copied(frame, operand, row, shape, place, 0)


def _copied(frame: Frame, operand: int, row: int, shape: Shape, target: View, work: int) -> Call:
    """The operand's numbers at a view of the row's buffer; shared out among tiles where `work` is not 0."""
    m = frame.arithmetic(frame.element(row))
    pointer = frame.add(target, m.element.dtype.itemsize)
    reads = frame.reads()
    extents, (written, *steps) = merged(shape, [target.strides, *[frame.strides(read) for read in reads]])
    for read, own in zip(reads, steps, strict=True):
        frame.address(read, own)

    def body(outer: tuple[Integer, ...], begin: Integer, end: Integer) -> None:
        frame.vectors(begin, end, extents[-1], lambda index, count: at(Place(outer, index, count)))

    def at(place: Place) -> None:
        frame.store(m, frame.value(operand, place, m.element), pointer, written, place)

    tiles = frame.tiled(extents, work * total(extents), body) if total(extents) else 1
    return Call((frame.function.kernel("copy", tiles),), frame.pointers)
