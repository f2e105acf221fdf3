"""Folds that work out what they fold: windows that elementwise rows make, or another fold, are never stored.

A fold reads every number of its operand once, so that it may as well work it out there: the gradient of a pool, say,
whose part of each window is a mask times a number. A fold that only another one reads is worked out in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from topos.backend.native.costs import is_dear
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.near import UNROLLED, along_lanes, lanes_axis
from topos.backend.native.views import dense
from topos.op import Cast, Elementwise, Fold

MOST_WRITTEN_OUT = 1 << 9
"""Rows times offsets of the windows, which are written one by one: of more, the text takes too long to compile."""
WHY = "its windows are worked out where they are folded"


def with_worked_out(lowering: Lowering, groups: Sequence[Group]) -> list[Group]:
    """The groups, without those that are worked out by the fold that alone reads them."""
    found = list(groups)
    for at in range(len(found)):
        stages = _stages(lowering, found, at)
        while len(stages) > 1 and not _is_known(lowering, [row for stage in stages for row in found[stage].rows]):
            stages = stages[1:]
        if len(stages) > 1:
            rows = [row for stage in stages for row in found[stage].rows]
            reads = dict.fromkeys(operand for stage in stages for operand in found[stage].reads)
            outside = [operand for operand in reads if lowering.views[operand].row not in rows]
            found[at] = found[at]._replace(rows=rows, reads=outside, why=WHY)
            for stage in stages[:-1]:
                found[stage] = found[stage]._replace(reads=[], writes=[])
    return [group for group in found if group.writes]


def _stages(lowering: Lowering, groups: Sequence[Group], at: int) -> list[int]:
    """Where a fold stands, and before it the groups that it might work out: elementwise rows, a fold, or both."""
    stages = [at]
    if not _is_fold(lowering, groups[at]) or len(groups[at].rows) > 1:
        return stages
    before = _before(lowering, groups, at, groups[at].reads)
    if len(before) == 1 and _is_elementwise(lowering, groups[before[0]]):
        stages = [before[0], at]
        before = _before(lowering, groups, before[0], groups[before[0]].reads)
    folds = [home for home in before if _is_fold(lowering, groups[home])]
    return [*folds, *stages] if len(folds) == 1 else stages


def _is_fold(lowering: Lowering, group: Group) -> bool:
    """Whether a group is a fold, with what it works out or without."""
    return bool(group.writes) and not group.stages and isinstance(lowering.spec.rows[group.rows[-1]].opcode, Fold)


def _is_elementwise(lowering: Lowering, group: Group) -> bool:
    """Whether a group is cheap elementwise rows of one shape."""
    rows = [lowering.spec.rows[row] for row in group.rows]
    if group.axis is not None or group.stages or any(is_dear(lowering.spec, row) for row in group.rows):
        return False
    return all(isinstance(row.opcode, Elementwise | Cast) and row.shape == group.shape for row in rows)


def _before(lowering: Lowering, groups: Sequence[Group], at: int, operands: Sequence[int]) -> list[int]:
    """The groups whose only result a group alone reads."""
    views, found = lowering.views, []
    for base in dict.fromkeys(views[operand].row for operand in operands if operand in views):
        home = next((before for before, group in enumerate(groups[:at]) if group.writes == [base]), None)
        others = (operand for other, group in enumerate(groups) if other != at for operand in group.reads)
        is_read = any(operand in views and views[operand].row == base for operand in others)
        if home is not None and not is_read and base not in {*lowering.kept, *lowering.written_as}:
            found.append(home)
    return found


def _is_known(lowering: Lowering, rows: Sequence[int]) -> bool:
    """Whether all is read at the places where it stands, or as numbers in memory, and not too much is written out."""
    spec, views, inside = lowering.spec, lowering.views, set(rows)
    for row in rows:
        shape = spec.rows[row].shape
        if isinstance(spec.rows[row].opcode, Fold):
            shape = spec.rows[spec.rows[row].operands[0]].shape
        for view in (views[operand] for operand in spec.rows[row].operands if operand in views):
            if view.row in inside and (view != dense(view.row, shape) or spec.rows[view.row].shape != shape):
                return False
            if view.shape != shape or view.guards or view.grid is not None or spec.is_selection(view.row):
                return False
    opcodes, lanes = (spec.rows[row].opcode for row in reversed(rows)), lanes_axis(spec.rows[rows[-1]].shape)
    folds = along_lanes((opcode for opcode in opcodes if isinstance(opcode, Fold)), lanes)
    offsets = prod(fold.size for fold, is_along in folds if is_along or fold.size <= UNROLLED)
    return offsets * len(rows) <= MOST_WRITTEN_OUT
