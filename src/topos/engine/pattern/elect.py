"""Which matches a consumer takes: what it can do, the largest first, none in another's way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from types import MappingProxyType

from topos.engine.pattern.match import Match
from topos.graph.spec import Row
from topos.records import NamedTuple

Stored = Mapping[int, Set[int]]
"""The rows that somebody stores, each with those that are the same numbers there, in another order perhaps."""


class Election(NamedTuple):
    """The matches that were elected over a schedule.

    `fused` are the rows that are worked out inside matches and stored nowhere. A match is computed at one of its rows,
    where all that it reads is read, and all that it hands out is there: `reads` and `born` are what is read at a row,
    and what values come with it, for every row of which that is not what the spec says.
    """

    matches: tuple[Match, ...]
    fused: frozenset[int]
    reads: Mapping[int, tuple[int, ...]]
    born: Mapping[int, tuple[int, ...]]

    @property
    def handed(self) -> Mapping[int, Match]:
        """The rows that are not worked out for themselves, but handed out by a match."""
        return {row: match for match in self.matches for row in match.stored - self.fused}

    @property
    def moments(self) -> Mapping[int, Match]:
        """The row at which each match is computed."""
        handed = self.handed
        return {moment: handed[rows[0]] for moment, rows in self.born.items() if rows}


def elect(
    rows: Sequence[Row],
    scheduled: Sequence[int],
    candidates: Iterable[Match],
    repertoire: Collection[str],
    declared: Set[int],
    stored: Mapping[str, Stored] = MappingProxyType({}),
) -> Election:
    """The candidates whose formula is in the repertoire, the largest first; one that covers a declared row declines.

    So does one of which a row is read outside, unless the match names it as a result, or the reader is part of another
    match that works the row out again. What whoever computes a formula has `stored` is a result of the match where the
    largest of what is inside is not stored; else nothing is gained, and the match declines.
    """
    asked_for = frozenset(scheduled)
    known = [as_scheduled(match, asked_for, rows) for match in candidates if match.formula in repertoire]
    able = [_handing(match, stored.get(match.formula, {}), rows) for match in known if match is not None]
    left = sorted((match for match in able if match is not None), key=lambda match: (-len(match.rows), match.root))
    while True:
        chosen = _apart(left)
        written = (_written(match, stored.get(match.formula, {})) for match in chosen)
        ballot = _Ballot(rows, scheduled, chosen, frozenset(declared).union(*written))
        out = {id(match) for at, match in enumerate(chosen) if not ballot.stands(at)}
        if not out:
            return ballot.election()
        left = [match for match in left if id(match) not in out]


def as_scheduled(match: Match, scheduled: Set[int], rows: Sequence[Row]) -> Match | None:
    """What of a match a schedule asks for: a gradient that nobody asks for is left out."""
    results = {name: row for name, row in match.results.items() if row in scheduled}
    root = match.root
    if root not in scheduled:
        if root not in match.results.values() or not results:
            return None
        root = max(results.values())
    nodes, views, again = (part & scheduled for part in (match.nodes, match.views, match.again))
    read = {operand for part in (nodes, views, again) for row in part for operand in rows[row].operands}
    operands = {name: row for name, row in match.operands.items() if row in read}
    return match._replace(root=root, nodes=nodes, views=views, again=again, results=results, operands=operands)


def _handing(match: Match, stored: Stored, rows: Sequence[Row]) -> Match | None:
    """A match that also hands out what is stored of it; `None` where that is as large as what is not."""
    inner = (match.nodes | match.views) - match.stored
    inside = sorted(_written(match, stored) & inner)
    if not inside:
        return match
    again = inner.difference(inside, *(stored[row] for row in inside))
    largest = max((rows[row].shape.volume for row in again), default=0)
    if not match.views.isdisjoint(inside) or any(rows[row].shape.volume >= largest for row in inside):
        return None
    return match._replace(results={**match.results, **{f"node {row}": row for row in inside}})


def _written(match: Match, stored: Stored) -> set[int]:
    """The rows of a match that are stored, as the first of their names; what it hands out is stored as that."""
    rows = match.rows & stored.keys()
    return {row for row in rows if row in match.stored or match.stored.isdisjoint(stored[row])}


def _apart(matches: Iterable[Match]) -> list[Match]:
    """Those, in order, of which no two compute the same row."""
    taken: set[int] = set()
    chosen = []
    for match in matches:
        if taken.isdisjoint(match.nodes):
            taken |= match.nodes
            chosen.append(match)
    return chosen


class _Ballot:
    """What becomes of a schedule under some matches that do not overlap."""

    def __init__(
        self, rows: Sequence[Row], scheduled: Sequence[int], matches: Sequence[Match], declared: Set[int]
    ) -> None:
        self.rows, self.scheduled, self.matches, self.declared = rows, scheduled, matches, declared
        self.covers: dict[int, set[int]] = {}
        for at, match in enumerate(matches):
            for row in match.rows:
                self.covers.setdefault(row, set()).add(at)
        self.computed = {row for match in matches for row in match.nodes}
        self.roots = {match.root for match in matches}
        self.readers: dict[int, list[int]] = {row: [] for row in self.covers}
        for row in scheduled if matches else ():
            for operand in rows[row].operands:
                if operand in self.readers:
                    self.readers[operand].append(row)
        self.fused: set[int] = set()
        for row in sorted(self.covers, reverse=True):
            if self._is_fused(row):
                self.fused.add(row)
        self.moments = self._moments()

    def _is_fused(self, row: int) -> bool:
        """Whether whoever reads a row is part of matches that work it out themselves."""
        if row in self.declared or row in self.roots:
            return False
        return all(self._is_inside(row, reader) for reader in self.readers[row])

    def _is_inside(self, row: int, reader: int) -> bool:
        return (reader in self.fused or reader in self.computed) and self.covers[reader] <= self.covers[row]

    def stands(self, at: int) -> bool:
        """Whether nothing of a match is missed outside, and all that it reads is there before anybody reads of it."""
        match, moment = self.matches[at], self.moments[at]
        inner = (match.nodes | match.views) - match.stored
        return moment is not None and inner <= self.fused and moment < self._deadline(at)

    def _moments(self) -> list[int | None]:
        """When each match is computed: at the first row that it hands out after all that it reads, or at any other."""
        moments: list[int | None] = [None] * len(self.matches)
        there: dict[int, int] = {}
        handed = [sorted(match.stored - self.fused) for match in self.matches]
        for at in sorted(range(len(self.matches)), key=lambda at: handed[at]):
            read = [there.get(row, row) for row in self._read(self.matches[at]) if self.rows[row].operands]
            latest = max(read, default=-1)
            own = [*handed[at], *sorted(row for row in self.matches[at].nodes if row > handed[at][0])]
            moments[at] = next((row for row in own if row > latest), None)
            there |= dict.fromkeys(handed[at], moments[at] or 0)
        return moments

    def _deadline(self, at: int) -> int:
        """The first time at which somebody else reads what a match hands out."""
        outside = (q for row in self.matches[at].stored - self.fused for q in self.readers[row])
        others = ((q, self.covers.get(q, set())) for q in outside)
        return min((self._time(q) for q, holders in others if at not in holders), default=len(self.rows))

    def _time(self, row: int) -> int:
        """When a row is evaluated, or the first match of which it is a part."""
        if row not in self.fused and row not in self.computed:
            return row
        moments = [self.moments[at] for at in self.covers[row]]
        return min((moment for moment in moments if moment is not None), default=row)

    def _read(self, match: Match) -> set[int]:
        """What a match reads and does not work out."""
        inside = {row for row in match.rows if row in self.fused or row in match.nodes}
        return {operand for row in inside for operand in self.rows[row].operands}.difference(inside)

    def election(self) -> Election:
        reads: dict[int, tuple[int, ...]] = dict.fromkeys(self.fused, ())
        for match in self.matches:
            reads |= dict.fromkeys(match.stored - self.fused, ())
        born = dict(reads)
        for match, moment in zip(self.matches, self.moments, strict=True):
            assert moment is not None  # only those that stand come here
            reads[moment] = tuple(sorted(self._read(match)))
            born[moment] = tuple(sorted(match.stored - self.fused))
        matches = tuple(sorted(self.matches, key=lambda match: match.root))
        return Election(matches, frozenset(self.fused), reads, born)


NOTHING = Election((), frozenset(), {}, {})
"""What a plan elects that does not fuse."""
