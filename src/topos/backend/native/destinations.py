"""A copy of what a group computes, alone or in another order, is stored by that group: there is nothing to copy.

Movements are such copies, and so is what adds a zero to a value that is never `-0.0`: a gradient, say. A product may
store its results in any order of its axes; other groups store theirs in row-major order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from topos.backend.native.groups import Group, Lowering
from topos.backend.native.views import View, dense_strides
from topos.op import MatMul, Movement, Reshape
from topos.records import NamedTuple
from topos.shape import Shape


def with_destinations(lowering: Lowering, groups: Sequence[Group], results: Collection[int]) -> list[Group]:
    """The groups without such copies; `results` are rows that may have a copy's buffer for their own."""
    found = list(groups)
    for at, group in enumerate(groups):
        for row in group.rows if group.axis is None and not group.stages else ():
            copied = _copy(lowering, row)
            if copied is not None and copied.is_free(groups, at, results):
                copied.leave_out(groups, results)
                found[at] = _without(lowering, found[at], copied)
    return [group for group in found if group.writes]


def _without(lowering: Lowering, group: Group, copied: _Copy) -> Group:
    """What is left of a group: it reads the row, under whatever name, where it did compute it."""
    rows = [row for row in group.rows if row != copied.row]
    operands = dict.fromkeys(operand for row in rows for operand in lowering.spec.rows[row].operands)
    computed = [operand for operand in operands if operand not in lowering.constants]
    computed = [operand for operand in computed if lowering.views[operand].row in (copied.row, copied.base)]
    wanted = operands.keys() | {leaf for prologue in group.prologues.values() for leaf in prologue.leaves}
    reads = [operand for operand in dict.fromkeys((*group.reads, *computed)) if operand in wanted]
    return group._replace(rows=rows, reads=reads, writes=[row for row in group.writes if row != copied.row])


def _copy(lowering: Lowering, row: int) -> _Copy | None:
    """A row, where it is the copy of another one's buffer, all of it."""
    recorded, operand = lowering.spec.rows[row], lowering.copied(row)
    if operand is None or operand in lowering.constants:
        return None
    view = lowering.views[operand]
    if isinstance(recorded.opcode, Movement) and not isinstance(recorded.opcode, Reshape):
        view = lowering.moved(row) or view  # a reshape keeps the row-major order
    if lowering.spec.element_of(view.row) is not lowering.spec.element_of(row):
        return None
    if view.guards or lowering.is_one_hot(operand) or recorded.shape.volume != view.shape.volume:
        return None  # among them what is spread to no place at all: a copy of nothing
    steps = _steps(view, lowering.views[view.row], lowering.spec.rows[view.row].shape)
    return None if steps is None else _Copy(lowering, row, view.row, steps)


def _steps(view: View, base: View, own: Shape) -> tuple[int, ...] | None:
    """The steps along the base's axes when it lies in the copy's order; `None` where the copied axes are others."""
    if view.offset or view.shape.volume != own.volume or not own.volume or not base.is_dense():
        return None
    if view.is_dense():  # whatever the axes
        return dense_strides(own)
    walked = zip(view.shape, view.strides, dense_strides(view.shape), strict=True)
    places = {(extent, old): new for extent, old, new in walked if extent != 1}
    axes = list(zip(own, dense_strides(own), strict=True))
    if {axis for axis in axes if axis[0] != 1} != places.keys():
        return None
    return tuple(places.get(axis, old) for axis, old in zip(axes, dense_strides(own), strict=True))


class _Copy(NamedTuple):
    """A row as the copy of a base, which lies in the copy's order where its axes have these steps."""

    lowering: Lowering
    row: int
    base: int
    steps: tuple[int, ...]

    def is_free(self, groups: Sequence[Group], at: int, results: Collection[int]) -> bool:
        """Whether the base's group can store it in the copy's order, and nobody wants it in another one."""
        lowering = self.lowering
        home = next((group for group in groups if self.base in group.writes), None)
        if home is None or home is groups[at] or self.base in {*lowering.kept, *lowering.written_as}:
            return False
        if self.row not in groups[at].writes:
            return False
        if self.row in lowering.kept and self.row not in results:
            return False
        if self.steps == dense_strides(lowering.spec.rows[self.base].shape):
            return True
        if len(groups[at].rows) > 1:
            return False
        reads = (operand for other, group in enumerate(groups) if other != at for operand in group.reads)
        return self._is_product(home) and all(lowering.views[operand].row != self.base for operand in reads)

    def _is_product(self, home: Group) -> bool:
        """Whether a product stores the base, or one among several stages of which none reads it."""
        stages = home.stages or (home,)
        stage = next(stage for stage in stages if self.base in stage.writes)
        inside = {self.lowering.views[operand].row for one in stages for operand in one.reads}
        return isinstance(self.lowering.spec.rows[stage.rows[0]].opcode, MatMul) and self.base not in inside

    def leave_out(self, groups: Sequence[Group], results: Collection[int]) -> None:
        """From now on the base is stored in the copy's order, and read there by who reads the copy."""
        lowering, base = self.lowering, self.base
        if self.row in results:
            lowering.written_as[base] = self.row
        else:
            packed = [prologue.leaves for group in groups for prologue in group.prologues.values()]
            for views in (lowering.views, *packed):
                for row, view in list(views.items()):
                    if view.row == self.row:
                        views[row] = view._replace(row=base)
        lowering.views[base] = View(base, 0, lowering.spec.rows[base].shape, self.steps)
