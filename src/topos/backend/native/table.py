"""What native code is given: one table of words that says what to run, over which memory, how many times.

A table is prepared once, with the addresses of the kernels, of the arena and of all that never changes; from run to run
only the pointers of sources and results are set, and native code carries them to the arguments of the kernels.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np

from topos.backend.native.manifest import Manifest, Placed
from topos.backend.native.pool import pool
from topos.records import NamedTuple
from topos.tensor.memory import address_of, aligned

STEPS, RUN, CALLS, BUFFERS, STRIDES, FIXES, CALL_COUNT, BUFFER_COUNT, FIX_COUNT, OWN, UNREAD, FIRST_BUFFER = range(12)
"""The first words: how many steps; who shares out tiles; where calls, buffers, strides and fixes are; how many.

The word `OWN` is for the function that runs the steps of this program alone, where there is one; `UNREAD` for the
address of what no kernel reads.
"""


class Weighted(NamedTuple):
    """A call that may find an operand packed: its words, what they say else, and where its panels stand."""

    calls: slice
    own: list[Any]
    panels: int


class Table:
    """The table of one run at a time, and the arena.

    After the first words come the pointer of each buffer, then the bytes by which it moves from step to step; three
    words per call (kernel, tiles, arguments); three per fix (an argument, the buffer that it points into, the offset
    there); and the arguments. `argument` is the table as native code takes it; `small` the memory of small results,
    where there are any; `repeats` whether it is set for many steps.
    """

    __slots__ = ("_arena", "address", "argument", "calls", "repeats", "small", "strides", "weighted", "words")
    small: ctypes.Array[ctypes.c_char]

    def __init__(self, manifest: Manifest, kernels: Mapping[str, int]) -> None:
        calls = [start.operands for start in manifest.starts]
        fixes = sum(row is not None for placed in calls for row, _ in placed)
        started = sum(len(start.kernels) for start in manifest.starts)
        count = len(manifest.buffers)
        self.strides = FIRST_BUFFER + count
        self.calls = self.strides + count
        first_fix = self.calls + 3 * started
        first_argument = first_fix + 3 * fixes
        self.words = words = (ctypes.c_uint64 * (first_argument + sum(map(len, calls))))()
        self.address = ctypes.addressof(words)
        self.argument = ctypes.byref(words)
        self.repeats = False
        self._arena = aligned(manifest.arena_bytes, np.uint8)
        words[STEPS], words[RUN] = 1, pool().address()
        words[CALLS], words[FIXES] = self._at(self.calls), self._at(first_fix)
        words[BUFFERS], words[STRIDES] = self._at(FIRST_BUFFER), self._at(self.strides)
        words[CALL_COUNT], words[BUFFER_COUNT], words[FIX_COUNT] = started, count, fixes
        self.weighted: list[Weighted] = []
        self._set_calls(manifest, kernels, list(accumulate(map(len, calls), initial=first_argument))[:-1])
        self._set_arguments(manifest, calls, first_fix, first_argument)

    def _set_calls(self, manifest: Manifest, kernels: Mapping[str, int], arguments: Sequence[int]) -> None:
        """The kernels to run; those of one call share its arguments, which begin at these words."""
        at = self.calls
        for start, first in zip(manifest.starts, arguments, strict=True):
            begin = at
            for name, tiles in start.kernels:
                self.words[at : at + 3] = [kernels[name], tiles, self._at(first)]
                at += 3
            if start.packable:
                self.weighted.append(Weighted(slice(begin, at), self.words[begin:at], first + len(start.operands) - 1))

    def _set_arguments(self, manifest: Manifest, calls: Sequence[Placed], fix: int, first: int) -> None:
        """Addresses in the arena, which stay, and a fix for each that depends on a buffer."""
        arena = address_of(self._arena) if manifest.arena_bytes else 0
        buffers = {row: FIRST_BUFFER + at for at, row in enumerate(manifest.buffers)}
        for argument, (row, offset) in enumerate(chain.from_iterable(calls), first):
            if row is None:
                self.words[argument] = arena + offset
            else:
                self.words[fix : fix + 3] = [self._at(argument), self._at(buffers[row]), offset]
                fix += 3

    def settle(self) -> None:
        """From now on it is for one step: no buffer moves on."""
        self.words[self.strides : self.calls] = [0] * (self.calls - self.strides)
        self.words[STEPS], self.words[OWN], self.repeats = 1, 0, False

    # calls that may find an operand packed
    def replace(self, place: Weighted, kernel: int, tiles: int, panels: int) -> None:
        """From now on a call is one kernel over panels."""
        words, begin = self.words, place.calls.start
        if words[place.panels] != panels or words[begin] != kernel:
            words[begin + 1 : place.calls.stop : 3] = [0] * (len(place.own) // 3)
            words[begin], words[begin + 1], words[place.panels] = kernel, tiles, panels

    def restore(self, place: Weighted) -> None:
        """From now on a call is its own kernels again."""
        if self.words[place.panels]:
            self.words[place.calls], self.words[place.panels] = place.own, 0

    def _at(self, word: int) -> int:
        return self.address + 8 * word
