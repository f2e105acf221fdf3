"""Folds that work out what they fold: windows that elementwise rows make, or another fold, are never stored.

A fold reads every number of its operand once, so that it may as well work it out there: the gradient of a pool, say,
whose part of each window is a mask times a number. A fold that only another one reads is worked out in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from topos.backend.native.costs import is_dear
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.views import dense
from topos.op import Cast, Elementwise, Fold

MOST_WRITTEN_OUT = 1 << 10
"""Rows times offsets of the windows, which are written one by one: of more, the text takes too long to compile."""


def with_worked_out(lowering: Lowering, groups: Sequence[Group]) -> list[Group]:
    """The groups, without those that are worked out by the fold that alone reads them."""
    found = list(groups)
    for at, group in enumerate(groups):
        if not _is_fold(lowering, group) or len(group.rows) > 1:
            continue
        before = _before(lowering, found, at)
        if before is None or not _is_known(lowering, [*found[before].rows, *group.rows]):
            continue
        first = found[before]
        found[at] = group._replace(rows=[*first.rows, *group.rows], reads=first.reads, why=WHY)
        found[before] = first._replace(reads=[], writes=[])
    return [group for group in found if group.writes]


WHY = "its windows are worked out where they are folded"


def _is_fold(lowering: Lowering, group: Group) -> bool:
    """Whether a group is a fold, with what it works out or without."""
    return bool(group.writes) and not group.stages and isinstance(lowering.spec.rows[group.rows[-1]].opcode, Fold)


def _before(lowering: Lowering, groups: Sequence[Group], at: int) -> int | None:
    """The group whose only result a fold alone reads, place by place."""
    (operand,) = lowering.spec.rows[groups[at].rows[0]].operands
    shape, view = lowering.spec.rows[operand].shape, lowering.views.get(operand)
    if view is None or view != dense(view.row, shape) or view.row in lowering.kept:
        return None
    home = next((before for before, group in enumerate(groups[:at]) if group.writes == [view.row]), None)
    if home is None or lowering.views[view.row] != view:
        return None
    readers = (o for other, group in enumerate(groups) if other != at for o in group.reads)
    if any(lowering.views[other].row == view.row for other in readers if other in lowering.views):
        return None
    return home if _is_fold(lowering, groups[home]) or _is_elementwise(lowering, groups[home]) else None


def _is_elementwise(lowering: Lowering, group: Group) -> bool:
    """Whether a group is cheap elementwise rows of one shape."""
    rows = [lowering.spec.rows[row] for row in group.rows]
    if group.axis is not None or group.stages or any(is_dear(lowering.spec, row) for row in group.rows):
        return False
    return all(isinstance(row.opcode, Elementwise | Cast) and row.shape == group.shape for row in rows)


def _is_known(lowering: Lowering, rows: Sequence[int]) -> bool:
    """Whether all is read at the places of the windows, as numbers in memory, and there are not too many offsets."""
    spec, views = lowering.spec, lowering.views
    folds = [row for row in rows if isinstance(spec.rows[row].opcode, Fold)]
    shape, inside = spec.rows[spec.rows[folds[0]].operands[0]].shape, set(rows)
    for operand in (operand for row in rows[: rows.index(folds[0]) + 1] for operand in spec.rows[row].operands):
        view = views.get(operand)
        if view is None or (view.row in inside and view == dense(view.row, shape)):
            continue
        if view.row in inside or view.shape != shape or view.guards or view.grid is not None:
            return False
        if spec.is_selection(view.row):
            return False
    offsets = prod(_opcode(lowering, fold).size for fold in folds)
    return offsets * len(rows) <= MOST_WRITTEN_OUT


def _opcode(lowering: Lowering, row: int) -> Fold:
    opcode = lowering.spec.rows[row].opcode
    assert isinstance(opcode, Fold)
    return opcode
