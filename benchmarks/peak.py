"""What the machine can do at best: fused multiply-adds in registers, and reading memory once."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from topos.backend.native.compiler import Library, compiled
from topos.backend.native.target import current
from topos.tensor.memory import LINE, aligned

ROUNDS = 2_000_000
LEAST_BYTES, MOST_BYTES = 256 << 20, 1 << 30
PARTS = 4
"""Parts that a thread reads side by side: of one alone, the hardware fetches less ahead than memory brings."""


class Peak(NamedTuple):
    """The machine's best on some threads, in operations of f32 and bytes per second."""

    threads: int
    operations_per_s: float
    bytes_per_s: float

    def __str__(self) -> str:
        return f"{self.threads} threads: {self.operations_per_s / 1e9:.0f} GFLOP/s in f32, {self.gigabytes:.1f} GB/s"

    @property
    def gigabytes(self) -> float:
        """The read bandwidth in GB/s."""
        return self.bytes_per_s / 1e9


def measured_peak(threads: int, repeats: int = 5) -> Peak:
    """The best of some repeats: what else runs only takes away."""
    lanes = current().vector_bytes // 4
    operations = 2 * lanes * chains() * ROUNDS
    multiply = _function("multiply_add", ctypes.c_int64)
    read = _function("read", ctypes.c_void_p, ctypes.c_int64)
    memory = _memory()
    part = len(memory) // (threads * PARTS) // LINE * LINE
    starts = [int(memory.ctypes.data) + at * PARTS * part for at in range(threads)]
    multiplied = min(_together([lambda: multiply(ROUNDS)] * threads) for _ in range(repeats))
    passed = min(_together([lambda start=start: read(start, part) for start in starts]) for _ in range(repeats))  # type: ignore[misc]
    return Peak(threads, operations * threads / multiplied, PARTS * part * threads / passed)


def _together(calls: list[Callable[[], object]]) -> float:
    """How long several threads take from the first start to the last end; the calls hold no lock of Python's."""
    gate = threading.Barrier(len(calls))
    spans: list[tuple[float, float]] = []

    def run(call: Callable[[], object], at: int) -> None:
        if hasattr(os, "sched_setaffinity"):  # of this thread alone: a scheduler may be slow to part two
            processors = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {processors[at % len(processors)]})
        gate.wait()
        start = time.perf_counter()
        call()
        spans.append((start, time.perf_counter()))

    threads = [threading.Thread(target=run, args=(call, at)) for at, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(end for _, end in spans) - min(start for start, _ in spans)


@cache
def _memory() -> Any:
    """Memory that no cache holds, on a line's boundary, every page of it written."""
    size = min(max(2 * _last_cache_bytes(), LEAST_BYTES), MOST_BYTES)
    block = aligned(size, np.uint8)
    block.fill(1)
    return block


def _last_cache_bytes() -> int:
    """The size of the largest cache, or 0 where the system does not say."""
    sizes = [0]
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = file.read_text(encoding="utf-8").strip()
        unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KM")) * unit)
    return max(sizes)


@cache
def _library() -> Library:
    return compiled([multiply_add_text(current().vector_bytes // 4, chains()), read_text()])


def _function(name: str, *arguments: Any) -> Callable[..., float]:
    function: Callable[..., float] = ctypes.CFUNCTYPE(ctypes.c_float, *arguments)(_library().addresses[name])
    return function


def chains() -> int:
    """Independent accumulators, all in registers: more than its latency times how many begin at once."""
    return current().registers * 3 // 4


def multiply_add_text(lanes: int, count: int) -> str:
    """`float @multiply_add(i64 %rounds)`: every one of `count` chains one fused multiply-add a round."""
    kind = f"<{lanes} x float>"
    starts = [f"  %c{at} = phi {kind} [ zeroinitializer, %entry ], [ %d{at}, %loop ]" for at in range(count)]
    steps = [
        f"  %d{at} = call {kind} @llvm.fma.v{lanes}f32({kind} %factor, {kind} %factor, {kind} %c{at})"
        for at in range(count)
    ]
    sums, total = _added([f"%d{at}" for at in range(count)], kind, "fadd")
    return "\n".join(
        [
            f"declare {kind} @llvm.fma.v{lanes}f32({kind}, {kind}, {kind})",
            "define float @multiply_add(i64 %rounds) {",
            "entry:",
            "  %whole = sitofp i64 %rounds to float",
            f"  %one = insertelement {kind} poison, float %whole, i64 0",
            f"  %factor = shufflevector {kind} %one, {kind} poison, <{lanes} x i32> zeroinitializer",
            "  br label %loop",
            "loop:",
            "  %round = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *starts,
            *steps,
            "  %next = add nuw nsw i64 %round, 1",
            "  %more = icmp slt i64 %next, %rounds",
            "  br i1 %more, label %loop, label %after",
            "after:",
            *sums,
            f"  %answer = extractelement {kind} {total}, i64 0",
            "  ret float %answer",
            "}",
            "",
        ]
    )


def read_text() -> str:
    """`float @read(ptr %start, i64 %bytes)`: every line of `PARTS` parts of so many bytes once, and a sum of each."""
    kind, turns = "<16 x i32>", range(PARTS)
    starts = [f"  %c{at} = phi {kind} [ zeroinitializer, %entry ], [ %d{at}, %loop ]" for at in turns]
    steps: list[str] = []
    for at in turns:
        steps += [
            f"  %b{at} = mul nuw nsw i64 %bytes, {at}",
            f"  %o{at} = add nuw nsw i64 %place, %b{at}",
            f"  %p{at} = getelementptr i8, ptr %start, i64 %o{at}",
            f"  %v{at} = load {kind}, ptr %p{at}, align 64",
            f"  %d{at} = add {kind} %c{at}, %v{at}",
        ]
    sums, total = _added([f"%d{at}" for at in turns], kind, "add")
    return "\n".join(
        [
            "define float @read(ptr %start, i64 %bytes) {",
            "entry:",
            "  br label %loop",
            "loop:",
            "  %place = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *starts,
            *steps,
            f"  %next = add nuw nsw i64 %place, {LINE}",
            "  %more = icmp slt i64 %next, %bytes",
            "  br i1 %more, label %loop, label %after",
            "after:",
            *sums,
            f"  %number = extractelement {kind} {total}, i64 0",
            "  %answer = sitofp i32 %number to float",
            "  ret float %answer",
            "}",
            "",
        ]
    )


def _added(names: list[str], kind: str, operation: str) -> tuple[list[str], str]:
    """The text that adds up vectors, and the name of the sum."""
    lines, total = [], names[0]
    for at, name in enumerate(names[1:]):
        lines.append(f"  %t{at} = {operation} {kind} {total}, {name}")
        total = f"%t{at}"
    return lines, total


if __name__ == "__main__":
    for count in map(int, sys.argv[1:] or ("1", "2")):
        print(json.dumps(measured_peak(count)._asdict()))
