"""A copy that only reorders what a product computed is done by the product: it stores its results in that order."""

from __future__ import annotations

from collections.abc import Sequence

from topos.backend.native.groups import Group, Lowering
from topos.backend.native.views import View, dense_strides
from topos.op import MatMul, Movement


def with_destinations(lowering: Lowering, groups: Sequence[Group]) -> list[Group]:
    """The groups without such copies; the copied rows are then read where the product stores."""
    found = list(groups)
    for at, group in enumerate(groups):
        base = _reordered(lowering, group)
        if base is not None and _is_free(lowering, groups, base, at):
            _move(lowering, base, group.rows[0])
            found[at] = group._replace(writes=[])
    return [group for group in found if group.writes]


def _reordered(lowering: Lowering, group: Group) -> int | None:
    """The product's row of which a group is a copy in another order, every number of it once."""
    (row, *others), recorded = group.rows, lowering.spec.rows[group.rows[0]]
    if others or row in lowering.kept or not isinstance(recorded.opcode, Movement):
        return None
    (operand,) = recorded.operands
    if operand in lowering.constants or lowering.is_one_hot(operand):
        return None
    view = lowering.views[operand]
    return view.row if not view.guards and _steps(lowering, view) is not None else None


def _steps(lowering: Lowering, view: View) -> list[int] | None:
    """The steps along a buffer's axes when its numbers lie in the order of a view; `None` where its axes are others."""
    own = lowering.spec.rows[view.row].shape
    if view.offset or view.shape.volume != own.volume or not own.volume or not lowering.views[view.row].is_dense():
        return None
    walked = zip(view.shape, view.strides, dense_strides(view.shape), strict=True)
    places = {(extent, old): new for extent, old, new in walked if extent != 1}
    axes = list(zip(own, dense_strides(own), strict=True))
    if any(axis not in places for axis in axes if axis[0] != 1) or len(places) != sum(axis[0] != 1 for axis in axes):
        return None
    return [places.get(axis, 0) for axis in axes]


def _is_free(lowering: Lowering, groups: Sequence[Group], base: int, reader: int) -> bool:
    """Whether a product's row is read by one group alone, and that is what its group stores."""
    home = next((group for group in groups if base in group.writes), None)
    if home is None or base in lowering.kept:
        return False
    last = home.stages[-1] if home.stages else home
    if not isinstance(lowering.spec.rows[last.rows[0]].opcode, MatMul) or base not in last.writes:
        return False
    reads = (o for at, group in enumerate(groups) if at != reader for o in group.reads)
    return all(lowering.views[operand].row != base for operand in reads)


def _move(lowering: Lowering, base: int, copy: int) -> None:
    """The buffer of a row has another order from now on, in which a copy of it is dense."""
    rows, views = lowering.spec.rows, lowering.views
    (operand,) = rows[copy].operands
    steps = _steps(lowering, views[operand])
    assert steps is not None
    for row, view in list(views.items()):
        if view.row == copy:
            views[row] = view._replace(row=base)
    views[base] = View(base, 0, rows[base].shape, tuple(steps))
