"""The logarithm of a sum of exponentials, and what it normalises."""

from __future__ import annotations

import numpy as np

from topos.element.element import Array, Element
from topos.reference.extrema import max_along
from topos.reference.sums import sum_along


def logsumexp(element: Element, array: Array, axis: int) -> Array:
    """`m + ln(S(exp(x - m)))` along an axis, with `m = max_along(x)`, or zero where that is not finite.

    Shape: that of `array` without the axis. Every step is the accumulator's own rounded operation; demoted once. A row
    with `+inf` gives `+inf`, one that is all `-inf`, or of nothing, gives `-inf`, and a NaN gives NaN.
    """
    axis %= array.ndim
    accumulator = element.accumulator
    highest, _, total = _shifted(accumulator, element.promote(array), axis)
    return element.demote(accumulator.add(highest, accumulator.ln(total)))


def log_softmax(element: Element, array: Array, axis: int) -> Array:
    """`(x - m) - ln(S(exp(x - m)))` along an axis, with `m = max_along(x)`, or zero where that is not finite.

    Shape: that of `array`. Every step is the accumulator's own rounded operation; demoted once. A masked class (`-inf`)
    beside a finite one gets `-inf`, a probability of zero; a `+inf` gives NaN at its place; a row that is all `-inf` is
    NaN.
    """
    axis %= array.ndim
    accumulator = element.accumulator
    _, shifted, total = _shifted(accumulator, element.promote(array), axis)
    return element.demote(accumulator.sub(shifted, np.expand_dims(accumulator.ln(total), axis)))


def _shifted(accumulator: Element, x: Array, axis: int) -> tuple[Array, Array, Array]:
    """`m`, `x - m` and `S(exp(x - m))`."""
    highest = max_along(accumulator, x, axis)
    # A number less itself is zero, and NaN where it is infinite or NaN.
    not_finite = accumulator.nonzero(accumulator.sub(highest, highest))
    highest = np.where(not_finite, accumulator.zero, highest)
    shifted = accumulator.sub(x, np.expand_dims(highest, axis))
    return highest, shifted, sum_along(accumulator, accumulator.exp(shifted), axis)
