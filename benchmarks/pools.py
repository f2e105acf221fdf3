"""What is saved where windows are worked out where they are read: pools with their gradients, beside stored windows.

Run as `python -m benchmarks.pools [-t threads] [-s seconds] [part of a case's name ...]`. Two plans take turns, and the
least time of each counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

from benchmarks.folds import compare
from benchmarks.packing import asked, numbers
from topos import Tape, average_pool, max_pool
from topos.backend.native import grouping

PICTURES = (8, 64, 112, 112)
WINDOWS = ((3, 2, 1), (3, 2, 0), (3, 1, 1), (5, 3, 2), (2, 3, 0))


def pooled(tape: Tape, case: tuple[Any, ...]) -> Any:
    """The weighted sum of a pool, and its gradient."""
    pool, size, stride, padding = case
    pictures = tape.parameter(numbers(*PICTURES))
    value = pool(pictures, size, stride=stride, padding=padding)
    loss = (value * tape.input(numbers(*value.shape))).sum()
    ((_, slope),) = tape.differentiate(loss, [pictures])
    return [loss, slope]


def cases() -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The names, and the pools."""
    for pool in (max_pool, average_pool):
        for size, stride, padding in WINDOWS:
            yield f"{pool.__name__}, {size} by {size}, {stride} apart, {padding} around", (pool, size, stride, padding)


def main() -> None:
    """The table."""
    for name, case, seconds in asked(__doc__, cases()):
        stored = patch.object(grouping, "with_worked_out", lambda _, groups: groups)
        compare(name, partial(pooled, case=case), stored, seconds)


if __name__ == "__main__":
    main()
