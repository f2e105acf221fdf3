"""What a plan tells of itself: its schedule as text, how much lives at once, and the patterns that it elected."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cached_property, partial

from topos.element import Element
from topos.engine import liveness
from topos.engine.entry import Entry
from topos.engine.pattern.elect import NOTHING, Election, Stored, elect
from topos.engine.pattern.match import Match, Pattern
from topos.graph import Symbol
from topos.graph.describe import counted, node_lines
from topos.graph.spec import Spec
from topos.loading import loaded
from topos.records import NamedTuple


class Able(NamedTuple):
    """In which elements somebody computes a composition, and what it stores of a schedule all the same.

    `stores` is given a spec, the rows that are scheduled, and those that are kept.
    """

    elements: Container[Element]
    stores: Callable[[Spec, Sequence[int], frozenset[int]], Stored] = lambda spec, rows, kept: {}


Repertoire = Mapping[str, Able]


class Anything:
    """Holds whatever it is asked for: every element, say."""

    def __contains__(self, thing: object) -> bool:
        return True


class Reading:
    """The schedule of a plan, for people and for whoever elects; derived from its declaration, on no machine."""

    def __init__(self, spec: Spec, length: int, rows: Sequence[int], entry: Entry) -> None:
        self._spec, self._length, self._rows, self._entry = spec, length, rows, entry
        self._readable = frozenset(symbol.index for symbol in entry.results)
        self._kept = self._readable.union(after.index for after in entry.carry.values())

    # patterns
    @cached_property
    def candidates(self) -> list[Match]:
        """Every match in the spec, collected once."""
        from topos.engine.pattern.pool import pooled  # the catalog is read where somebody elects, and not before

        return pooled(self._spec, self._length)

    def elected(self, repertoire: Repertoire) -> Election:
        """What somebody takes who computes those formulas, each in those elements. Nothing of a plan that retains."""
        if not repertoire or self._entry.backward:
            return NOTHING
        able = [match for match in self.candidates if self._is_able(match, repertoire)]
        stores = {match.formula: repertoire[match.formula].stores for match in able}
        stored = {each: each(self._spec, self._rows, self._kept) for each in set(stores.values())}
        by_formula = {formula: stored[each] for formula, each in stores.items()}
        return elect(self._spec.rows, self._rows, able, repertoire, self._kept, by_formula)

    @cached_property
    def election(self) -> Election:
        """What the plan itself takes: what the backends of its entry compute."""
        return self.elected(loaded("topos.backend.repertoire.repertoire")(self._entry))

    def elected_by(self, formulas: Iterable[str]) -> Election:
        """What somebody takes who computes the formulas of these names, in any element."""
        return self.elected(loaded("topos.backend.repertoire.of_any_element")(formulas))

    def patterns(self, election: Election) -> list[Pattern]:
        """The matches that were elected, as data about nodes."""
        scheduled = set(self._rows)
        return [self._pattern(match, scheduled) for match in election.matches]

    def _pattern(self, match: Match, scheduled: set[int]) -> Pattern:
        named = {row: Symbol(self._spec.family, row) for row in (*match.rows, *match.operands.values())}
        nodes = tuple(named[row] for row in sorted(match.rows & scheduled))
        operands = {name: named[row] for name, row in match.operands.items()}
        results = {name: named[row] for name, row in match.results.items()}
        return Pattern(match.kind, match.formula, named[match.root], nodes, operands, results, match.parameters)

    def _is_able(self, match: Match, repertoire: Repertoire) -> bool:
        elements = {self._spec.element_of(row) for row in match.rows}
        able = repertoire.get(match.formula)
        return able is not None and all(element in able.elements for element in elements)

    # liveness
    @cached_property
    def freed_after(self) -> dict[int, int]:
        """The row after which each value goes, for those that go."""
        rows, fused = self._spec.rows, self.election.fused
        retained = liveness.read_by_rules(rows, self._rows) if self._entry.backward else set()
        last = liveness.last_uses(rows, self._rows, self.election.reads)
        return {i: last[i] for i in self._rows if i not in self._kept and i not in retained and i not in fused}

    def live_series(self) -> list[tuple[int, int]]:
        """Each scheduled row and the elements alive when it has just been evaluated, under release."""
        volumes = liveness.live_volumes(self._spec, self._rows, self.freed_after, self.election.born)
        return list(zip(self._rows, volumes, strict=True))

    # text
    def describe(self, names: bool, lines: bool) -> str:
        """One line per scheduled node with its fate, then what is evaluated and how much lives at once."""
        carried: dict[int, list[int]] = {}
        for source, following in self._entry.carry.items():
            carried.setdefault(following.index, []).append(source.index)
        status = partial(self._status, carried)
        text = node_lines(self._spec, self._rows, names=names, lines=lines, status=status)
        posture = "retain" if self._entry.backward else "forward"
        evaluated = f"{len(self._rows)} of {self._length} nodes evaluated"
        text.append(f"plan: {posture}; {evaluated}, {len(self._readable)} readable")
        matches, fused = self.election.matches, self.election.fused
        if matches:
            text.append(f"fused {counted(len(matches), 'group')}, {counted(len(fused), 'node')} replaced")
        return "\n".join([*text, self._volumes()])

    def _status(self, carried: Mapping[int, list[int]], index: int) -> str:
        if index in self.election.fused:
            return "fused"
        if index in carried:
            return f"carries {', '.join(map(str, sorted(carried[index])))}"
        if index in self.freed_after:
            return f"{'releasable' if self._entry.backward else 'freed'} after {self.freed_after[index]}"
        return "kept" if index in self._kept else "retained"

    def _volumes(self) -> str:
        retained = sum(liveness.volume(self._spec, index) for index in self._rows)
        series = self.live_series()
        if not series:
            return "live volume: 0 elements"
        peak = max(volume for _, volume in series)
        at = next(index for index, volume in series if volume == peak)
        if self._entry.backward:
            return f"live volume: retain-all {retained}, release floor {peak} at node {at}"
        return f"live volume: peak {peak} elements at node {at}, retain-all {retained}"
