"""What a cascade would have to keep for a later one, computed again by that one: the same bits, and little is kept.

The gradient of an attention wants its probabilities. They are made again from the same operands, and from the largest
score and the sum of each row, which are stored for it: one number for each row (FlashAttention, Dao et al. 2022,
section 3.1, keeps the same two).
"""

from __future__ import annotations

from collections.abc import Sequence

from topos.backend.native.cascade_crossing import Crossing
from topos.backend.native.groups import Group, Lowering
from topos.op import MatMul
from topos.op.reduction import AlongAxis
from topos.records import NamedTuple


class Remade(NamedTuple):
    """The stages with those of an earlier cascade before them; where that stands, and what is left of it."""

    stages: list[Group]
    at: int
    without: Group


def remade(lowering: Lowering, groups: Sequence[Group], stages: Sequence[Group], last: int) -> Remade | None:
    """The earlier stages whose values only these stages read, and products that may run with them."""
    for at, group in enumerate(groups[:last]):
        if group.stages and not any(stage.crosses for stage in group.stages):
            again = _again(lowering, groups, stages, at, last)
            if again is not None:
                return again
    return None


def _again(lowering: Lowering, groups: Sequence[Group], stages: Sequence[Group], at: int, last: int) -> Remade | None:
    earlier = groups[at]
    *before, end = earlier.stages
    passed = {row for stage in before for row in stage.writes if row in earlier.writes and not lowering.is_across(row)}
    read = {lowering.views[operand].row for stage in stages for operand in stage.reads}
    if not passed & read or passed & lowering.kept or before[0].shape != stages[0].shape:
        return None
    again = [stage for stage in (_resumed(lowering, stage) for stage in before) if stage.rows]
    every = [*again, *stages]
    if not _is_cut_alike(lowering, every):
        return None
    crossing = Crossing(lowering, groups, every, last).products()
    joined = {id(stage) for stage in (*stages, *(groups[other] for other in crossing))}
    for place, group in enumerate(groups):
        others = {lowering.views[operand].row for operand in group.reads}
        if place != at and id(group) not in joined and passed & others:
            return None
    wanted = {lowering.views[operand].row for stage in earlier.stages for operand in stage.reads}
    read_again = {lowering.views[operand].row for stage in again for operand in stage.reads}
    left, stored = [], list[int]()
    for stage in before:
        across = [row for row in stage.rows if row in read_again and lowering.is_across(row)]
        full = [row for row in stage.writes if row not in across and (row not in passed or row in wanted)]
        left.append(stage._replace(writes=[*across, *full]))
        stored += across
    writes = [*stored, *(row for row in earlier.writes if row not in passed and row not in stored)]
    return Remade(every, at, earlier._replace(writes=writes, stages=(*left, end)))


def _resumed(lowering: Lowering, stage: Group) -> Group:
    """A stage that reads what is one number for each row where that was stored, and works out the others again."""
    full = [row for row in stage.rows if not lowering.is_across(row)]
    rows = lowering.wanted(full, [row for row in stage.writes if row in full])
    if len(rows) == len(stage.rows) or any(isinstance(lowering.spec.rows[row].opcode, AlongAxis) for row in rows):
        return stage
    operands = [operand for row in rows for operand in lowering.spec.rows[row].operands]
    reads = [o for o in dict.fromkeys(operands) if o in lowering.views and lowering.views[o].row not in rows]
    return stage._replace(rows=rows, reads=reads, writes=[row for row in stage.writes if row in rows], axis=None)


def _is_cut_alike(lowering: Lowering, stages: Sequence[Group]) -> bool:
    """Whether the right operand of each product is nothing else."""
    spec = lowering.spec
    operands = [operand for stage in stages for row in stage.rows for operand in spec.rows[row].operands]
    rights = [spec.rows[s.rows[0]].operands[1] for s in stages if isinstance(spec.rows[s.rows[0]].opcode, MatMul)]
    return all(operands.count(right) == 1 for right in rights)
