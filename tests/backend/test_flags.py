"""The floating-point mode around a native plan: a caller's own is left as it was, and reaches no bit."""

from __future__ import annotations

import ctypes
import mmap
import platform
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from topos import ExactnessError, Tape, f32, f64
from topos.backend.native import pool
from topos.testing import assert_same_bits

from .plans import Case, lowered, recorded, threads, with_lengths

x86 = pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.system() != "Linux", reason="sets the control word of an x86-64"
)

FLUSHES = {"results flushed": 0x8000, "operands flushed": 0x0040, "both": 0x8040}
ROUNDINGS = {"down": 0x2000, "up": 0x4000, "towards zero": 0x6000}
DEFAULT = 0x1F80
EXCEPTIONS = 0x003F
"""The sticky bits: any arithmetic sets them, and nobody minds."""


class Word:
    """This thread's control word, read and written by two instructions."""

    def __init__(self) -> None:
        self._code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._code.write(bytes.fromhex("0fae1fc3 0fae17c3"))  # stmxcsr [rdi]; ret; ldmxcsr [rdi]; ret
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._code))
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        self._store, self._load = kind(self.address), kind(self.address + 4)

    def read(self) -> int:
        word = ctypes.c_uint32()
        self._store(ctypes.addressof(word))
        return word.value & ~EXCEPTIONS

    def write(self, number: int) -> None:
        word = ctypes.c_uint32(number)  # lives until the load returns: another thread may run in between
        self._load(ctypes.addressof(word))

    @contextmanager
    def of(self, number: int) -> Iterator[None]:
        before = self.read()
        self.write(number)
        try:
            yield
        finally:
            self.write(before)


def subnormal_case(length: int = 1000) -> Case:
    """Where flushing or another rounding shows in every element."""

    def record(tape: Tape) -> Any:
        x, scale = tape.input(shape=[length, 3]), tape.input(shape=[3, 2])
        results = [x * 0.5, x + x, x / 3.0, (x * 1e30).exp(), x.sum_along(0), x @ scale, x.to(f64) * 1e-300, x.sum()]
        patterns = np.arange(1, 3 * length + 1, dtype=np.uint32).view(np.float32).reshape(length, 3)
        return results, {x: patterns, scale: np.full((3, 2), 0.7, np.float32)}

    return recorded(record, f32)


def elsewhere(work: Callable[[], Any]) -> Any:
    """What the work answers on a thread of its own: the control word is a thread's."""
    with ThreadPoolExecutor(1) as one:
        return one.submit(work).result()


@x86
@pytest.mark.parametrize("flags", [*FLUSHES, *ROUNDINGS])
def test_another_mode_in_the_calling_thread_reaches_no_bit(flags: str) -> None:
    """A native run is right or refuses; either way the caller finds the mode as it was."""
    case = subnormal_case()
    plan, expected, word = case.plan, case.expected(), Word()
    mode = DEFAULT | {**FLUSHES, **ROUNDINGS}[flags]

    def under() -> tuple[Any, int]:
        with word.of(mode):
            try:
                answer: Any = case.actual(plan)
            except ExactnessError as error:
                answer = str(error)
            return answer, word.read()

    answer, after = elsewhere(under)
    assert after == mode
    if isinstance(answer, str):
        assert answer.startswith("run: this thread ")
    else:
        case.compare(answer, expected)
    case.compare(case.actual(plan), expected)


@x86
def test_a_plan_that_is_first_run_under_another_mode() -> None:
    """Compiled, started and run by a thread that flushes: what it leaves behind is not its mode."""
    case = subnormal_case(70_000)
    expected, word = case.expected(), Word()

    def under() -> int:
        with word.of(DEFAULT | 0x8040):
            with suppress(ExactnessError):
                case.compare(case.actual(case.plan), expected)
            return word.read()

    with threads(3):
        assert elsewhere(under) == DEFAULT | 0x8040
        case.compare(case.actual(case.plan), expected)


@x86
def test_the_threads_of_the_pool_do_not_inherit_a_mode() -> None:
    """A thread starts with the mode of the one that starts it; a worker of ours has the default all the same."""
    case = subnormal_case(70_000)
    plan, expected, word = case.plan, case.expected(), Word()

    def start() -> None:
        with word.of(DEFAULT | 0x8040):
            pool.pool().ready()

    with threads(4):
        elsewhere(start)
        for _ in range(5):
            case.compare(case.actual(plan), expected)


@x86
def test_c24_flags_in_workers_and_afterwards() -> None:
    """Every thread that runs tiles has subnormals and rounds to nearest, and NumPy's arithmetic is as it was."""
    word = Word()
    before = word.read()
    seen = modes_of_tiles(64)
    assert seen == {DEFAULT}
    case = recorded(with_lengths([(300, 301)], 3), f32)
    with threads(4):
        case.check()
        assert modes_of_tiles(64) == {DEFAULT}
    assert word.read() == before
    assert (np.float32(1e-45) * np.float32(2)).view(np.uint32) == 2
    assert np.array([1e-45, 1e-45], np.float32).sum().view(np.uint32) == 2


def modes_of_tiles(tiles: int) -> set[int]:
    """The control words that the tiles of a job find."""
    from topos.backend.native.compiler import compiled

    text = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare i32 @usleep(i32)
define void @seen(ptr %words, i64 %tile, i64 %worker) {
  %word = getelementptr i32, ptr %words, i64 %tile
  call void @llvm.x86.sse.stmxcsr(ptr %word)
  %unused = call i32 @usleep(i32 200)
  ret void
}
"""
    words = np.zeros(tiles, np.uint32)
    library = compiled(text)
    pool.pool().run(library.addresses["seen"], words.ctypes.data, tiles)
    return {int(word) & ~EXCEPTIONS for word in words}


@x86
def test_threads_with_different_modes_at_once() -> None:
    """One flushes, one does not: neither hears of the other."""
    case = subnormal_case(3000)
    plan, expected, word = case.plan, case.expected(), Word()
    barrier = threading.Barrier(2)

    def work(mode: int) -> int:
        barrier.wait()
        for _ in range(20):
            with word.of(mode):
                try:
                    case.compare(case.actual(plan), expected)
                except ExactnessError:
                    assert mode != DEFAULT
                assert word.read() == mode
        return mode

    with threads(2), ThreadPoolExecutor(2) as two:
        assert list(two.map(work, [DEFAULT, DEFAULT | 0x8040])) == [DEFAULT, DEFAULT | 0x8040]


def test_subnormals_survive_a_native_plan() -> None:
    """C24: the smallest number is not zero, and doubling and halving are exact."""

    def record(tape: Tape) -> Any:
        x, normal = tape.input(shape=[40]), tape.input(shape=[40])
        chosen = x.select(x.one_like(), x.zero_like())
        return [chosen, x * 1, x * 2, normal / 2, x.sum()], {
            x: np.full(40, 1e-45, np.float32),
            normal: np.full(40, 1.1754944e-38, np.float32),
        }

    case = recorded(record, f32)
    lowered(case.network.entry(case.roots))
    chosen, once, twice, half, total = case.check()
    assert_same_bits(chosen, np.ones(40, np.float32))
    for array, pattern in ((once, 1), (twice, 2), (half, 0x00400000), (total, 40)):
        assert (array.view(np.uint32) == pattern).all()
