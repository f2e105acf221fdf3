"""A copy of what a group computes, alone or in another order, is stored by that group: there is nothing to copy.

A product may store its results in any order of its axes; other groups store theirs in row-major order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from topos.backend.native.groups import Group, Lowering
from topos.backend.native.views import View, dense_strides
from topos.op import MatMul, Movement, Reshape


def with_destinations(lowering: Lowering, groups: Sequence[Group], results: Collection[int]) -> list[Group]:
    """The groups without such copies; `results` are rows that may have a copy's buffer for their own."""
    found = list(groups)
    for at, group in enumerate(groups):
        copied = _Copy(lowering, groups, at)
        if copied.is_free(results):
            copied.leave_out(results)
            found[at] = group._replace(reads=[], writes=[])
    return [group for group in found if group.writes]


class _Copy:
    """A group, as the copy of a row that an earlier group stores."""

    def __init__(self, lowering: Lowering, groups: Sequence[Group], at: int) -> None:
        self.lowering, self.groups, self.at = lowering, groups, at
        self.row = groups[at].rows[0]
        self.base: int | None = None
        recorded = lowering.spec.rows[self.row]
        if isinstance(recorded.opcode, Movement):
            (operand,) = recorded.operands
            view = lowering.views[operand]
            if not isinstance(recorded.opcode, Reshape):  # which keeps the row-major order
                view = lowering.moved(self.row) or view
            self.base = None if view.guards or lowering.is_one_hot(operand) else view.row
            self.view = view

    def is_free(self, results: Collection[int]) -> bool:
        """Whether the base's group can store it in the copy's order, and nobody wants it in another one."""
        lowering = self.lowering
        home = next((group for group in self.groups if self.base in group.writes), None)
        if self.base is None or home is None or self.base in {*lowering.kept, *lowering.written_as}:
            return False
        steps = self._steps(self.base)
        if steps is None or (self.row in lowering.kept and self.row not in results):
            return False
        if steps == dense_strides(lowering.spec.rows[self.base].shape):
            return True
        reads = (operand for at, group in enumerate(self.groups) if at != self.at for operand in group.reads)
        return self._is_product(home) and all(lowering.views[operand].row != self.base for operand in reads)

    def _is_product(self, home: Group) -> bool:
        """Whether a product stores the base, or one among several stages of which none reads it."""
        stages = home.stages or (home,)
        stage = next(stage for stage in stages if self.base in stage.writes)
        inside = {self.lowering.views[operand].row for one in stages for operand in one.reads}
        return isinstance(self.lowering.spec.rows[stage.rows[0]].opcode, MatMul) and self.base not in inside

    def _steps(self, base: int) -> tuple[int, ...] | None:
        """The steps along the base's axes when it lies in the copy's order; `None` where the copied axes are others."""
        own, view = self.lowering.spec.rows[base].shape, self.view
        volume = self.lowering.spec.rows[self.row].shape.volume  # a spread to no place at all is a copy of nothing
        if view.offset or not view.shape.volume == own.volume == volume or not volume:
            return None
        if not self.lowering.views[base].is_dense():
            return None
        walked = zip(view.shape, view.strides, dense_strides(view.shape), strict=True)
        places = {(extent, old): new for extent, old, new in walked if extent != 1}
        axes = list(zip(own, dense_strides(own), strict=True))
        if {axis for axis in axes if axis[0] != 1} != places.keys():
            return None
        return tuple(places.get(axis, old) for axis, old in zip(axes, dense_strides(own), strict=True))

    def leave_out(self, results: Collection[int]) -> None:
        """From now on the base is stored in the copy's order, and read there by who reads the copy."""
        lowering, base = self.lowering, self.base
        assert base is not None
        steps = self._steps(base)
        assert steps is not None
        if self.row in results:
            lowering.written_as[base] = self.row
        else:
            for row, view in list(lowering.views.items()):
                if view.row == self.row:
                    lowering.views[row] = view._replace(row=base)
        lowering.views[base] = View(base, 0, lowering.spec.rows[base].shape, steps)
