"""A composition that was found, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topos.graph import Symbol
from topos.records import NamedTuple


class Match(NamedTuple):
    """Where a composition stands in a spec, in rows.

    `nodes` are what it computes and nobody else does, `views` the movement that it reads through, which several matches
    may share; `again` are constants and, of a gradient, rows of what it is the gradient of: worked out where they are
    needed. `results` names the rows that it can write back beside its `root`, which is the last of them or the value of
    the whole. `operands` names the rows that it reads; `parameters` are its numbers.
    """

    kind: str
    formula: str
    root: int
    nodes: frozenset[int]
    views: frozenset[int]
    again: frozenset[int]
    operands: Mapping[str, int]
    results: Mapping[str, int]
    parameters: Mapping[str, Any]

    @property
    def rows(self) -> frozenset[int]:
        """Every row that it computes or reads through."""
        return self.nodes | self.views | self.again

    @property
    def stored(self) -> frozenset[int]:
        """The rows whose values it can hand out."""
        return frozenset((self.root, *self.results.values()))


class Pattern(NamedTuple):
    """A structural match over a plan's nodes: a composition that somebody may compute as a whole.

    `kind` names the composition, `formula` what a backend is asked for. `root` is the node whose value it is, `nodes`
    are all that it stands for, the root among them; those that are no longer evaluated for themselves print `fused`.
    `operands` and `results` name what it reads and, beside the root, writes; `parameters` are its numbers.
    """

    kind: str
    formula: str
    root: Symbol
    nodes: tuple[Symbol, ...]
    operands: Mapping[str, Symbol]
    results: Mapping[str, Symbol]
    parameters: Mapping[str, Any]
