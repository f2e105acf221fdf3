"""Loops that become part of others: those that only one later loop reads, and those that walk the same columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain

from topos.backend.native.drafts import MOST_ROWS, Draft
from topos.backend.native.placement import Placement
from topos.backend.native.readers import Readers
from topos.backend.native.recomputing import LEAST
from topos.backend.native.views import View
from topos.graph.spec import Spec
from topos.shape import Shape


def absorb(
    placement: Placement, spec: Spec, views: Mapping[int, View], kept: Collection[int], readers: Readers
) -> None:
    """Puts the rows of such a loop in front of those of its reader, where that can have them in registers."""
    for at, draft in enumerate(placement.drafts):
        if not draft.is_loop or draft.axis is None:
            continue
        operands = chain.from_iterable(spec.rows[row].operands for row in draft.rows)
        bases = {operand: views[operand].row for operand in operands if operand in views}
        for home in sorted({placement.home.get(base, at) for base in bases.values()} - {at}):
            taken = [operand for operand, base in bases.items() if placement.home.get(base) == home]
            if _is_free(placement.drafts[home], draft, kept, readers, {home, at}) and not any(
                placement.refused(operand, home, draft.shape) for operand in taken
            ):
                draft.rows[:0] = placement.drafts[home].rows
                placement.home.update(dict.fromkeys(placement.drafts[home].rows, at))
                placement.drafts[home].rows.clear()


def _is_free(given: Draft, taker: Draft, kept: Collection[int], readers: Readers, allowed: set[int]) -> bool:
    if not given.is_loop or given.axis is not None or given.shape != taker.shape or not taker.is_columns():
        return False
    return _has_room(given, taker) and all(row not in kept and readers.homes(row) <= allowed for row in given.rows)


def walk_once(placement: Placement, spec: Spec, views: Mapping[int, View]) -> None:
    """Columns of which two loops read the same large value are walked by the first, where it has all that they read."""
    walked: dict[tuple[int, Shape, int | None], int] = {}
    for at, draft in enumerate(placement.drafts):
        if not draft.rows or not draft.is_loop or not draft.is_columns():
            continue
        read = {views[operand].row for operand in draft.operands(spec) if operand in views}.difference(draft.rows)
        latest = max((placement.home.get(base, -1) for base in read), default=-1)
        large = sorted(base for base in read if spec.rows[base].shape.volume >= LEAST)
        others = (walked.get((base, draft.shape, draft.axis), -1) for base in large)
        home = next((other for other in others if other > latest and _has_room(placement.drafts[other], draft)), at)
        if home != at:
            placement.drafts[home].rows += draft.rows
            placement.home.update(dict.fromkeys(draft.rows, home))
            draft.rows.clear()
        walked |= {(base, draft.shape, draft.axis): home for base in large}


def _has_room(one: Draft, other: Draft) -> bool:
    return len(one.rows) + len(other.rows) <= MOST_ROWS
