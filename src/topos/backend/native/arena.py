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

    A buffer lives from the group that writes it to the last that reads it; what is kept stays to the end. Rows of
    `elsewhere` have buffers of their own. The copy of each source of `temporary`, which is called `~source`, lives from
    the beginning to the end.
    """
    last = lowering.last_reads()
    end = len(lowering.groups)
    memory = FirstFit()
    offsets = {~source: memory.take(_bytes(lowering, source), 0, end) for source in temporary}
    scratch: list[int] = []
    for at, group in enumerate(lowering.groups):
        for row in group.writes:
            if row not in elsewhere:
                until = end if row in lowering.kept else last.get(row, at)
                offsets[row] = memory.take(_bytes(lowering, row), at, until)
        scratch.append(memory.take(scratch_bytes[at], at, at))
    return Arena(offsets, scratch, memory.bytes)


def _bytes(lowering: Lowering, row: int) -> int:
    return lowering.spec.rows[row].shape.volume * lowering.spec.element_of(row).dtype.itemsize


class FirstFit:
    """Memory in which each buffer takes the lowest gap that is free for as long as it lives: `bytes` for all."""

    def __init__(self) -> None:
        self.bytes = 0
        self._held: list[tuple[int, int, int]] = []  # start, end, last moment

    def take(self, size: int, first: int, last: int) -> int:
        """Where whole cache lines for so many bytes begin, which are free from one moment to the end of another.

        `first` never goes back from call to call.
        """
        length, start = whole_lines(size), 0
        self._held = [held for held in self._held if held[2] >= first]
        for held_start, held_end, _ in self._held:
            if held_start - start >= length:
                break
            start = max(start, held_end)
        if length:
            self._held = sorted([*self._held, (start, start + length, last)])
        self.bytes = max(self.bytes, start + length)
        return start
