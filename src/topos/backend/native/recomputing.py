"""Values that are worked out again where they are read: what they are made of is stored anyway.

An elementwise row that only later loops read need not be stored, if they can work it out from values that are
stored for others: it costs little, and saves writing it, reading it, and its memory for all the time in between. What
is one number for each row of the loop, a mean say, is stored for it, which is little. Several rows of one loop or
product may be made of one value that is stored in their place. A row that was computed in the order of a product's
result is worked out again as it was recorded, where its readers walk it so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set

from topos.backend.native.costs import is_dear
from topos.backend.native.drafts import MOST_ROWS, Draft
from topos.backend.native.placement import Placement
from topos.backend.native.readers import Readers
from topos.backend.native.views import View, dense
from topos.graph.spec import Row, Spec
from topos.op import Elementwise
from topos.records import NamedTuple
from topos.shape import Shape

LEAST = 1 << 5
"""Numbers of a row that is not stored, or not read twice: fewer are a register or two, which cost nothing."""
MOST_AGAIN = 8
"""Rows that are worked out again for one reader."""
WRITTEN = 2
"""What writing a value counts for, in readings of it: a line is fetched before it is written, and written back."""


class _Again(NamedTuple):
    """The rows that make what a draft reads, in order, and the operands that they read in memory."""

    rows: list[int]
    leaves: set[int]


class Recomputing:
    """Looks at the rows of loops and products, the latest first; adds rows to the spec and to the drafts."""

    def __init__(
        self, placement: Placement, spec: Spec, views: dict[int, View], kept: Collection[int], readers: Readers
    ) -> None:
        self._placement, self._spec, self._views, self._kept = placement, spec, views, kept
        self._readers = readers
        self._copies: dict[int, list[int]] = {}

    def run(self) -> None:
        """Each row that gains by it, then what is left of a draft, if all of that together does."""
        for at in reversed(range(len(self._placement.drafts))):
            for row in reversed(list(self._placement.drafts[at].rows)):
                self._try([row], at)
            self._try(self._placement.drafts[at].rows, at)
        for home, copies in self._copies.items():
            self._once(home, set(copies))

    def _try(self, rows: Iterable[int], at: int) -> None:
        wanted = frozenset(row for row in rows if self._may_go(row, at))
        again = self._again(wanted, at)
        if again:
            self._repeat(wanted, again)
            self._leave(at)

    # which
    def _may_go(self, row: int, at: int) -> bool:
        """Whether a row is one of which the readers may work out the value."""
        others = self._readers.homes(row) - {at}
        if not others or row in self._kept or self._volume(row) < LEAST or not self._is_cheap(row):
            return False
        return all(self._takes(self._placement.drafts[home], row) for home in others)

    def _is_cheap(self, row: int) -> bool:
        return isinstance(self._spec.rows[row].opcode, Elementwise) and not is_dear(self._spec, row)

    def _takes(self, draft: Draft, row: int) -> bool:
        """Whether a draft is a loop over a row's places, in order, and reads it at the places where it stands."""
        if not draft.is_loop or draft.shape.volume != self._volume(row):
            return False
        own = dense(row, draft.shape)
        return all(self._views[operand] == own for operand in self._operands(draft) if self._base(operand) == row)

    def _again(self, wanted: Set[int], at: int) -> Mapping[int, _Again]:
        """What each reader of some rows works out again; nothing where one of them cannot, or it gains nothing."""
        found = {}
        for home in sorted({home for row in wanted for home in self._readers.homes(row)} - {at}):
            again = self._made_of({row for row in wanted if home in self._readers.homes(row)}, wanted, at)
            if again is None or not self._has_room(home, again):
                return {}
            found[home] = again
        return found if self._reads_less(wanted, found, at) else {}

    def _made_of(self, rows: Set[int], wanted: Set[int], at: int) -> _Again | None:
        """What makes some rows, down to what is stored instead of those wanted; `None` where that is too much."""
        found, leaves, waiting = set(rows), set[int](), list(rows)
        while waiting:
            current = waiting.pop()
            for operand in self._spec.rows[current].operands:
                base = self._base(operand)
                if base is None or base in found:
                    continue
                is_inside = self._placement.home.get(base) == at and base not in self._placement.across
                if not is_inside or not self._is_cheap(base) or (base not in wanted and self._is_stored(base, at)):
                    leaves.add(operand)
                    continue
                if self._views[operand] != dense(base, self._spec.rows[current].shape):
                    return None
                found.add(base)
                waiting.append(base)
        order = [each for each in self._placement.drafts[at].rows if each in found]
        guarded = any(self._views[leaf].guards for leaf in leaves)
        return None if len(order) > MOST_AGAIN or guarded else _Again(order, leaves)

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

    def _reads_less(self, wanted: Set[int], found: Mapping[int, _Again], at: int) -> bool:
        """Whether the readers, all together, read no more than the rows were written and read.

        It has to be less where something is stored instead. Counted in the least of the rows: what is one number for
        each row of a loop is nothing.
        """
        size = min((self._volume(row) for row in wanted), default=1)
        counts = {base: self._volume(base) // size for again in found.values() for base in self._read(again)}
        own = [base for base in counts if self._placement.home.get(base) == at and not self._is_stored(base, at)]
        further = WRITTEN * sum(counts[base] for base in own)
        for home, again in found.items():
            read = {self._views[operand].row for operand in self._operands(self._placement.drafts[home])}
            further += sum(counts[base] for base in self._read(again) - read)
        before = sum(self._volume(row) // size * (len(self._readers.homes(row) - {at}) + WRITTEN) for row in wanted)
        return further < before if any(counts[base] for base in own) else further <= before

    def _volume(self, row: int) -> int:
        return self._spec.rows[row].shape.volume

    def _read(self, again: _Again) -> set[int]:
        return {self._views[leaf].row for leaf in again.leaves}

    # how
    def _repeat(self, wanted: Iterable[int], found: Mapping[int, _Again]) -> None:
        for home, again in found.items():
            copies: dict[int, int] = {}
            for each in again.rows:
                copies[each] = self._copied(each, copies, home)
            draft = self._placement.drafts[home]
            for row in wanted:
                for reader in self._readers.of(row) & {*draft.rows}:
                    self._redirect(reader, row, copies[row])
            draft.rows[:0] = copies.values()
            self._copies.setdefault(home, []).extend(copies.values())

    def _leave(self, at: int) -> None:
        """Takes from a draft what nobody reads any more, so that it keeps nothing of others alive."""
        draft = self._placement.drafts[at]
        for row in reversed(list(draft.rows)):
            if row not in self._kept and not self._readers.of(row):
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

    # what is read
    def _base(self, operand: int) -> int | None:
        view = self._views.get(operand)
        return None if view is None else view.row

    def _operands(self, draft: Draft) -> Iterator[int]:
        return (operand for operand in draft.operands(self._spec) if operand in self._views)
