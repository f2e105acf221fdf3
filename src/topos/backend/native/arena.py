"""Where each stored value lies in one block of memory that all of a plan's values share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from topos.backend.native.groups import Lowering

LINE = 64
"""Bytes of a cache line: every buffer starts on one."""


class Arena(NamedTuple):
    """The offset in bytes of each stored row and of each group's scratch, and the size of the whole."""

    offsets: dict[int, int]
    scratch: list[int]
    bytes: int


def arranged(lowering: Lowering, scratch_bytes: Sequence[int]) -> Arena:
    """First fit in order of birth.

    A buffer takes the lowest gap that is free from the group that writes it to the last that reads it.

    Rows that are kept are results: they have buffers of their own and no place here.
    """
    last = _last_reads(lowering)
    alive: list[tuple[int, int, int]] = []  # start, end, last group
    offsets: dict[int, int] = {}
    scratch: list[int] = []
    size = 0
    for at, group in enumerate(lowering.groups):
        alive = [held for held in alive if held[2] >= at]
        wanted = [(row, _bytes(lowering, row), last.get(row, at)) for row in group.writes if row not in lowering.kept]
        for row, length, until in [*wanted, (-1, _lines(scratch_bytes[at]), at)]:
            start = _gap(alive, length)
            if length:
                alive = sorted([*alive, (start, start + length, until)])
            size = max(size, start + length)
            if row < 0:
                scratch.append(start)
            else:
                offsets[row] = start
    return Arena(offsets, scratch, size)


def _last_reads(lowering: Lowering) -> dict[int, int]:
    last: dict[int, int] = {}
    for at, group in enumerate(lowering.groups):
        for operand in group.reads:
            last[lowering.views[operand].row] = at
    return last


def _bytes(lowering: Lowering, row: int) -> int:
    recorded = lowering.spec.rows[row]
    element = recorded.element or lowering.spec.element
    return _lines(recorded.shape.volume * element.dtype.itemsize)


def _lines(size: int) -> int:
    return -(-size // LINE) * LINE


def _gap(alive: list[tuple[int, int, int]], length: int) -> int:
    start = 0
    for held_start, held_end, _ in alive:
        if held_start - start >= length:
            return start
        start = max(start, held_end)
    return start
