"""A composition while it is written as one operation: what it reads by name, and which of its rows are wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topos.emission.site import Site
from topos.emission.text import Named
from topos.engine.pattern.match import Match
from topos.graph.spec import Spec
from topos.records import NamedTuple


class Raising(NamedTuple):
    """A match, the site of its root, and the rows that it hands out, each of which the raise answers a value for."""

    spec: Spec
    match: Match
    site: Site
    handed: frozenset[int]

    def operand(self, name: str) -> Named:
        """What the composition reads under a name."""
        return self.site.dense(list(self.match.operands).index(name))

    def alone(self, value: Named) -> dict[int, Named]:
        """The answer of a composition that hands out its root and nothing else."""
        return {self.match.root: value}

    def named(self, values: Mapping[str, Named]) -> dict[int, Named]:
        """The answer of one that hands out results by name, in their rows' shapes, onto what they were before."""
        rows = {row: name for name, row in self.match.results.items()}
        return {row: self._whole(rows[row], values[rows[row]], row) for row in self.handed if row in rows}

    def _whole(self, name: str, value: Named, row: int) -> Named:
        value = shaped(self.site, value, self.spec.rows[row].shape, "shaped")
        before = f"{name} before"
        return self.site.words.add(self.operand(before), value) if before in self.match.operands else value


def shaped(site: Site, x: Named, shape: Sequence[int], called: str) -> Named:
    """A value in another shape; itself where it has that shape."""
    if x.shape == tuple(shape):
        return x
    return site.words.writer.operation("reshape", [x], shape, x.type, called=called)


def ordered(site: Site, x: Named, order: Sequence[int]) -> Named:
    """A value with its axes in another order; itself where they are."""
    if list(order) == sorted(order):
        return x
    shape = [x.shape[axis] for axis in order]
    return site.words.writer.operation("transpose", [x], shape, x.type, attributes=f", dims = {list(order)}")
