"""Native products beside `numpy.matmul` on one thread: GFLOP/s, or GB/s where a matrix is read once; compile times.

Run as `python benchmarks/native_products.py [part of a case's name ...]`. Both sides take turns, and the least time of
each counts: other processes on the machine then disturb the ratio little.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"
if os.environ.pop("OPENBLAS_CORETYPE", None) or os.environ.pop("OPENBLAS_L2_SIZE", None):
    os.execv(sys.executable, [sys.executable, *sys.argv])  # a library reads them when it is loaded

import numpy as np  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "backend" / "native"))
from product_compiler import Compiled, host, task_of  # noqa: E402

from topos.backend.native.products import explain, product  # noqa: E402

SQUARES = [(n, n, n, dtype, "", "") for dtype in ("f32", "f64") for n in (128, 256, 512, 1024, 2048)]
OTHERS = [
    (4, 2304, 768, "f32", "", ""),
    (64, 6272, 27, "f32", "", ""),
    (32, 30, 200, "f32", "", ""),
    (32, 200, 27, "f32", "", ""),
    (128, 784, 512, "f32", "", ""),
    (512, 512, 512, "f32", "T", ""),
    (512, 512, 512, "f32", "", "T"),
    (1, 768, 50257, "f32", "", ""),
    (1, 768, 50257, "f32", "", "T"),
    (1, 100000, 1, "f32", "", ""),
]


def drawn(shape: tuple[int, ...], dtype: Any, transposed: bool) -> Any:
    """Numbers on a boundary of 64 bytes, as every buffer of a plan has them."""
    rng = np.random.default_rng(1)
    shape = shape[::-1] if transposed else shape
    size = int(np.prod(shape))
    raw = np.empty(size * np.dtype(dtype).itemsize + 64, np.uint8)
    start = -raw.ctypes.data % 64
    array = raw[start : start + size * np.dtype(dtype).itemsize].view(dtype).reshape(shape)
    array[...] = rng.standard_normal(shape)
    return array.T if transposed else array


def least_s(calls: list[Callable[[], None]], budget_s: float) -> list[float]:
    """The least time of each call, taking turns."""
    best = [float("inf")] * len(calls)
    end = time.perf_counter() + budget_s
    while time.perf_counter() < end:
        for place, call in enumerate(calls):
            start = time.perf_counter()
            call()
            best[place] = min(best[place], time.perf_counter() - start)
    return best


class Pair:
    """A second thread that runs the odd tiles while the caller runs the even ones."""

    def __init__(self, run: Callable[[Any, int], None], block: Any, tiles: int) -> None:
        self.run, self.block, self.tiles = run, block, tiles
        self.go, self.done = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            self.go.acquire()
            for tile in range(1, self.tiles, 2):
                self.run(self.block, tile)
            self.done.release()

    def __call__(self) -> None:
        self.go.release()
        for tile in range(0, self.tiles, 2):
            self.run(self.block, tile)
        self.done.acquire()


def main(wanted: list[str]) -> None:
    target = host()
    print(f"{'case':32}{'numpy':>9}{'one':>9}{'ratio':>7}{'two':>9}{'us':>10}{'compile ms':>12}  kind")
    for rows, terms, columns, element, left_form, right_form in SQUARES + OTHERS:
        name = f"{element} {rows}x{terms}{left_form} @ {terms}x{columns}{right_form}"
        if wanted and not any(part in name for part in wanted):
            continue
        dtype = {"f32": np.float32, "f64": np.float64}[element]
        left, right = drawn((rows, terms), dtype, left_form == "T"), drawn((terms, columns), dtype, right_form == "T")
        out, theirs = drawn((rows, columns), dtype, False), drawn((rows, columns), dtype, False)
        task = task_of(left, right, out, element)
        start = time.perf_counter()
        kernel = product(task, target)
        function = Compiled(kernel, target)
        compile_s = time.perf_counter() - start
        scratch = drawn((kernel.scratch_bytes // 4 + 64,), np.float32, False)
        block = (ctypes.c_void_p * 4)(*[array.ctypes.data for array in (left, right, out, scratch)])
        run, tiles = function.run, kernel.tiles

        def ours(run: Any = run, block: Any = block, tiles: int = tiles) -> None:
            for tile in range(tiles):
                run(block, tile)

        def numpy(left: Any = left, right: Any = right, out: Any = theirs) -> None:
            np.matmul(left, right, out=out)

        pair = Pair(run, block, tiles)
        ours()
        numpy()
        one, other, two = least_s([ours, numpy, pair], 2.0 if rows < 1024 else 6.0)
        assert np.allclose(out, theirs, rtol=1e-3, atol=1e-2 if element == "f32" else 1e-9)
        amount = 2e-9 * rows * terms * columns
        if rows == 1 and columns > 1:
            amount = 1e-9 * right.nbytes
            name += " GB/s"
        print(
            f"{name:32}{amount / other:9.1f}{amount / one:9.1f}{other / one:7.2f}{amount / two:9.1f}{one * 1e6:10.1f}"
            f"{compile_s * 1e3:12.1f}  {explain(task, target)}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
