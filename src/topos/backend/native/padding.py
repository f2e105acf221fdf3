"""Pads that are not written: who reads them asks at each place whether it lies inside."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from topos.backend.native.views import Guard, View
from topos.graph.spec import Spec
from topos.op import Cast, Elementwise, Pad
from topos.shape import Shape


def inlined_pads(spec: Spec, scheduled: Sequence[int], kept: Collection[int]) -> tuple[set[int], set[int]]:
    """The pads that only elementwise rows and other such pads read, and the rows that anything else reads."""
    written: set[int] = set()
    inlined: set[int] = set()
    for row in reversed(scheduled):
        opcode = spec.rows[row].opcode
        if isinstance(opcode, Pad) and row not in kept and row not in written:
            inlined.add(row)
        elif not isinstance(opcode, Elementwise | Cast):
            written.update(spec.rows[row].operands)
    return inlined, written


def padded(view: View, opcode: Pad, shape: Shape) -> View:
    """The view of a pad of a view: it steps beyond the buffer, where its guard holds it back."""
    axis, start = opcode.axis, opcode.start
    inner = tuple(guard._replace(start=guard.start + start) if guard.axis == axis else guard for guard in view.guards)
    guard = Guard(axis, start, view.shape[axis], opcode.fill)
    return View(view.row, view.offset - start * view.strides[axis], shape, view.strides, (*inner, guard))
