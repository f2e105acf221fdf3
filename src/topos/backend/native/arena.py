"""Where each stored value lies in one block of memory that all of a plan's values share."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from topos.backend.native.groups import Lowering
from topos.records import NamedTuple
from topos.tensor.memory import whole_lines


class Arena(NamedTuple):
    """The offset in bytes of each stored row and of each group's scratch, and the size of the whole.

    Every buffer begins on a cache line.
    """

    offsets: dict[int, int]
    scratch: list[int]
    bytes: int


def arranged(
    lowering: Lowering, scratch_bytes: Sequence[int], elsewhere: Container[int], temporary: Iterable[int]
) -> Arena:
    """First fit in order of birth.

    A buffer takes the lowest gap that is free from the group that writes it to the last that reads it; what is kept
    stays to the end. Rows of `elsewhere` have buffers of their own. The copy of each source of `temporary`, which is
    called `~source`, lives from the beginning to the end.
    """
    last = lowering.last_reads()
    end = len(lowering.groups)
    alive: list[tuple[int, int, int]] = []  # start, end, last group
    offsets: dict[int, int] = {}
    scratch: list[int] = []
    size = 0
    for source in temporary:
        offsets[~source] = size
        alive.append((size, size + _bytes(lowering, source), end))
        size += _bytes(lowering, source)
    for at, group in enumerate(lowering.groups):
        alive = [held for held in alive if held[2] >= at]
        wanted: list[tuple[int | None, int, int]] = [
            (row, _bytes(lowering, row), end if row in lowering.kept else last.get(row, at))
            for row in group.writes
            if row not in elsewhere
        ]
        for row, length, until in [*wanted, (None, whole_lines(scratch_bytes[at]), at)]:
            start = gap(alive, length)
            if length:
                alive = sorted([*alive, (start, start + length, until)])
            size = max(size, start + length)
            if row is None:
                scratch.append(start)
            else:
                offsets[row] = start
    return Arena(offsets, scratch, size)


def _bytes(lowering: Lowering, row: int) -> int:
    return whole_lines(lowering.spec.rows[row].shape.volume * lowering.spec.element_of(row).dtype.itemsize)


def gap(alive: Sequence[tuple[int, int, int]], length: int) -> int:
    """The first place for so many bytes between those held: sorted, each from a byte to a byte."""
    start = 0
    for held_start, held_end, _ in alive:
        if held_start - start >= length:
            return start
        start = max(start, held_end)
    return start
