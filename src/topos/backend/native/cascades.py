"""Cascades: a product, work on its rows and a product of that, one group that runs block of rows by block of rows.

Folds may follow a product instead, a block of images at a time. What passes between the stages is a block that stays
in the nearest caches. It is stored where it belongs only if somebody else reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from topos.backend.native.cascade_crossing import Crossing, is_product
from topos.backend.native.cascade_folds import Folds
from topos.backend.native.drafts import WHOLE
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.views import View, dense_strides
from topos.op import Cast, Elementwise
from topos.shape import Shape

FEWEST_ROWS = 2
"""Rows of a matrix; fewer are no block."""
FEWEST_BLOCKS = 8
"""Of 16 rows, in all matrices together: fewer are shared out better stage by stage."""
MOST_RIGHT_BYTES = 1 << 19
"""What the right operands of a matrix take, which every block reads again."""
MOST_WIDTH = 512
"""Lines of all right operands together, or they take so many bytes: reading them again is less than storing blocks."""


def with_cascades(lowering: Lowering, groups: Sequence[Group]) -> list[Group]:
    """The groups, some of them joined; a joined group stands where its last stage stood."""
    found = list(groups)
    for at in range(len(found)):
        folded = Folds(lowering, found, at).stages()
        if folded:
            stages = [part for stage in folded for part in found[stage].stages or (found[stage],)]
            _join(lowering, found, stages, folded, at)
        taken = [] if folded else _Search(lowering, found, at).stages()
        if taken:
            from topos.backend.native.cascade_remade import remade

            stages = [found[stage] for stage in taken]
            again = remade(lowering, found, stages, at)
            if again is not None:
                found[again.at] = again.without
                stages = again.stages
            crossing = Crossing(lowering, found, stages, at).products()
            stages += [found[stage]._replace(crosses=True) for stage in crossing]
            _join(lowering, found, stages, [*taken, *crossing], at)
    return [group for group in found if group.writes]


class _Search:
    """The stages that end in one product."""

    def __init__(self, lowering: Lowering, groups: Sequence[Group], last: int) -> None:
        self.lowering, self.groups, self.last = lowering, groups, last
        self.home: dict[int, int] = {}
        self.shape = Shape()

    def stages(self) -> list[int]:
        """Where the stages stand, in order; none where a condition does not hold."""
        group = self.groups[self.last]
        if not self._is_product(group):
            return []
        left, _ = self.lowering.spec.rows[group.rows[0]].operands
        if left in self.lowering.constants:
            return []
        self.home = {row: at for at, group in enumerate(self.groups) for row in group.writes}
        before = self.home.get(self.lowering.views[left].row)
        if before is None or not self._is_work(self.groups[before]):
            return []
        self.shape = self.groups[before].shape
        if self.lowering.spec.rows[left].shape[:-1] != self.shape[:-1]:  # one number for each row is no matrix of rows
            return []
        found = sorted(self._before(before))
        stages = [*found, self.last]
        fits = self._is_product(self.groups[found[0]]) and self._is_free(stages) and self._is_worth(stages)
        return stages if fits else []

    def _before(self, last: int) -> set[int]:
        """A stage and those before it whose blocks it reads: products and work of the same shape."""
        found, waiting = set(), [last]
        while waiting:
            at = waiting.pop()
            if at in found:
                continue
            found.add(at)
            if self._is_product(self.groups[at]):
                continue
            for operand in self.groups[at].reads:
                home = self.home.get(self.lowering.views[operand].row)
                if home is not None and self._is_stage(self.groups[home]):
                    waiting.append(home)
        return found

    def _is_product(self, group: Group) -> bool:
        return is_product(self.lowering, group)

    def _is_stage(self, group: Group) -> bool:
        return group.shape == self.shape and (self._is_product(group) or self._is_work(group))

    def _is_work(self, group: Group) -> bool:
        """Whether a group works row by row, along the last axis."""
        if group.stages or not group.writes or group.shape.rank < 2 or group.axis == WHOLE:
            return False
        if group.axis is not None:
            return group.axis == group.shape.rank - 1
        return isinstance(self._opcode(group), Elementwise | Cast)

    def _opcode(self, group: Group) -> object:
        return self.lowering.spec.rows[group.rows[0]].opcode

    def _is_free(self, stages: Sequence[int]) -> bool:
        """Whether nobody in between reads what a stage writes, and each stage reads others where its own rows are."""
        inside = {row for at in stages for row in self.groups[at].writes}
        rights = [self._right(at) for at in stages if self._is_product(self.groups[at])]
        for at in range(stages[0], self.last + 1):
            for operand in self.groups[at].reads:
                view = self.lowering.views[operand]
                if view.row in inside and (at not in stages or operand in rights or not self._keeps_rows(view)):
                    return False
                if at in stages and (view.guards or self.lowering.is_one_hot(operand)):
                    return False
        products = [self.groups[at].rows[0] for at in stages if self._is_product(self.groups[at])]
        if any(operand in self.lowering.constants for row in products for operand in self._operands(row)):
            return False
        operands = [o for at in stages for row in self.groups[at].rows for o in self._operands(row)]
        return all(operands.count(right) == 1 for right in rights)

    def _operands(self, row: int) -> Sequence[int]:
        return self.lowering.spec.rows[row].operands

    def _right(self, at: int) -> int:
        return self._operands(self.groups[at].rows[0])[1]

    def _keeps_rows(self, view: View) -> bool:
        """Whether a value of a stage is read in the rows in which it is written."""
        own, leading = self.lowering.spec.rows[view.row].shape, self.shape.rank - 1
        if view.offset or tuple(view.shape[:leading]) != tuple(own[:leading]):
            return False
        steps = zip(own[:leading], view.strides, dense_strides(own), strict=False)
        return all(extent == 1 or one == two for extent, one, two in steps)

    def _is_worth(self, stages: Sequence[int]) -> bool:
        *leading, rows, columns = self.shape
        blocks = prod(leading) * -(-rows // 16)
        rights = [self._right(at) for at in stages if self._is_product(self.groups[at])]
        spec = self.lowering.spec
        size = sum(prod(spec.rows[right].shape[-2:]) * spec.element_of(right).dtype.itemsize for right in rights)
        width = sum(prod(spec.rows[right].shape[-2:]) for right in rights) // max(1, columns)
        is_small = 0 < size <= MOST_RIGHT_BYTES or 0 < width <= MOST_WIDTH
        return rows >= FEWEST_ROWS and columns > 0 and blocks >= FEWEST_BLOCKS and is_small


def _join(lowering: Lowering, groups: list[Group], stages: Sequence[Group], places: Sequence[int], last: int) -> None:
    """Puts one group of stages at the last of their places, and nothing at the others."""
    for place in places:
        groups[place] = groups[place]._replace(reads=[], writes=[])
    groups[last] = _joined(lowering, groups, stages)


def _joined(lowering: Lowering, groups: Sequence[Group], stages: Sequence[Group]) -> Group:
    """One group of stages: it reads what they read of others, and writes what others read of it."""
    written = {row for stage in stages for row in stage.writes}
    others = {lowering.views[operand].row for group in groups for operand in group.reads}
    reads = dict.fromkeys(o for stage in stages for o in stage.reads if lowering.views[o].row not in written)
    writes = [row for stage in stages for row in stage.writes if row in lowering.kept or row in others]
    rows = [row for stage in stages for row in stage.rows]
    shape = next(stage.shape for stage in reversed(stages) if not stage.crosses)
    why = "its stages run together, a block of rows at a time"
    return Group(shape, rows, list(reads), writes, None, why, stages=tuple(stages))
