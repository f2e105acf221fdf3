"""Bands: the rows of an image that a cascade of folds computes at a time, where a whole image is no block.

A band of windows is computed once, and what follows reads it and the few rows before it that the same places are part
of. So a block is small however large the image is, and one image is work for several threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from topos.backend.native.groups import Group, Lowering
from topos.backend.native.views import View, dense_strides
from topos.op import Fold
from topos.op.movement import window_count

LARGE_BYTES = 1 << 21
"""What the windows of a block take at most; those of an image that take more are computed by bands."""
FEWEST_IMAGES = 8
"""Fewer leave threads without work, were an image always one thread's."""
BAND_ROWS = 96
"""Rows of a product that are worth reading its right operand again."""
WARMING = 4
"""A part of an image has so many bands at least: it begins with one that the part before it computes too."""


class Rows(NamedTuple):
    """Where the rows of an image lie in a buffer: `step` numbers apart, so many."""

    step: int
    extent: int


class Bands(NamedTuple):
    """How images are cut: `windows` rows of windows each, `rows` of them in a band.

    The stage `crossing` folds along the rows; those after it compute `results` rows at a time of `all_results`. Before
    its first window a band keeps `lead` rows, of which `halo` are read. `parts` are for different threads. `laid` says
    for each stage where the rows lie in what it stores.
    """

    images: int
    windows: int
    rows: int
    parts: int
    crossing: int
    results: int
    all_results: int
    step: int
    halo: int
    laid: tuple[Rows, ...]

    @property
    def bands(self) -> int:
        """As many to an image; the last one is moved back onto rows of the one before it."""
        return -(-self.windows // self.rows)

    @property
    def lead(self) -> int:
        """Rows before a band that stay: read by it, or computed again by the last one."""
        return max(self.halo, self.bands * self.rows - self.windows) if self.bands > 1 else 0


def bands_of(lowering: Lowering, stages: Sequence[Group]) -> Bands | None:
    """The bands of a product and the folds that follow it; `None` where an image is a block, or has no such rows."""
    folds = stages[1:]
    if not folds or not all(isinstance(lowering.spec.rows[stage.rows[0]].opcode, Fold) for stage in folds):
        return None
    (row, *_), images = stages[0].rows, folds[-1].shape[0]
    size = lowering.spec.rows[row].shape.volume * lowering.spec.element_of(row).dtype.itemsize
    if size // images <= LARGE_BYTES and (images >= FEWEST_IMAGES or size <= LARGE_BYTES):
        return None
    laid = _laid(lowering, stages)
    return None if laid is None else _cut(lowering, stages, images, laid)


def in_bands(view: View, rows: Rows, extent: int) -> tuple[View, int] | None:
    """The view of one image's buffer that has `extent` of its rows, and the axis that they are.

    `None` where no axis is the rows, or one is rows and something else.
    """
    strides, found = [0], None
    for axis in range(1, view.shape.rank):
        size, step = view.shape[axis], view.strides[axis]
        if size > 1 and step == rows.step and size == rows.extent:
            found = axis
        elif size > 1 and step >= rows.step:
            if step % (rows.step * rows.extent):
                return None
            step = step // rows.extent * extent
        elif step * (size - 1) >= rows.step:
            return None
        strides.append(step)
    if found is None or rows.extent < 2:
        return None
    shape = [1, *view.shape[1:]]
    shape[found] = extent
    return View(view.row, 0, type(view.shape)(shape), tuple(strides)), found


def operand_of(lowering: Lowering, stage: Group) -> int:
    """What a fold reads."""
    (operand,) = lowering.spec.rows[stage.rows[0]].operands
    return operand


def fold_of(lowering: Lowering, stage: Group) -> Fold:
    """The instruction of a stage that folds."""
    opcode = lowering.spec.rows[stage.rows[0]].opcode
    assert isinstance(opcode, Fold)
    return opcode


def _laid(lowering: Lowering, stages: Sequence[Group]) -> tuple[Rows, ...] | None:
    """Where the rows of an image lie in each stage's buffer: outermost, as far as a band has rows of the one before."""
    width = lowering.spec.rows[stages[0].rows[0]].shape[1]
    first = lowering.views[operand_of(lowering, stages[1])]
    axes = [(first.strides[axis], axis) for axis in range(1, first.shape.rank) if first.shape[axis] > 1]
    step, axis = max(axes, default=(1, 0))
    laid = [Rows(step, first.shape[axis])]
    if step % width or step * laid[0].extent != first.shape.volume // first.shape[0]:
        return None
    has_crossed = False
    for stage in stages[1:]:
        fold, view = fold_of(lowering, stage), lowering.views[operand_of(lowering, stage)]
        cut = in_bands(view, laid[-1], laid[-1].extent)
        if cut is None or cut[1] == fold.axis + 1 or (has_crossed and cut[1] == fold.axis):
            return None
        place = cut[1] - (cut[1] > fold.axis)
        has_crossed |= cut[1] == fold.axis
        laid.append(Rows(dense_strides(stage.shape)[place], stage.shape[place]))
        is_outermost = laid[-1].step * laid[-1].extent == stage.shape.volume // stage.shape[0]
        if not has_crossed and not is_outermost and stage is not stages[-1]:
            return None
    return tuple(laid)


def _cut(lowering: Lowering, stages: Sequence[Group], images: int, laid: tuple[Rows, ...]) -> Bands:
    count = laid[0].extent
    crossing, step, halo = len(stages), 1, 0
    for at, stage in enumerate(stages[1:], 1):
        fold = fold_of(lowering, stage)
        cut = in_bands(lowering.views[operand_of(lowering, stage)], laid[at - 1], laid[at - 1].extent)
        if cut is not None and cut[1] == fold.axis:
            crossing, step, halo = at, fold.step, (fold.size - 1) * fold.dilation // fold.step
            assert count == window_count("fold", fold.extent, fold.size, fold.step, fold.dilation)
    wide = laid[0].step // lowering.spec.rows[stages[0].rows[0]].shape[1]
    rows = min(count, max(1, halo, -(-BAND_ROWS // wide)))
    rows = min(count, max(halo, -(-count // -(-count // rows))))
    all_results = laid[-1].extent
    results = min(all_results, rows * step) if rows < count else all_results
    bands = Bands(images, count, rows, 1, crossing, results, all_results, step, halo, laid)
    wanted = -(-FEWEST_IMAGES // images) if images < FEWEST_IMAGES else 1
    parts = min(wanted, 1 + bands.bands // WARMING)
    if all_results - results < (bands.bands - 1) * rows * step:
        # The last results are moved back onto some of the band before, which the same thread computes.
        parts = min(parts, max(1, bands.bands // 2))
    return bands._replace(parts=min(parts, bands.bands))
