"""Bands: the rows of an image that a cascade of folds computes at a time, where a whole image is no block.

A band of windows is computed once, and what follows reads it and the few rows before it that have the same places. So a
block is small however large the image is, and one image is work for several threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from topos.backend.native.groups import Group, Lowering
from topos.backend.native.views import View, dense_strides
from topos.op import Fold
from topos.records import NamedTuple

LARGE_BYTES = 1 << 21
"""Of the windows of an image: those that take more are computed by bands."""
SHARED_BYTES = 1 << 22
"""Of the windows of few images: they are one block, which threads share stage by stage, unless they take more."""
FEWEST_IMAGES = 8
"""Fewer leave threads without work, were an image always one thread's."""
BAND_ROWS, BAND_BYTES = 96, 1 << 16
"""Rows of a product that are worth reading its right operand again, or as many as take so much."""
MOST_BANDS_AGAIN = 8
"""One band of so many may be computed again: a part of an image begins with one that the part before it has too."""


class Rows(NamedTuple):
    """Where the rows of an image lie in a buffer: `step` numbers apart, so many."""

    step: int
    extent: int


class Bands(NamedTuple):
    """How images are cut: `windows` rows of windows each, `rows` of them in a band.

    The stage `crossing` folds along the rows, which are `step` places apart; it reads those of a band and up to `halo`
    rows before it, and it and those after it compute `results` rows at a time of `all_results`. `parts` are for
    different threads. `laid` says for each stage where the rows lie in what it stores.
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
        """As many to an image."""
        return -(-self.windows // self.rows)

    @property
    def ahead(self) -> int:
        """By how many rows the first band begins before the image; it is moved onto rows of the second one."""
        return self.bands * self.rows - self.windows

    @property
    def ring(self) -> int:
        """The rows of windows that are kept: whole bands."""
        return self.rows * (1 + -(-max(self.halo, self.ahead) // self.rows)) if self.bands > 1 else self.rows


def bands_of(lowering: Lowering, stages: Sequence[Group]) -> Bands | None:
    """The bands of a product and the folds that follow it; `None` where an image is a block, or has no such rows."""
    folds = stages[1:]
    if not folds or not all(isinstance(lowering.spec.rows[stage.rows[0]].opcode, Fold) for stage in folds):
        return None
    (row, *_), images = stages[0].rows, folds[-1].shape[0]
    size = lowering.spec.rows[row].shape.volume * lowering.spec.element_of(row).dtype.itemsize
    if size <= SHARED_BYTES if images < FEWEST_IMAGES else size // images <= LARGE_BYTES:
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
            crossing, step, halo = at, fold.step, -(-(fold.size - 1) * fold.dilation // fold.step)
            assert count == fold.count
    width = lowering.spec.rows[stages[0].rows[0]].shape[1]
    item = lowering.spec.element_of(stages[0].rows[0]).dtype.itemsize
    worth = max(BAND_ROWS, BAND_BYTES // (width * item))
    rows = _rows(count, min(count, max(1, halo, -(-worth * width // laid[0].step))), halo)
    all_results = laid[-1].extent
    results = min(all_results, rows * step) if rows < count else all_results
    bands = Bands(images, count, rows, 1, crossing, results, all_results, step, halo, laid)
    return bands._replace(parts=_parts(bands))


def _rows(count: int, least: int, halo: int) -> int:
    """The rows of a band: even shares of all, or nearly."""
    even = -(-count // -(-count // least))
    return next((rows for rows in range(least, 2 * least) if count % rows == 0), min(count, max(halo, even)))


def _parts(bands: Bands) -> int:
    """Into how many parts an image falls: a power of two."""
    most = min(FEWEST_IMAGES // bands.images, max(1 + bands.bands // MOST_BANDS_AGAIN, 2 if bands.images == 1 else 1))
    if bands.ahead or bands.all_results < bands.windows * bands.step:
        # The first band is moved, or the last results are: onto those of a neighbour, which the same thread computes.
        most = min(most, bands.bands // 2)
    return 1 << max(1, min(most, bands.bands)).bit_length() - 1
