"""Distances in ulp from the exact value, by mpmath; and the operands at which functions are graded.

`PYTHONPATH=src python tests/element/accuracy.py 1000000 [function ...]` prints a table.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from mpmath import mp, mpf

Array = np.ndarray[Any, np.dtype[Any]]

FORMATS = {"f32": (24, -149, 128), "f64": (53, -1074, 1024)}
"""Bits of precision, exponent of the least subnormal, exponent of overflow."""
DTYPES = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}
CHUNK = 5000


def held(x: mpf) -> mpf:
    """`x` within a range beyond which an exponential has long over- or underflown."""
    return min(max(x, mpf(-4000)), mpf(4000))


def power(x: mpf, y: mpf) -> mpf:
    """`x^y` for `x > 0`, or `x < 0` and a whole `y`; extreme results are held."""
    log = held(y * mp.log(abs(x)))
    magnitude = abs(x) ** y if abs(log) < 4000 else mp.exp(log)
    return -magnitude if x < 0 and int(y) % 2 else magnitude


EXACT: dict[str, Callable[..., mpf]] = {
    "exp": lambda x: mp.exp(held(x)),
    "ln": mp.log,
    "sqrt": mp.sqrt,
    "tanh": lambda x: mp.tanh(held(x)),
    "sin": mp.sin,
    "cos": mp.cos,
    "log1p": mp.log1p,
    "expm1": lambda x: mp.expm1(held(x)),
    "erf": lambda x: mp.erf(min(max(x, mpf(-30)), mpf(30))),
    "erf_derivative": lambda x: 2 / mp.sqrt(mp.pi) * mp.exp(-(min(abs(x), mpf(60)) ** 2)),
    "powf": power,
}


def distance(result: float, exact: mpf, element: str) -> float:
    """`|result - exact|` in units of the last place of `exact` in the format; infinity stands one step past the end.

    A NaN, or an infinity of the wrong sign, is infinitely far away.
    """
    precision, least, overflow = FORMATS[element]
    if math.isnan(result):
        return math.inf
    if abs(exact) >= mpf(2) ** overflow:
        exact = mp.sign(exact) * mpf(2) ** overflow
    value = math.copysign(1, result) * mpf(2) ** overflow if math.isinf(result) else mpf(result)
    exponent = max(mp.frexp(exact)[1] - precision, least) if exact else least
    exponent = min(exponent, overflow - precision)
    return float(mp.ldexp(abs(value - exact), -exponent))


def chunk_distances(function: str, element: str, operands: list[list[float]], results: list[float]) -> list[float]:
    """The distances of one chunk."""
    mp.prec = 120
    exact = EXACT[function]
    return [
        distance(result, exact(*map(mpf, values)), element)
        for result, *values in zip(results, *operands, strict=True)
    ]  # fmt: skip


def distances(
    function: str, element: str, operands: tuple[Array, ...], results: Array, parallel: bool = False
) -> Array:
    """The distance of every result from the exact value; operands finite and in the domain."""
    jobs = []
    for start in range(0, results.size, CHUNK):
        part = slice(start, start + CHUNK)
        jobs.append((function, element, [x[part].tolist() for x in operands], results[part].tolist()))
    if not parallel:
        return np.array([d for job in jobs for d in chunk_distances(*job)])
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return np.array([d for part in pool.map(chunk_distances, *zip(*jobs, strict=True)) for d in part])


# operands
def everywhere(generator: np.random.Generator, element: str, count: int) -> Array:
    """Numbers of every exponent and both signs, subnormals among them; infinities and NaN give way to one."""
    dtype = DTYPES[element]
    width = 8 * dtype.itemsize
    patterns = generator.integers(0, 2**width, count, dtype=np.uint64).astype(f"u{dtype.itemsize}")
    numbers: Array = patterns.view(dtype)
    return np.where(np.isfinite(numbers), numbers, dtype.type(1))


def near(
    generator: np.random.Generator, points: Iterator[float] | list[float], count: int, dtype: np.dtype[Any]
) -> Array:
    """Numbers within a few hundred steps of the given points."""
    centres = generator.choice(np.array(list(points), dtype), count)
    integer = np.dtype(f"i{dtype.itemsize}")
    steps = np.rint(generator.standard_normal(count) * 10 ** generator.uniform(0, 2.5, count)).astype(integer)
    moved: Array = (centres.view(integer) + steps).view(dtype)
    return moved


def spread(generator: np.random.Generator, low: float, high: float, count: int) -> Array:
    """Magnitudes evenly spread over the powers of ten `low .. high`, with random signs."""
    with np.errstate(under="ignore"):
        return generator.choice([-1.0, 1.0], count) * 10 ** generator.uniform(low, high, count)


def operands(function: str, element: str, count: int, seed: int = 20) -> tuple[Array, ...]:
    """At least `count` points for a function: every exponent, and the ranges and edges where it is hard."""
    g = np.random.default_rng(seed)
    n = count // 4 + 1
    dtype = DTYPES[element]
    tiny = -45 if element == "f32" else -323
    huge = 38 if element == "f32" else 308
    low, edge, high = (-104.0, -87.0, 88.8) if element == "f32" else (-745.3, -708.0, 709.9)
    uniform = g.uniform
    if function == "powf":
        return power_operands(g, element, n)
    ranges: dict[str, list[Array]] = {
        "exp": [uniform(low, high, n), uniform(-1, 1, n), uniform(low, edge, n), spread(g, tiny, 3, n // 4)],
        "expm1": [uniform(-40, high, n), uniform(-1.5, 1.5, n), spread(g, tiny, 2, n), uniform(high - 1, high, n // 4)],
        "tanh": [uniform(-22, 22, n), uniform(-1, 1, n), spread(g, tiny, 1, n)],
        "ln": [10 ** uniform(tiny, huge, n), uniform(0.4, 2.5, n), np.abs(1 + spread(g, -16, -0.1, n))],
        "log1p": [10 ** uniform(tiny, huge, n), uniform(-1, 1, n), spread(g, -20, -0.001, n), uniform(-1, 4, n)],
        "sin": [uniform(-8, 8, n), uniform(-2e6, 2e6, n), spread(g, tiny, huge, n),
                np.rint(spread(g, 0, 6, n)) * (np.pi / 2)],
        "erf": [uniform(-6.5, 6.5, n), uniform(-1.1, 1.1, n), uniform(0.9, 1.5, n), spread(g, tiny, 1, n)],
        "erf_derivative": [uniform(-27.5, 27.5, n), uniform(-1, 1, n), uniform(9, 10.5, n), uniform(26, 27.4, n)],
        "sqrt": [uniform(0, 4, n), 10 ** uniform(tiny, huge, n)],
    }  # fmt: skip
    ranges["cos"] = ranges["sin"]
    edges = {"exp": [low, edge, high, 0.3465736, -0.3465736], "ln": [1.0, 0.7071, 1.41421356, 2.0**-126, 2.0**-1022],
             "expm1": [high, 0.3465736, -0.3465736, -1.0397], "log1p": [-0.2928932, 0.41421356, -0.9999999],
             "erf": [1.0, 6.0, 4.0, -1.0], "sin": [1e6, 0.78539816, 1.5707963267948966, 3.141592653589793]}  # fmt: skip
    points = edges.get(function, [1.0, 0.5])
    values = [everywhere(g, element, n), *ranges[function], near(g, points, n // 4, dtype)]
    with np.errstate(all="ignore"):
        x = np.concatenate([np.asarray(v).astype(dtype) for v in values])
    keep = np.isfinite(x)
    if function in ("ln", "sqrt"):
        x = np.abs(x)
        keep &= x > 0
    if function == "log1p":
        keep &= x > -1
    return (x[keep],)


def power_operands(g: np.random.Generator, element: str, n: int) -> tuple[Array, Array]:
    """Bases and exponents: every size, near one with large powers, whole powers of both signs, over- and underflow."""
    dtype = DTYPES[element]
    limit = (88.0, 103.0) if element == "f32" else (709.0, 745.0)
    digits = -7 if element == "f32" else -16
    pairs = [
        (np.abs(everywhere(g, element, n)), everywhere(g, element, n)),
        (np.exp(g.uniform(-20, 20, n)), g.uniform(-8, 8, n)),
        (spread(g, -3, 3, n), np.rint(spread(g, 0, 2, n))),
        (1 + spread(g, digits, -1, n), spread(g, 0, -digits, n)),
    ]
    log = spread(g, digits, 2, n)  # powers that land at random in the range, and in its edges
    pairs.append((np.exp(log), g.uniform(-limit[1], limit[0], n) / log))
    log = spread(g, -3, 2, n)
    pairs.append((np.exp(log), g.uniform(-limit[1] - 1, -limit[0] + 2, n) / log))
    pairs.append((np.exp(log), g.uniform(limit[0] - 1, limit[0] + 1.5, n) / log))
    with np.errstate(all="ignore"):
        x = np.concatenate([pair[0].astype(dtype) for pair in pairs])
        y = np.concatenate([pair[1].astype(dtype) for pair in pairs])
    keep = np.isfinite(x) & np.isfinite(y) & (x != 0) & ((x > 0) | (y == np.rint(y)))
    return x[keep], y[keep]


def main(count: int, chosen: list[str]) -> None:
    """Print the largest distance of each function over `count` points: normal results, subnormal ones, and where."""
    from topos.element import f32, f64

    for element in (f32, f64):
        for function in chosen or element.bodies:
            points = operands(function, element.name, count, seed=77)
            results = getattr(element, function)(*points)
            found = distances(function, element.name, points, results, parallel=True)
            small = np.abs(results) < np.finfo(element.dtype).tiny
            at = [float(x[found.argmax()]).hex() for x in points]
            normal, subnormal = found[~small].max(initial=0), found[small].max(initial=0)
            sys.stdout.write(
                f"{function:15}{element.name} {found.size:8} {normal:.5f} {subnormal:.5f} {' '.join(at)}\n"
            )


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        main(int(sys.argv[1]), sys.argv[2:])
