"""Learning rates as functions of the step, counted from 0, the same bits on every machine.

Each function here answers one, to be called with a step and to be put around another. They are worked out in 64 bits
by `+ - * /`, roots and topos' own cosine.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from topos.element import f64
from topos.neural.limits import expect_not_negative, expect_positive
from topos.tensor import Tensor

Schedule = Callable[[int], float]

__all__ = ["constant", "cosine", "inverse_square_root", "linear", "stairs", "warmup"]


def constant(rate: float) -> Schedule:
    """The same at every step."""
    return lambda step: float(rate)


def warmup(steps: int, then: Schedule) -> Schedule:
    """Another schedule, times `(step + 1) / steps` in the first `steps`.

    >>> from topos import schedule
    >>> [schedule.warmup(4, schedule.constant(0.5))(step) for step in range(6)]
    [0.125, 0.25, 0.375, 0.5, 0.5, 0.5]
    """
    expect_not_negative("warmup", "steps", steps)
    return lambda step: then(step) * (step + 1) / steps if step < steps else then(step)


def linear(rate: float, steps: int, floor: float = 0.0) -> Schedule:
    """From `rate` at step 0 to `floor` at step `steps` and after, in a straight line."""
    expect_positive("linear", "steps", steps)
    return lambda step: floor + (rate - floor) * (steps - min(step, steps)) / steps


def cosine(rate: float, steps: int, floor: float = 0.0) -> Schedule:
    """From `rate` at step 0 to `floor` at step `steps` and after, along half a cosine (Loshchilov and Hutter 2017).

    >>> from topos import schedule
    >>> [schedule.cosine(1.0, 4)(step) for step in (0, 2, 4, 5)]
    [1.0, 0.5, 0.0, 0.0]
    """
    expect_positive("cosine", "steps", steps)

    def at(step: int) -> float:
        share = min(step, steps) / steps
        return floor + (rate - floor) * (1 + float(Tensor(math.pi * share, f64).cos())) / 2

    return at


def stairs(rate: float, every: int, factor: float = 0.1) -> Schedule:
    """`rate`, multiplied by `factor` after every so many steps.

    >>> from topos import schedule
    >>> [schedule.stairs(1.0, 2, 0.5)(step) for step in range(6)]
    [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    """
    expect_positive("stairs", "every", every)

    def at(step: int) -> float:
        reached = float(rate)
        for _ in range(step // every):
            reached *= factor
        return reached

    return at


def inverse_square_root(rate: float, steps: int) -> Schedule:
    """`rate` for the first `steps`, then `rate * sqrt(steps / (step + 1))`; with a warm-up as in Vaswani et al. 2017.

    >>> from topos import schedule
    >>> [schedule.warmup(4, schedule.inverse_square_root(1.0, 4))(step) for step in (0, 1, 3, 15, 63)]
    [0.25, 0.5, 1.0, 0.5, 0.25]
    """
    expect_positive("inverse_square_root", "steps", steps)
    return lambda step: float(rate) if step < steps else rate * math.sqrt(steps / (step + 1))
