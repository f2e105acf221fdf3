"""What native code is given: one table of words that says what to run, over which memory, how many times.

The code that reads it is the same for every plan and is compiled once. A table is prepared once, with the addresses of
the kernels, of the arena and of all that never changes; from run to run only the pointers of sources and results are
set, and native code carries them to the arguments of the kernels.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import accumulate, chain

import numpy as np

from topos.backend.native.compiler import compiled, function
from topos.backend.native.flags import guarded
from topos.backend.native.pool import pool
from topos.backend.native.program import Placed, Program
from topos.backend.native.registers import INT64, POINTER, TRUTH, Integer, Operand, Type, written
from topos.backend.native.text import Function
from topos.tensor.memory import address_of, aligned

STEPS, RUN, CALLS, BUFFERS, STRIDES, FIXES, CALL_COUNT, BUFFER_COUNT, FIX_COUNT, FIRST_BUFFER = range(10)
"""The first words: how many steps; who shares out tiles; where calls, buffers, strides and fixes are; how many."""


class Table:
    """The table of one run at a time, and the arena.

    After the first words come the pointer of each buffer, then the bytes by which it moves from step to step; three
    words per call (kernel, tiles, arguments); three per fix (an argument, the buffer that it points into, the offset
    there); and the arguments.
    """

    __slots__ = ("_arena", "address", "calls", "strides", "words")

    def __init__(self, program: Program, kernels: Mapping[str, int]) -> None:
        calls = [program.placed(at) for at in range(len(program.calls))]
        fixes = sum(row is not None for placed in calls for row, _ in placed)
        started = sum(len(call.kernels) for call in program.calls)
        count = len(program.buffers)
        self.strides = FIRST_BUFFER + count
        self.calls = self.strides + count
        first_fix = self.calls + 3 * started
        first_argument = first_fix + 3 * fixes
        self.words = words = (ctypes.c_uint64 * (first_argument + sum(map(len, calls))))()
        self.address = ctypes.addressof(words)
        self._arena = aligned(program.arena.bytes, np.uint8)
        words[STEPS], words[RUN] = 1, pool().address()
        words[CALLS], words[FIXES] = self._at(self.calls), self._at(first_fix)
        words[BUFFERS], words[STRIDES] = self._at(FIRST_BUFFER), self._at(self.strides)
        words[CALL_COUNT], words[BUFFER_COUNT], words[FIX_COUNT] = started, count, fixes
        self._set_calls(program, kernels, list(accumulate(map(len, calls), initial=first_argument))[:-1])
        self._set_arguments(program, calls, first_fix, first_argument)

    def _set_calls(self, program: Program, kernels: Mapping[str, int], arguments: Sequence[int]) -> None:
        """The kernels to run; those of one call share its arguments, which begin at these words."""
        at = self.calls
        for call, first in zip(program.calls, arguments, strict=True):
            for kernel in call.kernels:
                self.words[at : at + 3] = [kernels[kernel.name], kernel.tiles, self._at(first)]
                at += 3

    def _set_arguments(self, program: Program, calls: Sequence[Placed], fix: int, first: int) -> None:
        """Addresses in the arena, which stay, and a fix for each that depends on a buffer."""
        arena = address_of(self._arena) if program.arena.bytes else 0
        buffers = {row: FIRST_BUFFER + at for at, row in enumerate(program.buffers)}
        for argument, (row, offset) in enumerate(chain.from_iterable(calls), first):
            if row is None:
                self.words[argument] = arena + offset
            else:
                self.words[fix : fix + 3] = [self._at(argument), self._at(buffers[row]), offset]
                fix += 3

    def _at(self, word: int) -> int:
        return self.address + 8 * word


@cache
def enter() -> Callable[[int], None]:
    """The compiled function that runs the steps of a table, given its address."""
    return function(compiled(text()), "enter")


@cache
def text() -> str:
    """The native code that reads a table."""
    writer = Function("ptr %table")
    table = Operand(POINTER, "%table")

    def word(at: Operand, place: Integer, type: Type = INT64) -> Operand:
        return writer.load(type, writer.offset(at, INT64, place), 8)

    steps, run, calls, buffers, strides, fixes, call_count, buffer_count, fix_count = (
        word(table, place, POINTER if place in (RUN, CALLS, BUFFERS, STRIDES, FIXES) else INT64)
        for place in range(FIRST_BUFFER)
    )

    def fix(at: Integer) -> None:
        """Points an argument into its buffer, wherever that is in this step."""
        first = writer.multiply(at, 3)
        argument, buffer = (word(fixes, writer.add(first, place), POINTER) for place in (0, 1))
        offset = word(fixes, writer.add(first, 2))
        writer.store(Operand(INT64, written(writer.add(word(buffer, 0), offset))), argument, 8)

    def call(at: Integer) -> None:
        """Runs the tiles of a kernel: one here, several through the pool."""
        first = writer.multiply(at, 3)
        kernel, arguments = (word(calls, writer.add(first, place), POINTER) for place in (0, 2))
        tiles = word(calls, writer.add(first, 1))
        alone, several = (writer.let(TRUTH, f"icmp {order} {tiles}, 1") for order in ("eq", "ne"))
        writer.when(alone, lambda: writer.write(f"call void {kernel.text}({arguments}, i64 0)"))
        writer.when(several, lambda: writer.write(f"call void {run.text}({kernel}, {arguments}, {tiles})"))

    def move(at: Integer) -> None:
        """On to a buffer's place in the next step."""
        further = writer.add(word(buffers, at), word(strides, at))
        writer.store(Operand(INT64, written(further)), writer.offset(buffers, INT64, at), 8)

    def step(_: Integer) -> None:
        writer.loop(0, fix_count, 1, fix)
        writer.loop(0, call_count, 1, call)
        writer.loop(0, buffer_count, 1, move)

    writer.loop(0, steps, 1, step)
    return writer.text("steps") + guarded("enter", "steps")
