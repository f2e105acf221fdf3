"""Windows that are worked out where they are read: what is made of a picture, place by place, is never stored.

A fold reads every number of its operand once, so that it may as well work it out there: the gradient of a pool, say,
whose part of each window is a mask times a number. A fold that only another one reads is worked out in the same way,
and one of which only some places are read, by elementwise rows. The largest or the sum of a few numbers costs little
too: it is worked out again by each of its readers, where those take less time for it than to read what was stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from topos.backend.native.costs import is_dear
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.line_counts import LANES, MOST_WRITTEN_OUT, counts
from topos.backend.native.lines import inner
from topos.backend.native.near import MOST_NEAR, lanes_axis
from topos.backend.native.recomputing import WRITTEN
from topos.op import Cast, Elementwise, Fold, MaxAlong, SumAlong

MOVED = 3
"""What a number that is written or read counts for, in rows that are worked out for it."""
MOST_TERMS = 16
"""Terms of a reduction that is worked out by each of its readers."""
WHY = "its windows are worked out where they are folded"


def with_worked_out(lowering: Lowering, groups: Sequence[Group]) -> list[Group]:
    """The groups, without those that are worked out by the ones that read them."""
    found = list(groups)
    homes = _homes(lowering, found)
    for at in reversed(range(len(found))):
        parts = _parts(lowering, found[at])
        some = [*found[:at], *parts, *found[at + 1 :]]
        fewer = _without(lowering, some, at + 1, _homes(lowering, some)) if parts else None
        found, homes = (found, homes) if fewer is None else (fewer, _homes(lowering, fewer))
        fewer = _without(lowering, found, at, homes)
        found, homes = (found, homes) if fewer is None else (fewer, _homes(lowering, fewer))
    return [_beside_one_another(lowering, group) for group in found if group.writes]


def _homes(lowering: Lowering, groups: Sequence[Group]) -> dict[int, list[int]]:
    """For each buffer the groups that read it."""
    found: dict[int, list[int]] = {}
    for home, group in enumerate(groups):
        for base in {lowering.views[operand].row for operand in group.reads}:
            found.setdefault(base, []).append(home)
    return found


def _without(
    lowering: Lowering, groups: list[Group], at: int, homes: Mapping[int, Sequence[int]]
) -> list[Group] | None:
    """The groups with one worked out by its readers; `None` where it had better be stored, or where others want it."""
    given = groups[at]
    readers = sorted({home for row in given.writes for home in homes.get(row, ())})
    if not _is_made_of_lines(lowering, given) or any(row in lowering.kept for row in given.writes):
        return None
    if any(row in lowering.written_as for row in given.writes):
        return None
    taken: dict[int, Group] = {}
    for home in readers:
        group = _taken(lowering, groups[home], given)
        if group is None:
            return None
        taken[home] = group
    if not taken or not _is_less(lowering, groups, at, taken):
        return None
    found = [taken.get(home, group) for home, group in enumerate(groups)]
    found[at] = given._replace(reads=[], writes=[])
    return found


def _parts(lowering: Lowering, group: Group) -> list[Group]:
    """A loop of a few terms as two: what is one number for each of its rows, and what it makes of that; or nothing."""
    spec, views = lowering.spec, lowering.views
    each = [row for row in group.writes if not lowering.is_across(row)]
    if group.in_lines or group.axis is None or group.axis < 0 or not each:
        return []
    if not _holds(lowering, group.rows, MaxAlong, SumAlong) or group.shape[group.axis] > MOST_TERMS:
        return []
    places = [row for row in group.rows if not lowering.is_across(row)]
    rows = [row for row in lowering.wanted(group.rows, each) if row in places]
    reads = _outside(lowering, rows)
    bases = {views[operand].row for operand in reads}
    across = [row for row in group.rows if lowering.is_across(row) and (row in group.writes or row in bases)]
    if not across:
        return []
    needed = lowering.wanted(group.rows, across)
    first = group._replace(rows=needed, reads=_outside(lowering, needed), writes=across)
    return [first, group._replace(shape=spec.rows[rows[-1]].shape, rows=rows, reads=reads, writes=each, axis=None)]


def _outside(lowering: Lowering, rows: Sequence[int]) -> list[int]:
    """What rows read that is none of them."""
    operands = dict.fromkeys(operand for row in rows for operand in lowering.spec.rows[row].operands)
    return [
        operand for operand in operands if operand not in lowering.constants and lowering.views[operand].row not in rows
    ]


def _beside_one_another(lowering: Lowering, group: Group) -> Group:
    """A group with its rows in the lanes, not their few terms, where the rows lie as near to one another."""
    last = group.shape.rank - 1
    if group.axis is None or group.axis != last or not _is_made_of_lines(lowering, group):
        return group
    shape = lowering.spec.rows[group.writes[0]].shape
    taken = group._replace(shape=shape, axis=None, in_lines=True)
    if shape == group.shape or max(shape, default=1) == 1:
        return group
    views = [lowering.views[operand] for operand in group.reads]
    steps = [view.strides[lanes_axis(shape)] for view in views if view.shape == group.shape]
    is_near = all(0 < step < MOST_NEAR for step in steps)
    return taken if is_near and _is_known(lowering, taken) else group


def _is_made_of_lines(lowering: Lowering, group: Group) -> bool:
    """Whether a group is elementwise rows, folds and reductions of a few terms, and all that it stores has one shape.

    Elementary functions are none of it: a fold leaves lanes of theirs empty.
    """
    spec = lowering.spec
    shapes = {spec.rows[row].shape for row in group.writes}
    if group.stages or group.prologues or len(shapes) != 1 or not all(shape.rank for shape in shapes):
        return False
    for row in group.rows:
        recorded = spec.rows[row]
        if (
            is_dear(spec, row)
            or not recorded.shape.volume
            or not isinstance(recorded.opcode, Elementwise | Cast | Fold | MaxAlong | SumAlong)
        ):
            return False
        if isinstance(recorded.opcode, MaxAlong | SumAlong):
            extent = spec.rows[recorded.operands[0]].shape[recorded.opcode.axis]
            if not 0 < extent <= MOST_TERMS:
                return False
    return True


def _holds(lowering: Lowering, rows: Iterable[int], *kinds: type) -> bool:
    return any(isinstance(lowering.spec.rows[row].opcode, kinds) for row in rows)


def _taken(lowering: Lowering, group: Group, given: Group) -> Group | None:
    """A group with what it reads of another one worked out in it; `None` where it cannot be."""
    if not _is_made_of_lines(lowering, group):
        return None
    folds, reduces = (_holds(lowering, group.rows, *kinds) for kinds in ((Fold,), (MaxAlong, SumAlong)))
    is_fold, is_reduction = (_holds(lowering, given.rows, *kinds) for kinds in ((Fold,), (MaxAlong, SumAlong)))
    if not folds and (reduces and (is_fold or not is_reduction) or not reduces and not is_fold):
        return None
    views = lowering.views
    wanted = lowering.wanted(given.rows, {views[operand].row for operand in group.reads} & {*given.rows})
    rows = [*wanted, *(row for row in group.rows if row not in wanted)]
    shape = lowering.spec.rows[group.writes[0]].shape
    why = WHY if folds or is_fold else given.why
    taken = group._replace(shape=shape, rows=rows, reads=_outside(lowering, rows), axis=None, why=why, in_lines=True)
    return taken if _is_known(lowering, taken) else None


def _is_known(lowering: Lowering, group: Group) -> bool:
    """Whether all is read axis by axis, or as numbers in memory, and not too much is written out."""
    spec, views = lowering.spec, lowering.views
    for row in group.rows:
        for operand in spec.rows[row].operands:
            if operand in lowering.constants:
                continue
            view = views[operand]
            if view.guards or view.grid is not None or spec.is_selection(view.row):
                return False
            if view.shape != spec.rows[operand].shape:
                return False
            if view.row in group.rows and inner(view, spec.rows[view.row].shape) is None:
                return False
    return counts(lowering, group.rows, group.writes, group.shape).text <= MOST_WRITTEN_OUT


def _is_less(lowering: Lowering, groups: Sequence[Group], at: int, taken: Mapping[int, Group]) -> bool:
    """Whether the readers work out what one group stores, in less time than it takes to store and to read it.

    That is always so of what a fold alone reads, each number once.
    """
    spec, given = lowering.spec, groups[at]
    if len(taken) == 1 and not _holds(lowering, given.rows, MaxAlong, SumAlong):
        (home,) = taken
        reads = [operand for operand in groups[home].reads if lowering.views[operand].row in given.writes]
        if all(
            spec.rows[operand].shape.volume <= spec.rows[lowering.views[operand].row].shape.volume for operand in reads
        ):
            return True
    stored = sum(spec.rows[row].shape.volume for row in given.writes) * (WRITTEN + len(taken))
    stored += sum(_read(lowering, given).values())
    before, after = _work(lowering, given), 0.0
    for home, group in taken.items():
        before += _work(lowering, groups[home])
        after += _work(lowering, group)
        known = _read(lowering, groups[home])
        stored -= sum(volume for base, volume in _read(lowering, group).items() if base not in known)
    return after <= before + MOVED * stored


def _work(lowering: Lowering, group: Group) -> float:
    """What a group works out and reads, in rows for each number: once each, or as often as a line needs it."""
    if not group.in_lines:
        rows = lowering.spec.rows
        return sum(rows[row].shape.volume for row in (*group.rows, *group.reads))
    count = counts(lowering, group.rows, group.writes, group.shape)
    return LANES * count.work / count.places * group.shape.volume


def _read(lowering: Lowering, group: Group) -> dict[int, int]:
    """The buffers that a group reads, each with how many numbers it has."""
    bases = {lowering.views[operand].row for operand in group.reads}
    return {base: lowering.spec.rows[base].shape.volume for base in bases}
