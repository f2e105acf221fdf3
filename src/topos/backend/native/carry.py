"""Where a step puts what it carries: into the source's own buffer as it is computed, or copied there at the end."""

from __future__ import annotations

from collections.abc import Mapping

from topos.backend.native.drafts import WHOLE
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.passes import Passes
from topos.op import Cast, Elementwise, MatMul
from topos.records import NamedTuple


class Carry(NamedTuple):
    """How the replacements of a step reach their sources.

    `in_place` names, for a row whose value is written over a source, that source; for one that is written where a copy
    of it would lie, that copy. `before` are the carried sources whose values of before are still wanted at the end:
    each is first copied to a buffer of its own, which is called `~source`. `after` are the copies that end a step, each
    from a buffer to a source.
    """

    in_place: dict[int, int]
    before: list[int]
    after: list[tuple[int, int]]


def carry_of(lowering: Lowering, carried: Mapping[int, int], results: frozenset[int]) -> Carry:
    """The replacement of each carried source; results show values of before."""
    in_place = dict(lowering.written_as)
    before = [source for source in carried if source in results or source in carried.values()]
    after: list[tuple[int, int]] = []
    last = lowering.last_reads()
    for source, following in carried.items():
        if following == source:
            continue
        if following in carried:
            after.append((~following, source))
        elif following in results or following in in_place or not _replaces(lowering, source, following, last):
            after.append((following, source))
        else:
            in_place[following] = source
    return Carry(in_place, before, after)


def _replaces(lowering: Lowering, source: int, following: int, last: Mapping[int, int]) -> bool:
    """Whether a row may be written over a source: nothing reads the source later, or elsewhere than it is written."""
    home = next((at for at, group in enumerate(lowering.groups) if following in group.writes), None)
    if home is None:
        return False
    if last.get(source, -1) < home:
        return True
    group = lowering.groups[home]
    return last[source] == home and (
        _reads_where_it_writes(lowering, group, source) or _reads_what_it_sums_to(lowering, group, source, following)
    )


def _reads_where_it_writes(lowering: Lowering, group: Group, source: int) -> bool:
    """Whether a group works place by place, and reads a source only at the place that it writes."""
    if group.stages:
        return False
    rows, first = lowering.spec.rows, group.rows[0]
    contracted = list(rows[first].operands) if isinstance(rows[first].opcode, MatMul) else []
    if not all(isinstance(rows[row].opcode, Elementwise | Cast) for row in group.rows[bool(contracted) :]):
        return False
    contracted += [leaf for prologue in group.prologues.values() for leaf in prologue.leaves]
    if source in {lowering.view(operand).row for operand in contracted}:
        return False
    views = [lowering.views[operand] for operand in group.reads]
    return all(view.is_dense() and view.shape == group.shape for view in views if view.row == source)


def _reads_what_it_sums_to(lowering: Lowering, group: Group, source: int, following: int) -> bool:
    """Whether a group reads a source, of one number for each row, only to replace it once that row has been summed."""
    if group.stages or group.axis is None or group.axis == WHOLE or not lowering.is_across(following):
        return False
    rows, views = lowering.spec.rows, lowering.views
    reading = [
        (row, operand)
        for row in group.rows
        for operand in rows[row].operands
        if operand not in lowering.constants and views[operand].row == source
    ]
    if len({operand for _, operand in reading}) > 1 or not all(lowering.is_across(row) for row, _ in reading):
        return False
    passes = Passes(lowering, group)
    is_read_in_place = all(
        views[operand].is_dense() and views[operand].shape == rows[following].shape for _, operand in reading
    )
    return is_read_in_place and passes.count == passes.stage[following] == 1
