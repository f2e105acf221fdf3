"""Values that are worked out again where they are read: what they are made of is stored anyway.

A large elementwise row that only later loops read need not be stored, if they can work it out from values that are
stored for others: it costs little, and saves writing it, reading it, and its memory for all the time in between. What
is one number for each row of the loop, a mean say, is stored for it, which is little.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from topos.backend.native.costs import is_dear
from topos.backend.native.drafts import MOST_ROWS, Draft
from topos.backend.native.placement import LARGE, Placement
from topos.backend.native.readers import Readers
from topos.backend.native.views import View, dense
from topos.graph.spec import Spec
from topos.op import Elementwise

MOST_AGAIN = 8
"""Rows that are worked out again for one value."""


class _Again(NamedTuple):
    """The rows that make a value, in order, and the operands that they read in memory."""

    rows: list[int]
    leaves: set[int]


class Recomputing:
    """Looks at the large rows of the loops, the latest first; adds rows to the spec and to the drafts."""

    def __init__(
        self, placement: Placement, spec: Spec, views: dict[int, View], kept: Collection[int], readers: Readers
    ) -> None:
        self._placement, self._spec, self._views, self._kept = placement, spec, views, kept
        self._readers = readers

    def run(self) -> None:
        """Every row that gains by it."""
        for at in reversed(range(len(self._placement.drafts))):
            for row in reversed(list(self._placement.drafts[at].rows)):
                again = self._again(row, at)
                if again is not None:
                    self._repeat(row, at, again)

    # which
    def _again(self, row: int, at: int) -> _Again | None:
        others = self._readers.homes(row) - {at}
        if not others or row in self._kept or self._spec.rows[row].shape.volume < LARGE:
            return None
        if not all(self._takes(self._placement.drafts[home], row) for home in others):
            return None
        again = self._made_of(row, at)
        if again is None or not all(self._has_room(home, again) for home in others):
            return None
        return again if self._reads_less(again, others) else None

    def _takes(self, draft: Draft, row: int) -> bool:
        """Whether a draft is a loop over a row's shape, and reads it at the places where it stands."""
        if not draft.is_loop or draft.shape != self._spec.rows[row].shape:
            return False
        own = dense(row, draft.shape)
        return all(self._views[operand] == own for operand in self._operands(draft) if self._base(operand) == row)

    def _made_of(self, row: int, at: int) -> _Again | None:
        """What makes a row, down to what is stored anyway; `None` where that is dear or too much."""
        rows, leaves, waiting = {row}, set[int](), [row]
        while waiting:
            current = waiting.pop()
            if not isinstance(self._spec.rows[current].opcode, Elementwise) or is_dear(self._spec, current):
                return None
            for operand in self._spec.rows[current].operands:
                base = self._base(operand)
                if base is None or base in rows:
                    continue
                is_across = base in self._placement.across
                if self._placement.home.get(base) != at or self._is_stored(base, at) or is_across:
                    leaves.add(operand)
                    continue
                if self._views[operand] != dense(base, self._spec.rows[row].shape):
                    return None
                rows.add(base)
                waiting.append(base)
        order = [each for each in self._placement.drafts[at].rows if each in rows]
        guarded = any(self._views[leaf].guards for leaf in leaves)
        return None if len(rows) > MOST_AGAIN or guarded else _Again(order, leaves)

    def _is_stored(self, row: int, at: int) -> bool:
        return row in self._kept or bool(self._readers.homes(row) - {at})

    def _has_room(self, home: int, again: _Again) -> bool:
        draft = self._placement.drafts[home]
        mixes = {self._placement.home.get(self._views[leaf].row, -1) for leaf in again.leaves}
        return len(draft.rows) + len(again.rows) <= MOST_ROWS and max(mixes, default=-1) < home

    def _reads_less(self, again: _Again, others: Collection[int]) -> bool:
        """Whether the readers, all together, read no more than the row itself was."""
        further = 0
        for home in others:
            read = {self._views[operand].row for operand in self._operands(self._placement.drafts[home])}
            fresh = {self._views[leaf].row for leaf in again.leaves} - read
            further += sum(self._spec.rows[base].shape.volume >= LARGE for base in fresh)
        return further <= len(others)

    # how
    def _repeat(self, row: int, at: int, again: _Again) -> None:
        for home in sorted(self._readers.homes(row) - {at}):
            copies: dict[int, int] = {}
            for each in again.rows:
                copies[each] = self._copied(each, copies, home)
            draft = self._placement.drafts[home]
            for reader in self._readers.of(row) & {*draft.rows}:
                self._redirect(reader, row, copies[row])
            draft.rows[:0] = copies.values()

    def _copied(self, row: int, copies: Mapping[int, int], home: int) -> int:
        recorded = self._spec.rows[row]
        operands = [copies.get(base, o) if (base := self._base(o)) is not None else o for o in recorded.operands]
        self._spec.rows.append(recorded._replace(operands=tuple(operands), origin=row))
        copy = len(self._spec.rows) - 1
        self._views[copy] = dense(copy, recorded.shape)
        self._placement.home[copy] = home
        self._readers.meet(copy)
        return copy

    def _redirect(self, reader: int, row: int, copy: int) -> None:
        recorded = self._spec.rows[reader]
        operands = tuple(copy if self._base(operand) == row else operand for operand in recorded.operands)
        self._readers.leave(reader)
        self._spec.rows[reader] = recorded._replace(operands=operands)
        self._readers.meet(reader)

    def _base(self, operand: int) -> int | None:
        view = self._views.get(operand)
        return None if view is None else view.row

    def _operands(self, draft: Draft) -> Iterator[int]:
        return (operand for operand in draft.operands(self._spec) if operand in self._views)
