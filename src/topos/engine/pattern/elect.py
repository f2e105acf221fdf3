"""Which matches a consumer takes: what it can do, the largest first, none in another's way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from topos.engine.pattern.match import Match
from topos.graph.spec import Row


class Election(NamedTuple):
    """The matches that were elected over a schedule.

    `fused` are the rows that are worked out inside matches and stored nowhere. All that a match hands out is there at
    the first of those rows, which then reads what the match reads: `reads` and `born` are, for every row of which that
    is not what the spec says, what is read and what values there are at it.
    """

    matches: tuple[Match, ...]
    fused: frozenset[int]
    reads: Mapping[int, tuple[int, ...]]
    born: Mapping[int, tuple[int, ...]]


def elect(
    rows: Sequence[Row],
    scheduled: Sequence[int],
    candidates: Iterable[Match],
    repertoire: Collection[str],
    declared: Set[int],
) -> Election:
    """The candidates whose formula is in the repertoire, the largest first; one that covers a declared row declines.

    So does one of which a row is read outside, unless the match names it as a result, or the reader is part of another
    match that works the row out again.
    """
    asked_for = frozenset(scheduled)
    known = [_scheduled(match, asked_for) for match in candidates if match.formula in repertoire]
    left = sorted((match for match in known if match is not None), key=lambda match: (-len(match.rows), match.root))
    while True:
        chosen = _apart(left)
        ballot = _Ballot(rows, scheduled, chosen, declared)
        declined = [match for match in chosen if not ballot.stands(match)]
        if not declined:
            return ballot.election()
        out = {id(match) for match in declined}
        left = [match for match in left if id(match) not in out]


def _scheduled(match: Match, scheduled: Set[int]) -> Match | None:
    """What of a match a schedule asks for: a gradient that nobody asks for is left out."""
    results = {name: row for name, row in match.results.items() if row in scheduled}
    root = match.root
    if root not in scheduled:
        if root not in match.results.values() or not results:
            return None
        root = max(results.values())
    nodes, views, again = (part & scheduled for part in (match.nodes, match.views, match.again))
    operands = {name: row for name, row in match.operands.items() if row in scheduled}
    return match._replace(root=root, nodes=nodes, views=views, again=again, results=results, operands=operands)


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

    def _is_fused(self, row: int) -> bool:
        """Whether whoever reads a row is part of matches that work it out themselves."""
        if row in self.declared or row in self.roots:
            return False
        return all(self._is_inside(row, reader) for reader in self.readers[row])

    def _is_inside(self, row: int, reader: int) -> bool:
        return (reader in self.fused or reader in self.computed) and self.covers[reader] <= self.covers[row]

    def stands(self, match: Match) -> bool:
        """Whether nothing of a match is missed outside, and all that it reads is there before it hands anything out."""
        inner = (match.nodes | match.views) - match.stored
        computed = [row for row in self._read(match) if self.rows[row].operands]
        return inner <= self.fused and max(computed, default=-1) < min(match.stored - self.fused)

    def _read(self, match: Match) -> set[int]:
        """What a match reads and does not work out."""
        inside = {row for row in match.rows if row in self.fused or row in match.nodes}
        return {operand for row in inside for operand in self.rows[row].operands}.difference(inside)

    def election(self) -> Election:
        reads: dict[int, tuple[int, ...]] = dict.fromkeys(self.fused, ())
        born = dict(reads)
        for match in self.matches:
            handed = sorted(match.stored - self.fused)
            reads |= {**dict.fromkeys(handed, ()), handed[0]: tuple(sorted(self._read(match)))}
            born |= {**dict.fromkeys(handed, ()), handed[0]: tuple(handed)}
        matches = tuple(sorted(self.matches, key=lambda match: match.root))
        return Election(matches, frozenset(self.fused), reads, born)


NOTHING = Election((), frozenset(), {}, {})
"""What a plan elects that does not fuse."""
