"""What the reference kernels cost: ns per multiply-add or per element, beside NumPy's own.

Run as `python benchmarks/reference.py`; NumPy's figures come from its BLAS and its pairwise sums, whose bits depend on
the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from topos import reference
from topos.element import bf16, f32, f64
from topos.element.element import Array, Element

PRODUCTS = [
    ((8, 8), (8, 8)),
    ((32, 32), (32, 32)),
    ((128, 128), (128, 128)),
    ((256, 256), (256, 256)),
    ((512, 512), (512, 512)),
    ((8, 128, 128), (8, 128, 128)),
    ((64, 32, 64), (64, 64, 32)),
    ((1000, 8, 8), (1000, 8, 8)),
    ((8, 768), (768, 3072)),
    ((1, 1024), (1024, 1024)),
    ((1024, 1024), (1024, 1)),
    ((1, 100000), (100000, 1)),
]
SUMS = [
    ((1 << 22,), 0),
    ((8192, 512), 1),
    ((65536, 64), 1),
    ((65536, 10), 1),
    ((4096, 1024), 0),
    ((1 << 21, 2), 0),
    ((64, 64, 64, 16), 2),
    ((32, 10), 1),
    ((10,), 0),
]


def best_s(call: Callable[[], object], repeats: int = 5) -> float:
    """The least of some wall times, in seconds, after one call to warm up."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def row(name: str, ours_s: float, count: int, theirs_s: float | None = None) -> None:
    theirs = f"{theirs_s / count * 1e9:10.3f}" if theirs_s is not None else " " * 10
    print(f"{name:44}{ours_s / count * 1e9:10.3f}{theirs}{ours_s * 1e6:12.1f}")


def drawn(rng: np.random.Generator, element: Element, shape: tuple[int, ...]) -> Array:
    return element.round(rng.standard_normal(shape))


def products(rng: np.random.Generator) -> None:
    print(f"\n{'matmul':44}{'ns/fma':>10}{'NumPy':>10}{'us/call':>12}")
    for element in (f32, f64, bf16):
        for left_shape, right_shape in PRODUCTS:
            left, right = drawn(rng, element, left_shape), drawn(rng, element, right_shape)
            name = f"{element} {'x'.join(map(str, left_shape))} @ {'x'.join(map(str, right_shape))}"
            # Ours first: the threads of a BLAS keep spinning for a while.
            ours = best_s(lambda e=element, a=left, b=right: reference.matmul(e, a, b), 3)  # type: ignore[misc]
            theirs = None if element is bf16 else best_s(lambda a=left, b=right: a @ b)  # type: ignore[misc]
            time.sleep(0.2)
            row(name, ours, left.size * right_shape[-1], theirs)
    small = np.asarray(rng.integers(-3, 4, (256, 256)), np.float32)
    left = drawn(rng, f32, (256, 256))
    row("f32 256x256 @ integers below 4", best_s(lambda: reference.matmul(f32, left, small), 3), 256**3)
    tiny = left * np.float32(1e-36)
    row("f32 256x256 near the subnormals", best_s(lambda: reference.matmul(f32, tiny, left), 3), 256**3)


def sums(rng: np.random.Generator) -> None:
    print(f"\n{'sum_along':44}{'ns/element':>10}{'NumPy':>10}{'us/call':>12}")
    for element in (f32, f64):
        for shape, axis in SUMS:
            array = drawn(rng, element, shape)
            ours = best_s(lambda e=element, x=array, i=axis: reference.sum_along(e, x, i))  # type: ignore[misc]
            theirs = best_s(lambda x=array, i=axis: x.sum(i))  # type: ignore[misc]
            row(f"{element} {'x'.join(map(str, shape))} along {axis}", ours, array.size, theirs)
    square = drawn(rng, f32, (2048, 2048))
    for name, view in (("transposed", square.T), ("broadcast", np.broadcast_to(square[:1], square.shape))):
        row(f"f32 2048x2048 {name}, all", best_s(lambda x=view: reference.sum(f32, x)), view.size, best_s(view.sum))


def others(rng: np.random.Generator) -> None:
    print(f"\n{'others, f32':44}{'ns/element':>10}{'':>10}{'us/call':>12}")
    x = drawn(rng, f32, (4096, 512))
    for kernel in (reference.max_along, reference.logsumexp, reference.log_softmax):
        row(f"{kernel.__name__} 4096x512 along 1", best_s(lambda k=kernel: k(f32, x, 1)), x.size)
    windows = drawn(rng, f32, (64, 126, 3, 64))
    row("fold 64x(126, 3)x64", best_s(lambda: reference.fold(f32, windows, 1, 3, 1, 1, 128)), windows.size)
    rows, table = drawn(rng, f32, (20000, 64)), drawn(rng, f32, (1000, 64))
    ids = rng.integers(0, 1000, 20000)
    row("gather 20000 rows of 64", best_s(lambda: reference.gather(f32, table, ids)), rows.size)
    row("scatter 20000 rows of 64 to 1000", best_s(lambda: reference.scatter(f32, rows, ids, 1000)), rows.size)
    row("scatter 20000 rows of 64 to one", best_s(lambda: reference.scatter(f32, rows, ids * 0, 1000)), rows.size)


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        for table_of in (products, sums, others):
            table_of(np.random.default_rng(0))
