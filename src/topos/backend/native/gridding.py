"""Reshapes that are not written: a product reads the windows of an image where they lie.

The rows of such an operand step through several axes, and so do its columns, each at its own stride; which no view of
two strides says.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from topos.backend.native.views import View, merged
from topos.graph.spec import Spec
from topos.op import MatMul, Movement
from topos.op.movement import Permute, Reshape
from topos.shape import Shape

LEAST_COLUMNS = 8
"""Of a product: with fewer, its time is that of reading the operand, which lies better once it is written."""


def gridded_rows(spec: Spec, scheduled: Sequence[int], kept: Collection[int]) -> set[int]:
    """The reshapes to a matrix, and their transposes, that products alone read, as their left operand."""
    refused = set(kept)
    found: set[int] = set()
    for row in reversed(scheduled):
        recorded = spec.rows[row]
        if isinstance(recorded.opcode, Reshape | Permute) and recorded.shape.rank == 2 and row not in refused:
            found.add(row)
            if isinstance(recorded.opcode, Reshape):
                refused.update(recorded.operands)
        elif isinstance(recorded.opcode, MatMul) and recorded.shape[-1] >= LEAST_COLUMNS:
            refused.update(recorded.operands[1:])
        else:
            refused.update(recorded.operands)
    return found


def gridded(view: View, shape: Shape, volume: int) -> View | None:
    """A view as a matrix of a shape whose rows and columns are some of its axes each.

    `None` where they are not, or where writing it out makes it no larger than its buffer of `volume` numbers.
    """
    if view.guards or view.grid or shape.volume <= volume:
        return None
    cut = next((cut for cut in range(len(view.shape) + 1) if prod(view.shape[:cut]) == shape[0]), None)
    if cut is None:
        return None
    rows, columns = (
        tuple(zip(extents, strides, strict=True))
        for extents, (strides,) in (
            merged(view.shape[part], [view.strides[part]]) for part in (slice(cut), slice(cut, None))
        )
    )
    return View(view.row, view.offset, shape, (0, 0), grid=(rows, columns))


def turned(view: View, opcode: Movement) -> View:
    """A matrix on a grid as a permutation sees it."""
    assert view.grid is not None
    assert isinstance(opcode, Permute)
    rows, columns = (view.grid[axis] for axis in opcode.order)
    return view._replace(shape=Shape([view.shape[axis] for axis in opcode.order]), grid=(rows, columns))
