"""Products whose terms are the rows of a cascade: a gradient sums over them, a block at a time in ascending order.

The chains of such a product wait in memory from block to block, so that a thread walks all rows of a matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from topos.backend.native.groups import Group, Lowering
from topos.backend.native.rows import BLOCK
from topos.backend.native.views import View, dense_strides
from topos.op import MatMul

FEWEST_MATRICES = 8
"""Fewer matrices would leave threads without work."""
FEWEST_ROWS = 8
"""Rows of a block, which has to end where a block of 512 terms does."""
FEWEST_RESULTS = 8
"""Rows and columns of results that are worth a tile of registers on any machine."""


def even_rows(rows: int, most: int) -> int:
    """The most rows of even blocks that end where all rows and every 512 of them do."""
    whole = rows if rows <= BLOCK else gcd(rows, BLOCK)
    return max(size for size in range(1, min(most, whole) + 1) if whole % size == 0)


class Crossing:
    """The products after some stages that read what those compute along its rows."""

    def __init__(self, lowering: Lowering, groups: Sequence[Group], stages: Sequence[int]) -> None:
        self.lowering, self.groups, self.stages = lowering, groups, stages
        self.leading, self.rows = groups[stages[0]].shape[:-2], groups[stages[0]].shape[-2]
        self.inside = {row for at in stages[:-1] for row in groups[at].writes}
        self.home = {row: at for at, group in enumerate(groups) for row in group.writes}

    def products(self) -> list[int]:
        """Where they stand: those of which everything that they read from elsewhere is there in time."""
        if prod(self.leading) < FEWEST_MATRICES or even_rows(self.rows, 1 << 6) < min(FEWEST_ROWS, self.rows):
            return []
        found: list[int] = []
        for at in range(self.stages[-1] + 1, len(self.groups)):
            if self._crosses(self.groups[at]) and self._is_cut_alike(found, at):
                found.append(at)
        return found

    def _is_cut_alike(self, found: Sequence[int], at: int) -> bool:
        """Whether no operand of a product is cut elsewhere along another axis."""
        left, right = self._operands(at)
        rights = {self._operands(stage)[1] for stage in self.stages if self._is_product(stage)}
        lefts = {self._operands(other)[0] for other in found}
        others = {o for stage in self.stages for row in self.groups[stage].rows for o in self._operands_of(row)}
        others.update(self._operands(other)[1] for other in found)
        return left not in others and right not in rights | lefts | {left}

    def _is_product(self, at: int) -> bool:
        return isinstance(self.lowering.spec.rows[self.groups[at].rows[0]].opcode, MatMul)

    def _operands(self, at: int) -> Sequence[int]:
        return self._operands_of(self.groups[at].rows[0])

    def _operands_of(self, row: int) -> Sequence[int]:
        return self.lowering.spec.rows[row].operands

    def _crosses(self, group: Group) -> bool:
        spec = self.lowering.spec
        if group.stages or not group.writes or len(group.rows) != 1:
            return False
        recorded = spec.rows[group.rows[0]]
        if not isinstance(recorded.opcode, MatMul) or group.shape[:-2] != self.leading:
            return False
        if any(operand in self.lowering.constants for operand in recorded.operands):
            return False
        views = [self.lowering.views[operand] for operand in recorded.operands]
        if spec.rows[recorded.operands[0]].shape[-1] != self.rows:
            return False
        if group.shape[-2] < FEWEST_RESULTS or group.shape[-1] < FEWEST_RESULTS:
            return False
        if any(view.guards or self.lowering.is_one_hot(o) for view, o in zip(views, recorded.operands, strict=True)):
            return False
        return any(view.row in self.inside for view in views) and all(
            self._is_there(view, axis) for view, axis in zip(views, (-1, -2), strict=True)
        )

    def _is_there(self, view: View, axis: int) -> bool:
        """Whether an operand is computed before the stages, or is of theirs and read along its own rows."""
        if view.row not in self.inside:
            return self.home.get(view.row, -1) < self.stages[-1] and self.home.get(view.row) not in self.stages
        own, count = self.lowering.spec.rows[view.row].shape, len(self.leading)
        steps = dense_strides(own)
        if view.offset or own[: count + 1] != (*self.leading, self.rows):
            return False
        walked = [*zip(self.leading, view.strides, steps, strict=False), (self.rows, view.strides[axis], steps[count])]
        return all(extent == 1 or one == two for extent, one, two in walked)
