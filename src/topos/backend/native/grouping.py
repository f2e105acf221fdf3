"""From a schedule to its groups: what runs together and what is stored, the same on every machine."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from topos.backend.native.cascades import with_cascades
from topos.backend.native.destinations import with_destinations
from topos.backend.native.groups import Lowering
from topos.graph.spec import Spec


def grouped(spec: Spec, scheduled: Sequence[int], results: frozenset[int], carried: Collection[int]) -> Lowering:
    """The lowering of a schedule with its groups as they run; `carried` are rows that replace sources."""
    lowering = Lowering(spec, scheduled, results.union(carried))
    lowering.groups = with_cascades(lowering, lowering.groups)
    lowering.groups = with_destinations(lowering, lowering.groups, results.difference(carried))
    return lowering


def stored(spec: Spec, scheduled: Sequence[int], kept: frozenset[int]) -> frozenset[int]:
    """The rows whose values a native plan puts into memory: what its groups say that they store."""
    lowering = grouped(spec, scheduled, kept, ())
    return frozenset(lowering.recorded(row) for group in lowering.groups for row in group.writes)
