"""Kernels that move numbers: copies next to one another, and pads."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from topos.backend.native.groups import Group, Lowering
from topos.backend.native.loops import lanes_for
from topos.backend.native.nest import WORK, Frame
from topos.backend.native.program import Call
from topos.backend.native.reads import Place
from topos.backend.native.registers import Integer, Operand
from topos.backend.native.target import Target
from topos.backend.native.views import View, dense, dense_strides
from topos.op import Pad

Part = Callable[[Frame, Operand], int]
"""Writes a part of a kernel's work into the result at a pointer; answers its tiles."""


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
    pointer = frame.add(dense(row, group.shape), frame.arithmetic(frame.element(row)).bytes)
    tiles = _copied(frame, operand, row, pointer, View(row, 0, shape, dense_strides(shape)))
    return Call((frame.kernel("copy", tiles),), frame.pointers)


def pad(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """The fill before and after the operand, and the operand: one kernel where they are small, else one for each."""
    pads = _Pad(lowering, group, target)
    parts: list[Part] = [*([pads.operand] if pads.shape.volume else []), *pads.borders()]
    if pads.is_small:
        frame, result = pads.frame()
        for part in parts:
            part(frame, result)
        return Call((frame.kernel("pad", 1),), frame.pointers)
    kernels = []
    for part in parts:
        frame, result = pads.frame()
        kernels.append(frame.kernel("pad", part(frame, result)))
    return Call(tuple(kernels), frame.pointers)


class _Pad:
    """The parts of a pad, which write different places."""

    def __init__(self, lowering: Lowering, group: Group, target: Target) -> None:
        (self.row,) = group.rows
        opcode = lowering.spec.rows[self.row].opcode
        assert isinstance(opcode, Pad)
        self.opcode = opcode
        (self.given,) = lowering.spec.rows[self.row].operands
        self.shape = lowering.spec.rows[self.given].shape
        self.full = group.shape
        self.lowering, self.target = lowering, target
        self.lanes = lanes_for(lowering, group, target)
        self.is_small = group.shape.volume < 2 * WORK

    def frame(self) -> tuple[Frame, Operand]:
        """A frame of all operands: the one given, unless it is constant, and the result, whose pointer it answers."""
        frame = Frame(self.lowering, self.target, self.lanes)
        if self.given not in self.lowering.constants:
            frame.read(self.given)
        result = frame.add(dense(self.row, self.full), frame.arithmetic(frame.element(self.row)).bytes)
        return frame, result

    def operand(self, frame: Frame, result: Operand) -> int:
        """The operand in its place."""
        strides = dense_strides(self.full)
        place = View(self.row, self.opcode.start * strides[self.opcode.axis], self.shape, strides)
        return _copied(frame, self.given, self.row, result, place, 0 if self.is_small else 1)

    def borders(self) -> list[Part]:
        """The fill before and after the operand, where there is any."""
        axis, start = self.opcode.axis, self.opcode.start
        end = start + self.shape[axis]
        parts = [(0, start), (end, self.full[axis] - end)]
        return [
            lambda frame, result, first=first, length=length: self._fill(frame, result, first, length)  # type: ignore[misc]
            for first, length in parts
            if length
        ]

    def _fill(self, frame: Frame, result: Operand, first: int, length: int) -> int:
        axis = self.opcode.axis
        width = prod(self.full[axis + 1 :])
        m = frame.arithmetic(frame.element(self.row))
        fill = m.constant(m.element.round(np.array(self.opcode.fill))[()])
        start = m.offset(result, first * width)
        steps = [self.full[axis] * width, 1]
        extents = [prod(self.full[:axis]), length * width]
        if extents[0] == 1:
            steps, extents = steps[1:], extents[1:]

        def body(outer: tuple[Integer, ...], begin: Integer, end: Integer) -> None:
            frame.vectors(
                begin,
                end,
                extents[-1],
                lambda index, count: frame.store(m, fill, start, steps, Place(outer, index, count)),
            )

        return frame.tiled(extents, 0 if self.is_small else prod(extents), body)


def _copied(frame: Frame, operand: int, row: int, pointer: Operand, target: View, work: int = 1) -> int:
    """The operand's numbers at a view of the row's buffer; shared out among tiles where `work` is not 0."""
    m = frame.arithmetic(frame.element(row))
    extents, (written,) = frame.lay(target.shape, [target.strides])
    first = m.offset(pointer, target.offset)

    def body(outer: tuple[Integer, ...], begin: Integer, end: Integer) -> None:
        frame.vectors(begin, end, extents[-1], lambda index, count: at(Place(outer, index, count)))

    def at(place: Place) -> None:
        frame.store(m, frame.value(operand, place, m.element), first, written, place)

    return frame.tiled(extents, work * prod(extents), body)
