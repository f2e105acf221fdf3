"""Products whose terms are the rows of a cascade: a gradient sums over them, a block at a time in ascending order.

The chains of such a product wait in memory from block to block, and go on in the order of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from topos.backend.native.groups import Group, Lowering
from topos.backend.native.views import View, dense_strides
from topos.op import MatMul


def is_product(lowering: Lowering, group: Group) -> bool:
    """Whether a group is a product that may be a stage: of two operands that lie in memory as matrices."""
    row = lowering.spec.rows[group.rows[0]]
    if group.stages or group.prologues or not group.writes or not isinstance(row.opcode, MatMul):
        return False
    return all(lowering.view(operand).grid is None for operand in row.operands)


class Crossing:
    """The products that read what some stages compute along its rows, and may run where the last of those stood."""

    def __init__(self, lowering: Lowering, groups: Sequence[Group], stages: Sequence[Group], at: int) -> None:
        self.lowering, self.groups, self.stages, self.at = lowering, groups, stages, at
        self.leading, self.rows = stages[0].shape[:-2], stages[0].shape[-2]
        self.inside = {row for stage in stages[:-1] for row in stage.writes}
        self.home = {row: at for at, group in enumerate(groups) for row in group.writes}

    def products(self) -> list[int]:
        """Where they stand."""
        found: list[int] = []
        for at, group in enumerate(self.groups):
            if self._crosses(group) and self._is_cut_alike(found, at) and self._may_wait(at):
                found.append(at)
        return found

    def _may_wait(self, at: int) -> bool:
        """Whether nobody reads a product before the stages run."""
        rows, between = self.groups[at].writes, self.groups[at + 1 : self.at]
        return all(self.lowering.views[operand].row not in rows for group in between for operand in group.reads)

    def _is_cut_alike(self, found: Sequence[int], at: int) -> bool:
        """Whether no operand of a product is cut elsewhere along another axis."""
        left, right = self._operands(self.groups[at])
        rights = {self._operands(stage)[1] for stage in self.stages if is_product(self.lowering, stage)}
        lefts = {self._operands(self.groups[other])[0] for other in found}
        rows = self.lowering.spec.rows
        others = {operand for stage in self.stages for row in stage.rows for operand in rows[row].operands}
        others.update(self._operands(self.groups[other])[1] for other in found)
        after = [operand for other in (*found, at) for operand in self._following(self.groups[other])]
        if {*after} & {left, right, *rights, *lefts, *others}:
            return False
        return left not in others and right not in rights | lefts | {left}

    def _following(self, group: Group) -> list[int]:
        """What the rows after a product read beside it."""
        read = [operand for row in group.rows[1:] for operand in self.lowering.spec.rows[row].operands]
        views = self.lowering.views
        return [operand for operand in read if operand in views and views[operand].row not in group.rows]

    def _operands(self, group: Group) -> Sequence[int]:
        return self.lowering.spec.rows[group.rows[0]].operands

    def _crosses(self, group: Group) -> bool:
        if not is_product(self.lowering, group):
            return False
        operands = self._operands(group)
        if group.shape[:-2] != self.leading or any(operand in self.lowering.constants for operand in operands):
            return False
        if self.lowering.spec.rows[operands[0]].shape[-1] != self.rows or 0 in group.shape:
            return False
        views = [self.lowering.views[operand] for operand in operands]
        after = self._following(group)
        read = [*operands, *after]
        if any(self.lowering.views[operand].guards or self.lowering.is_one_hot(operand) for operand in read):
            return False
        if not all(self._is_outside(self.lowering.views[operand]) for operand in after):
            return False
        return any(view.row in self.inside for view in views) and all(map(self._is_there, views, (-1, -2)))

    def _is_outside(self, view: View) -> bool:
        """Whether a value is known before the stages run."""
        return self.home.get(view.row, -1) < self.at and all(view.row not in stage.rows for stage in self.stages)

    def _is_there(self, view: View, axis: int) -> bool:
        """Whether an operand is computed before the stages, or is of theirs and read along its own rows."""
        if view.row not in self.inside:
            return self._is_outside(view)
        own, count = self.lowering.spec.rows[view.row].shape, len(self.leading)
        steps = dense_strides(own)
        if view.offset or own[: count + 1] != (*self.leading, self.rows):
            return False
        walked = [*zip(self.leading, view.strides, steps, strict=False), (self.rows, view.strides[axis], steps[count])]
        return all(extent == 1 or one == two for extent, one, two in walked)
