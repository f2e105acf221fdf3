"""Kernels that walk a shape once: elementwise chains, copies and pads."""

from __future__ import annotations

from math import prod

import numpy as np

from topos.backend.native.costs import is_dear, lanes_up_to, weight
from topos.backend.native.evaluator import Evaluator, needed
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.nest import Frame, Place
from topos.backend.native.program import Call
from topos.backend.native.registers import Integer
from topos.backend.native.stream import passes_caches, streamed
from topos.backend.native.target import Target
from topos.backend.native.views import View, dense, dense_strides
from topos.backend.native.vocabulary import Lanes
from topos.op import Pad
from topos.shape import Shape

FAR = 1 << 16
"""Elements from which a chain of elementary functions works on several registers at once: it then pays to compile."""


def lanes_for(lowering: Lowering, group: Group, target: Target) -> int:
    """A register's worth of the group's numbers (of the narrower ones where it mixes elements), or no more than exist.

    Several registers side by side hide the latency of a polynomial's steps.
    """
    spec = lowering.spec
    wide = all((spec.rows[row].element or spec.element).dtype.itemsize == 8 for row in group.rows)
    dear = any(is_dear(lowering, row) for row in group.rows) and group.shape.volume >= FAR
    registers = 1 if not dear else 2 if wide else 4
    return lanes_up_to(registers * target.lanes(8 if wide else 4), group.shape.volume)


def elementwise(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """A chain of elementwise rows over one shape, each value in a register, the stored ones written as they come."""
    frame = Frame(lowering, target, lanes_for(lowering, group, target))
    for row in group.reads:
        frame.read(row)
    outputs = [(row, frame.add(dense(row, group.shape), frame.element(row).dtype.itemsize)) for row in group.writes]
    extents, (written,) = frame.lay(group.shape, [dense_strides(group.shape)])
    evaluator, rows = Evaluator(frame, group), needed(frame, group)
    passing = [pointer for row, pointer in outputs if len(extents) == 1 and passes_caches(frame, row)]

    def body(outer: tuple[Integer, ...], begin: Integer, end: Integer) -> None:
        if passing:
            begin = streamed(frame, passing, begin, end, extents[-1], lambda index: at(Place(outer, index, None)))
        frame.vectors(begin, end, extents[-1], lambda index, count: at(Place(outer, index, count)))

    def at(place: Place) -> None:
        held: dict[int, Lanes] = {}
        evaluator.evaluate(rows, held, evaluator.values(place, held))
        for row, pointer in outputs:
            frame.store(frame.arithmetic(frame.element(row)), held[row], pointer, written, place)

    tiles = frame.tiled(extents, prod(extents) * weight(lowering, rows), body)
    return Call((frame.kernel("elementwise", tiles),), frame.pointers)


def copy(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """A movement's numbers next to one another.

    As they are read, or, where a reshape's strides do not merge, in the operand's row-major order.
    """
    (row,) = group.rows
    (operand,) = lowering.spec.rows[row].operands
    frame = Frame(lowering, target, lanes_for(lowering, group, target))
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
    frame = Frame(lowering, target, lanes_for(lowering, group, target))
    if operand not in lowering.constants:
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
    extents, (written,) = frame.lay(shape, [target.strides])

    def body(outer: tuple[Integer, ...], begin: Integer, end: Integer) -> None:
        frame.vectors(begin, end, extents[-1], lambda index, count: at(Place(outer, index, count)))

    def at(place: Place) -> None:
        frame.store(m, frame.value(operand, place, m.element), pointer, written, place)

    tiles = frame.tiled(extents, work * prod(extents), body)
    return Call((frame.kernel("copy", tiles),), frame.pointers)
