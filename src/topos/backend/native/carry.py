"""Where a step puts what it carries: into the source's own buffer as it is computed, or copied there at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from topos.backend.native.groups import Group, Lowering
from topos.op import Cast, Elementwise, MatMul


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
    return last[source] == home and _reads_where_it_writes(lowering, lowering.groups[home], source)


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
