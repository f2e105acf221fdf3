"""Values that are worked out again where they are read: what they are made of is stored anyway.

A large elementwise row that only later loops read need not be stored, if they can work it out from values that are
stored for others: it costs little, and saves writing it, reading it, and its memory for all the time in between. What
is one number for each row of the loop, a mean say, is stored for it, which is little. A row that was computed in the
order of a product's result is worked out again as it was recorded, where its readers walk it so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from topos.backend.native.costs import is_dear
from topos.backend.native.drafts import MOST_ROWS, Draft
from topos.backend.native.placement import LARGE, Placement
from topos.backend.native.readers import Readers
from topos.backend.native.views import View, dense
from topos.graph.spec import Row, Spec
from topos.op import Elementwise
from topos.shape import Shape

MOST_AGAIN = 8
"""Rows that are worked out again for one value."""
WRITTEN = 2
"""What writing a value counts for, in readings of it: a line is fetched before it is written, and written back."""


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
        self._copies: dict[int, list[int]] = {}

    def run(self) -> None:
        """Every row that gains by it."""
        for at in reversed(range(len(self._placement.drafts))):
            for row in reversed(list(self._placement.drafts[at].rows)):
                again = self._again(row, at)
                if again is not None:
                    self._repeat(row, at, again)
        for home, copies in self._copies.items():
            self._once(home, set(copies))

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
        """Whether a draft is a loop over a row's places, in order, and reads it at the places where it stands."""
        if not draft.is_loop or draft.shape.volume != self._spec.rows[row].shape.volume:
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
        if not all(self._has_form(row, draft.shape, again.rows) for row in again.rows):
            return False
        mixes = {self._placement.home.get(self._views[leaf].row, -1) for leaf in again.leaves}
        return len(draft.rows) + len(again.rows) <= MOST_ROWS and max(mixes, default=-1) < home

    def _has_form(self, row: int, shape: Shape, rows: Collection[int]) -> bool:
        """Whether a row is known as one of a shape, made of the others at their own places."""
        form = self._form(row, shape)
        if form is None:
            return False
        views = [self._views[operand] for operand in form.operands if operand in self._views]
        return all(not view.guards and (view.row not in rows or view == dense(view.row, shape)) for view in views)

    def _form(self, row: int, shape: Shape) -> Row | None:
        """A row as one of a shape: itself, or the one that it computes in another order; `None` where neither is."""
        recorded = self._spec.rows[row]
        if recorded.shape == shape or recorded.origin is None:
            return recorded if recorded.shape == shape else None
        origin = self._spec.rows[recorded.origin]
        is_same = origin.shape == shape and origin.opcode == recorded.opcode
        return origin if is_same and self._views.get(recorded.origin) == dense(row, shape) else None

    def _reads_less(self, again: _Again, others: Collection[int]) -> bool:
        """Whether the readers, all together, read no more than the row itself was written and read."""
        further = 0
        for home in others:
            read = {self._views[operand].row for operand in self._operands(self._placement.drafts[home])}
            fresh = {self._views[leaf].row for leaf in again.leaves} - read
            further += sum(self._spec.rows[base].shape.volume >= LARGE for base in fresh)
        return further <= len(others) + WRITTEN

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
            self._copies.setdefault(home, []).extend(copies.values())

    def _once(self, home: int, copies: Collection[int]) -> None:
        """Leaves one of the copies that several values needed of a row."""
        draft = self._placement.drafts[home]
        first: dict[tuple[int | None, tuple[int, ...]], int] = {}
        instead: dict[int, int] = {}
        for row in list(draft.rows):
            recorded = self._spec.rows[row]
            operands = tuple(instead.get(operand, operand) for operand in recorded.operands)
            if operands != recorded.operands:
                self._reread(row, operands)
            if row in copies and first.setdefault((recorded.origin, operands), row) != row:
                instead[row] = first[recorded.origin, operands]
                draft.rows.remove(row)
                self._readers.leave(row)

    def _copied(self, row: int, copies: Mapping[int, int], home: int) -> int:
        recorded = self._form(row, self._placement.drafts[home].shape)
        assert recorded is not None
        operands = [copies.get(base, o) if (base := self._base(o)) is not None else o for o in recorded.operands]
        self._spec.rows.append(recorded._replace(operands=tuple(operands), origin=row))
        copy = len(self._spec.rows) - 1
        self._views[copy] = dense(copy, recorded.shape)
        self._placement.home[copy] = home
        self._readers.meet(copy)
        return copy

    def _redirect(self, reader: int, row: int, copy: int) -> None:
        operands = self._spec.rows[reader].operands
        self._reread(reader, tuple(copy if self._base(operand) == row else operand for operand in operands))

    def _reread(self, reader: int, operands: tuple[int, ...]) -> None:
        self._readers.leave(reader)
        self._spec.rows[reader] = self._spec.rows[reader]._replace(operands=operands)
        self._readers.meet(reader)

    def _base(self, operand: int) -> int | None:
        view = self._views.get(operand)
        return None if view is None else view.row

    def _operands(self, draft: Draft) -> Iterator[int]:
        return (operand for operand in draft.operands(self._spec) if operand in self._views)
