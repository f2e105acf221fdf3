"""From a schedule to its groups: what runs together and what is stored, the same on every machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set

from topos.backend.native.cascades import with_cascades
from topos.backend.native.destinations import with_destinations
from topos.backend.native.groups import Lowering
from topos.backend.native.worked_out import with_worked_out
from topos.graph.spec import Spec


def grouped(spec: Spec, scheduled: Sequence[int], results: frozenset[int], carried: Collection[int]) -> Lowering:
    """The lowering of a schedule with its groups as they run; `carried` are rows that replace sources."""
    lowering = Lowering(spec, scheduled, results.union(carried))
    lowering.groups = with_cascades(lowering, lowering.groups)
    lowering.groups = with_destinations(lowering, lowering.groups, results.difference(carried))
    lowering.groups = with_worked_out(lowering, lowering.groups)
    return lowering


def stored(spec: Spec, scheduled: Sequence[int], kept: frozenset[int]) -> dict[int, frozenset[int]]:
    """The rows whose values a native plan puts into memory: what its groups say that they store.

    Each with the rows that are read in its place: moved, or added to a zero, they are the same numbers in its buffer.
    """
    lowering = grouped(spec, scheduled, kept, ())
    readers: dict[int, set[int]] = {}
    for row in scheduled:
        for operand in spec.rows[row].operands:
            readers.setdefault(operand, set()).add(row)
    written = (lowering.recorded(row) for group in lowering.groups for row in group.writes)
    return {row: frozenset(_names(lowering, row, readers, kept)) for row in written}


def _names(lowering: Lowering, row: int, readers: Mapping[int, Set[int]], kept: Set[int]) -> Iterator[int]:
    """The rows, one the only reader of the one before, that are a stored row in another name."""
    views, rows = lowering.views, lowering.spec.rows
    while row not in kept and len(readers.get(row, ())) == 1:
        (reader,) = readers[row]
        if reader not in views or row not in views:
            return
        if views[reader].row not in (views[row].row, lowering.written_as.get(views[row].row)):
            return
        if rows[reader].shape.volume != rows[row].shape.volume:
            return
        yield reader
        row = reader
