"""Native products beside `numpy.matmul` on as many threads: times, GFLOP/s, and bandwidth where a matrix is read once.

Run as `python -m benchmarks.native_products [-t 1,2] [-s seconds] [-m MiB] [part of a case's name ...]`. The two sides
take turns in short rounds, and the least time and the lower quartile of each count: other processes on the machine then
disturb their ratio little. A product that reads a matrix once has another copy of it each time, out of `-m` MiB in all,
so that no cache holds it (`-m 0`: always the same). Beside it stands a plain sum over the same memory; the first lines
say what such a sum reaches over one large block, and `of memory` is the product's part of that.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

# A worker of the library that waits for long, awake, would run against the other side.
os.environ["OPENBLAS_THREAD_TIMEOUT"] = "18"
os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")
os.environ["TOPOS_CACHE"] = tempfile.mkdtemp(prefix="topos-benchmark-")

import numpy as np  # noqa: E402

from benchmarks.peak import PARTS  # noqa: E402
from topos.backend.native.compiler import compiled  # noqa: E402
from topos.backend.native.kernel import Kernel, named  # noqa: E402
from topos.backend.native.pool import pool  # noqa: E402
from topos.backend.native.products import Batch, ProductTask, explain, product  # noqa: E402
from topos.backend.native.target import current  # noqa: E402
from topos.tensor.memory import aligned  # noqa: E402

DTYPES = {"f32": np.float32, "f64": np.float64}
PROBE_TILES = 16


class Case(NamedTuple):
    """`T` in a form: the operand is the transpose of a matrix in memory; `stored` is the right operand's element."""

    rows: int
    terms: int
    columns: int
    element: str = "f32"
    forms: str = "  "
    batch: int = 1
    stored: str = ""

    @property
    def name(self) -> str:
        """As a product of shapes."""
        batch = f"{self.batch}x" if self.batch > 1 else ""
        left, right = self.forms
        words = f"{self.element} {batch}{self.rows}x{self.terms}{left.strip()} @ {self.terms}x{self.columns}"
        return words + right.strip() + (f" {self.stored}" if self.stored else "")


def text_of_probe(name: str, size: int) -> str:
    """A sum over a part of `size` bytes, in two vectors for each of `PARTS`."""
    part = size // PROBE_TILES // PARTS // 128 * 128
    share, lanes = part * PARTS, range(2 * PARTS)
    lines = [
        f"define void @{name}(ptr %arguments, i64 %tile, i64 %worker) nounwind {{",
        "entry:",
        "  %from = load ptr, ptr %arguments, align 8",
        "  %slot = getelementptr i8, ptr %arguments, i64 8",
        "  %to = load ptr, ptr %slot, align 8",
        f"  %start = mul i64 %tile, {share}",
        "  %base = getelementptr i8, ptr %from, i64 %start",
        "  %room = mul i64 %tile, 512",
        "  %mine = getelementptr i8, ptr %to, i64 %room",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %j, %loop ]",
        *(f"  %s{k} = phi <16 x float> [ zeroinitializer, %entry ], [ %t{k}, %loop ]" for k in lanes),
        "  %here = getelementptr i8, ptr %base, i64 %i",
        *(f"  %p{k} = getelementptr i8, ptr %here, i64 {k // 2 * part + k % 2 * 64}" for k in lanes),
        *(f"  %x{k} = load <16 x float>, ptr %p{k}, align 4" for k in lanes),
        *(f"  %t{k} = fadd <16 x float> %s{k}, %x{k}" for k in lanes),
        "  %j = add i64 %i, 128",
        f"  %more = icmp slt i64 %j, {part}",
        "  br i1 %more, label %loop, label %end",
        "end:",
        *(f"  %q{k} = getelementptr i8, ptr %mine, i64 {64 * k}" for k in lanes),
        *(f"  store <16 x float> %t{k}, ptr %q{k}, align 4" for k in lanes),
        "  ret void",
        "}",
        "",
    ]
    return "\n".join(lines)


def probe(arrays: list[Any]) -> Callable[[], None]:
    """A call that reads all the memory of an array once, of the next one each time."""
    kernel = named("probe", lambda name: text_of_probe(name, arrays[0].nbytes), PROBE_TILES)
    sums = drawn((PROBE_TILES * 128,), np.float32)
    return called([kernel], [[array, sums] for array in arrays])


def drawn(shape: tuple[int, ...], dtype: Any, transposed: bool = False) -> Any:
    """Numbers that begin on a cache line, as every buffer of a plan does."""
    shape = (*shape[:-2], shape[-1], shape[-2]) if transposed else shape
    array = aligned(shape, dtype)
    few = np.random.default_rng(1).standard_normal(1 << 16)
    array.reshape(-1)[...] = np.resize(few.astype(dtype), array.size)
    return array.swapaxes(-1, -2) if transposed else array


def called(kernels: list[Kernel], choices: list[list[Any]]) -> Callable[[], None]:
    """A call of kernels one after another, their tiles shared among the threads; over the next arrays each time."""
    library = compiled(["\n".join([*kernel.helpers, kernel.text]) for kernel in kernels])
    scratch = drawn((max(kernel.scratch_bytes for kernel in kernels) // 4 + 16,), np.float32)
    held = [[*arrays, scratch] for arrays in choices]
    blocks = [(ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays]) for arrays in held]
    jobs = [(library.addresses[kernel.name], kernel.tiles) for kernel in kernels]
    turns = cycle([ctypes.addressof(block) for block in blocks])

    def call(held: Any = (held, blocks, library)) -> None:
        block = next(turns)
        for address, tiles in jobs:
            pool().run(address, block, tiles)

    return call


def copies(array: Any, size: int) -> list[Any]:
    """The array and as many copies of it, as it lies, as take `size` bytes in all."""
    found = [array]
    while len(found) * array.nbytes < size:
        order = np.argsort([-abs(stride) for stride in array.strides], kind="stable")
        copy = aligned([array.shape[axis] for axis in order], array.dtype).transpose(np.argsort(order))
        copy[...] = array
        found.append(copy)
    return found


def times_s(calls: list[Callable[[], None]], budget_s: float) -> list[list[float]]:
    """The times of each call, taking turns in rounds of about ten milliseconds."""
    found: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + budget_s
    while time.perf_counter() < end or not found[-1]:
        for call, mine in zip(calls, found, strict=True):
            time.sleep(0.0005)
            call()
            round_ends = time.perf_counter() + 0.01
            while True:
                start = time.perf_counter()
                call()
                now = time.perf_counter()
                mine.append(now - start)
                if now > round_ends:
                    break
    return found


def blas_threads() -> Callable[[int], object]:
    """What sets the number of OpenBLAS threads in the library that NumPy brings; elsewhere it stays as it is."""
    for path in Path(np.__file__).parent.parent.glob("numpy.libs/*openblas*"):
        return ctypes.CDLL(str(path)).scipy_openblas_set_num_threads64_  # type: ignore[no-any-return]
    return lambda number: None


def task_of(case: Case, arrays: list[Any]) -> ProductTask:
    """The task of three arrays."""
    steps = [[stride // array.itemsize for stride in array.strides] for array in arrays]
    batch = (Batch(case.batch, *[step[0] for step in steps]),) if case.batch > 1 else ()
    left, right, out = ((step[-2], step[-1]) for step in steps)
    return ProductTask(
        case.element, case.rows, case.terms, case.columns, left, right, out, batch, right_element=case.stored
    )


def measured(case: Case, threads: int, budget_s: float, size: int, memory_bytes_per_s: float) -> str:
    """One line of the table."""
    dtype = DTYPES[case.element]
    batch = (case.batch,) if case.batch > 1 else ()
    left = drawn((*batch, case.rows, case.terms), dtype, case.forms[0] == "T")
    right = drawn((*batch, case.terms, case.columns), dtype, case.forms[1] == "T")
    out, theirs = (drawn((*batch, case.rows, case.columns), dtype) for _ in range(2))
    stored = right
    if case.stored:
        right.view(np.uint32)[...] &= 0xFFFF0000
        flat = (right.swapaxes(-1, -2) if case.forms[1] == "T" else right).view(np.uint16)[..., 1::2]
        stored = np.ascontiguousarray(flat)
        stored = stored.swapaxes(-1, -2) if case.forms[1] == "T" else stored
    task = task_of(case, [left, stored, out])
    start = time.process_time()
    kernels = list(product(task, current()))
    is_read_once = case.rows <= 8 and right.nbytes > 1 << 15
    tables = copies(stored, size if is_read_once else 0)
    ours = called(kernels, [[left, table, out] for table in tables])
    compile_s = time.process_time() - start
    theirs_next = cycle(tables if stored is right else [right])
    numpy = lambda: np.matmul(left, next(theirs_next), out=theirs)  # noqa: E731
    ours()
    numpy()
    assert np.allclose(out, theirs, rtol=1e-3, atol=1e-2 if case.element == "f32" else 1e-9)
    calls = [ours, numpy, *([probe(tables)] if is_read_once else [])]
    found = times_s(calls, budget_s)
    amount, unit = 2e-9 * task.work, "GFLOP/s"
    if is_read_once:
        amount, unit = 1e-9 * (stored.nbytes + (left.nbytes if case.columns == 1 else 0)), "GB/s"
    least = [min(mine) for mine in found]
    quartile = [float(np.quantile(mine, 0.25)) for mine in found]
    line = f"{case.name:34}{threads:2}{least[0] * 1e6:11.1f} us{amount / least[0]:8.1f} {unit:8}"
    line += f" numpy{amount / least[1]:8.1f}  ratio{least[1] / least[0]:6.2f} quartiles{quartile[1] / quartile[0]:6.2f}"
    if is_read_once:
        line += f"  of memory {1e9 * amount / least[0] / memory_bytes_per_s:.2f}"
        # The sum reads the right operand alone; of two vectors, the product reads as much of both.
        more = 1e9 * amount / stored.nbytes
        line += f"  sum {amount / more / least[2]:.1f}: {more * least[2] / least[0]:.2f}"
        line += f" quartiles {more * quartile[2] / quartile[0]:.2f}"
    tiles = "+".join(str(kernel.tiles) for kernel in kernels)
    return f"{line}  compile {compile_s * 1e3:.0f} ms, tiles {tiles}, {explain(task, current())}"


CASES = [
    *(Case(n, n, n, element) for element in ("f32", "f64") for n in (128, 256, 512, 1024, 2048)),
    # A weight read once: decoding.
    Case(1, 768, 50257),
    Case(1, 768, 50257, forms=" T"),
    Case(1, 768, 50257, forms=" T", stored="bf16"),
    Case(1, 768, 50257, stored="bf16"),
    Case(4, 768, 2304),
    Case(1, 768, 2304),
    Case(1, 768, 3072),
    Case(1, 3072, 768),
    Case(1, 768, 3072, stored="bf16"),
    Case(1, 768, 3072, forms=" T"),
    Case(1, 3072, 768, forms=" T"),
    Case(1, 3072, 768, forms=" T", stored="bf16"),
    Case(1, 768, 50257, "f64"),
    Case(1, 768, 50257, "f64", forms=" T"),
    *(Case(rows, 768, 3072, forms=forms) for rows in (2, 4, 8) for forms in ("  ", " T")),
    Case(8, 768, 50257),
    Case(8, 768, 50257, forms=" T"),
    *(Case(1, 64, places, forms=" T", batch=12) for places in (256, 1024)),
    *(Case(1, places, 64, batch=12) for places in (256, 1024)),
    Case(1, 64, 256, batch=12),
    # One step of makemore.
    Case(32, 30, 200),
    Case(32, 200, 27),
    Case(30, 32, 200, forms="T "),
    Case(32, 27, 200, forms=" T"),
    Case(200, 32, 27, forms="T "),
    Case(32, 200, 30, forms=" T"),
    # Training of a perceptron.
    Case(128, 784, 512),
    Case(128, 512, 512),
    Case(784, 128, 512, forms="T "),
    Case(512, 128, 512, forms="T "),
    Case(128, 512, 512, forms=" T"),
    Case(128, 512, 10),
    Case(512, 128, 10, forms="T "),
    Case(128, 10, 512, forms=" T"),
    # Attention with its projections.
    Case(256, 768, 2304),
    Case(256, 64, 256, batch=12),
    Case(256, 64, 256, forms=" T", batch=12),
    Case(256, 256, 64, batch=12),
    Case(256, 768, 768),
    Case(256, 768, 3072),
    Case(256, 3072, 768),
    # Convolutions: forward, and the gradient of a kernel.
    Case(64, 27, 6272),
    Case(64, 100352, 27, forms=" T"),
    Case(27, 100352, 64, forms=" T"),
    Case(1, 100000, 1),
    Case(1, 10000000, 1),
    Case(4, 1000000, 3, forms=" T"),
]


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-t", dest="threads", default="1,2")
    parser.add_argument("-s", dest="seconds", type=float, default=1.0)
    parser.add_argument("-m", dest="size", type=int, default=640)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    set_blas = blas_threads()
    for threads in map(int, options.threads.split(",")):
        pool().threads(threads)
        set_blas(threads)
        big = np.ones(3 << 28, np.uint8).view(np.float32)
        (found,) = times_s([probe([big])], options.seconds)
        print(
            f"{threads} threads: a sum reads {big.nbytes / min(found) * 1e-9:.1f} GB/s of {big.nbytes >> 20} MiB",
            flush=True,
        )
        for case in CASES:
            if not options.names or any(part in case.name for part in options.names):
                print(measured(case, threads, options.seconds, options.size << 20, big.nbytes / min(found)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
