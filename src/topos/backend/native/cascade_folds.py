"""Folds of a product's rows: stages that add windows back image by image, so that nobody stores the windows.

The input gradient of a convolution is such a cascade: a product, and a fold for each axis of the windows. Large images
are cut into bands of rows. The windows of few small images are one block, which threads share stage by stage.
"""

from __future__ import annotations

from collections.abc import Sequence

from topos.backend.native.cascade_bands import FEWEST_IMAGES, bands_of
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.views import View
from topos.op import Fold, MatMul

BLOCK_BYTES = 1 << 17
"""Of the windows of a block, unless those of one image take more."""
MOST_BLOCKS = 16
"""As many, where there are so many images, before a block has several."""


class Folds:
    """The stages that end in one fold."""

    def __init__(self, lowering: Lowering, groups: Sequence[Group], last: int) -> None:
        self.lowering, self.groups, self.last = lowering, groups, last

    def stages(self) -> list[int]:
        """Where the stages stand, in order; none where a condition does not hold."""
        found = [self.last]
        if not self._is_fold(self.groups[self.last]):
            return []
        while self._is_fold(self.groups[found[0]]):
            before = self._before(found[0])
            if before is None:
                return []
            found.insert(0, before)
        first = self.groups[found[0]]
        if not first.stages and not self._is_product(first):
            return []
        stages = [*(first.stages or (first,)), *(self.groups[at] for at in found[1:])]
        images = self.groups[self.last].shape[0]
        if any(stage.shape[0] != images for stage in stages[1:]):  # an axis of one place stands before the images
            return []
        return found if images >= FEWEST_IMAGES or bands_of(self.lowering, stages) is not None else []

    def _before(self, at: int) -> int | None:
        """The group whose result a fold reads image by image and nobody else reads."""
        (row,) = self.groups[at].rows
        view = self.lowering.views.get(self.lowering.spec.rows[row].operands[0])
        if view is None or view.row in self.lowering.kept or not self._keeps_images(view):
            return None
        readers = [group for group in self.groups if any(self._base(operand) == view.row for operand in group.reads)]
        homes = (home for home, group in enumerate(self.groups[:at]) if self._is_alone(group, view.row))
        return next(homes, None) if len(readers) == 1 else None

    def _is_alone(self, group: Group, row: int) -> bool:
        """Whether a group computes a row and nothing else, or folds to it."""
        opcode = self.lowering.spec.rows[row].opcode
        return group.writes == [row] and (group.rows == [row] or (bool(group.stages) and isinstance(opcode, Fold)))

    def _base(self, operand: int) -> int:
        return self.lowering.views[operand].row

    def _is_fold(self, group: Group) -> bool:
        opcode = self.lowering.spec.rows[group.rows[0]].opcode
        return len(group.rows) == 1 and bool(group.writes) and isinstance(opcode, Fold) and opcode.axis > 0

    def _is_product(self, group: Group) -> bool:
        recorded = self.lowering.spec.rows[group.rows[0]]
        if not isinstance(recorded.opcode, MatMul) or group.shape.rank != 2 or group.stages or group.prologues:
            return False
        left, right = recorded.operands
        return left != right and all(map(self._is_plain, recorded.operands))

    def _is_plain(self, operand: int) -> bool:
        """Whether an operand is numbers in memory."""
        view = self.lowering.views.get(operand)
        return view is not None and not view.guards and view.grid is None and not self.lowering.is_one_hot(operand)

    def _keeps_images(self, view: View) -> bool:
        """Whether the first axis of what a fold reads is the images, one behind the other in its buffer."""
        images, size = view.shape[0], self.lowering.spec.rows[view.row].shape.volume
        steps = zip(view.shape[1:], view.strides[1:], strict=True)
        reach = sum((extent - 1) * step for extent, step in steps)
        is_whole = view.offset == 0 and not view.guards and view.grid is None and view.shape.volume == size
        if not is_whole or not size:
            return False
        return reach == size // images - 1 and (images == 1 or view.strides[0] == size // images)


def images_of(lowering: Lowering, group: Group) -> int:
    """The images of a block: as many to each."""
    first, images = lowering.spec.rows[group.stages[0].rows[0]], group.shape[0]
    size = first.shape.volume // images * lowering.spec.element_of(group.stages[0].rows[0]).dtype.itemsize
    most = max(1, min(BLOCK_BYTES // size, images // MOST_BLOCKS))
    return max(count for count in range(1, most + 1) if images % count == 0)
