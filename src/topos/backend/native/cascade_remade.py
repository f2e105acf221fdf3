"""What a cascade would have to keep for a later one, computed again by that one: the same bits, and nothing is kept.

The gradient of an attention wants its probabilities. Where they are large, making them again costs less than memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from topos.backend.native.cascade_crossing import Crossing
from topos.backend.native.groups import Group, Lowering
from topos.op import MatMul

WORTH_BYTES = 1 << 24
"""What is kept at least, or it is left where it is."""


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
    passed = {row for stage in before for row in stage.writes if row in earlier.writes}
    read = {lowering.views[operand].row for stage in stages for operand in stage.reads}
    size = sum(lowering.spec.rows[row].shape.volume * lowering.spec.element_of(row).dtype.itemsize for row in passed)
    if not passed & read or passed & lowering.kept or size < WORTH_BYTES or before[0].shape != stages[0].shape:
        return None
    every = [*before, *stages]
    if not _is_cut_alike(lowering, every):
        return None
    crossing = Crossing(lowering, groups, every, last).products()
    joined = {id(stage) for stage in (*stages, *(groups[other] for other in crossing))}
    for place, group in enumerate(groups):
        others = {lowering.views[operand].row for operand in group.reads}
        if place != at and id(group) not in joined and passed & others:
            return None
    wanted = {lowering.views[operand].row for stage in earlier.stages for operand in stage.reads}
    left = [
        stage._replace(writes=[row for row in stage.writes if row not in passed or row in wanted]) for stage in before
    ]
    writes = [row for row in earlier.writes if row not in passed]
    return Remade(every, at, earlier._replace(writes=writes, stages=(*left, end)))


def _is_cut_alike(lowering: Lowering, stages: Sequence[Group]) -> bool:
    """Whether the right operand of each product is nothing else."""
    spec = lowering.spec
    operands = [operand for stage in stages for row in stage.rows for operand in spec.rows[row].operands]
    rights = [spec.rows[s.rows[0]].operands[1] for s in stages if isinstance(spec.rows[s.rows[0]].opcode, MatMul)]
    return all(operands.count(right) == 1 for right in rights)
