"""What is saved where folds work out what they fold: pools with their gradients, beside those with stored windows.

Run as `python -m benchmarks.pools [-t threads] [-s seconds] [part of a case's name ...]`. Two plans take turns, and the
least time of each counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from benchmarks.folds import Side, arena_bytes
from benchmarks.packing import asked, least_s, numbers
from topos import Tape, Value, average_pool, max_pool
from topos.backend.native import grouping

PICTURES = (8, 64, 112, 112)
WINDOWS = ((3, 2, 1), (3, 2, 0), (3, 1, 1), (5, 3, 2), (2, 3, 0))


def pooled(tape: Tape, pool: Callable[..., Value], size: int, stride: int, padding: int) -> Any:
    """The weighted sum of a pool, and its gradient."""
    pictures = tape.parameter(numbers(*PICTURES))
    value = pool(pictures, size, stride=stride, padding=padding)
    loss = (value * tape.input(numbers(*value.shape))).sum()
    ((_, slope),) = tape.differentiate(loss, [pictures])
    return loss, slope


def side(*case: Any) -> Side:
    """The case as folds are now."""
    network, results = Tape.record(lambda tape: pooled(tape, *case))
    plan, table = network.entry(list(results)).lower().prepare(), network.parameters()
    plan.forward(table)
    return Side(lambda: plan.forward(table), arena_bytes(plan))


def cases() -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The names, and the pools."""
    for pool in (max_pool, average_pool):
        for size, stride, padding in WINDOWS:
            yield f"{pool.__name__}, {size} by {size}, {stride} apart, {padding} around", (pool, size, stride, padding)


def main() -> None:
    """The table."""
    for name, case, seconds in asked(__doc__, cases()):
        worked_out = side(*case)
        # What is in the cache was put together otherwise.
        stored = patch.object(grouping, "with_worked_out", lambda _, groups: groups)
        with stored, patch.dict("os.environ", {"TOPOS_CACHE": ""}):
            whole = side(*case)
        with_it, without = least_s((worked_out.call, whole.call), seconds)
        told = f"{with_it * 1e3:8.3f} ms of {without * 1e3:8.3f}: {with_it / without:.2f}"
        arenas = f"{worked_out.arena_bytes / 2**20:7.2f} MiB of {whole.arena_bytes / 2**20:7.2f}"
        print(f"{name:45}{told}  {arenas}", flush=True)


if __name__ == "__main__":
    main()
