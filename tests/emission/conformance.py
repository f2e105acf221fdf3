"""Whether an engine answers what the interpreter does: how far apart they may be, and what is told of a miss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

Named = Iterable[tuple[str, np.ndarray]]
BOUNDS = {
    "float64": 1e-9,  # sums and products of some thousand terms in another order, through some dozen steps
    "float32": 3e-4,  # the same
    "bfloat16": 6e-2,  # a few roundings of 2**-8, which the raises and the engines leave out or take twice
}
"""How far a result may be from the interpreter's, by the coarsest dtype that it went through: a share of the largest
number beside it, or of one."""
LARGEST = {"float64": 1e100, "float32": 1e18, "bfloat16": 1e18}
"""Where numbers are larger, a sum in another order may leave the range, and no place of it is compared."""


def misses(answers: Sequence[np.ndarray], expected: Named, coarsest: str) -> list[str]:
    """A line for each result that is not what it should be: its node, a place, and how far away in ulp."""
    bound = BOUNDS[coarsest]
    pairs = zip(answers, expected, strict=True)
    return [line for found, (name, wanted) in pairs for line in _missed(found, wanted, name, bound)]


def _missed(found: np.ndarray, wanted: np.ndarray, name: str, bound: float) -> Iterator[str]:
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        yield f"{name}: answered {found.dtype} {list(found.shape)}, wants {wanted.dtype} {list(wanted.shape)}"
        return
    left, right = found.astype(np.float64), wanted.astype(np.float64)
    largest = np.max(np.abs(right[np.isfinite(right)]), initial=1.0)
    if not largest < LARGEST[wanted.dtype.name]:
        return
    with np.errstate(all="ignore"):
        apart = np.where((left == right) | (np.isnan(left) & np.isnan(right)), 0.0, np.abs(left - right))
    wrong = ~(apart <= bound * largest)
    for at in np.argwhere(wrong)[:1]:
        place = tuple(at)
        yield (
            f"{name}: {left[place]!r} at {at.tolist()}, wants {right[place]!r}, "
            f"{apart[place] / spacing(right[place], wanted.dtype):.0f} ulp away; {wrong.sum()} of {wrong.size} are"
        )


def spacing(numbers: np.ndarray | float, dtype: np.dtype) -> np.ndarray:
    """The distance from a number to the next one of its dtype, place by place; that of a subnormal number at zero."""
    digits = {"float64": 52, "float32": 23, "bfloat16": 7}[dtype.name]
    least = {"float64": -1022, "float32": -126, "bfloat16": -126}[dtype.name]
    exponents = np.where(np.equal(numbers, 0.0), least, np.frexp(numbers)[1] - 1)
    return np.ldexp(1.0, np.maximum(exponents, least) - digits)
