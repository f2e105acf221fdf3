"""What bands save: input gradients of convolutions beside the same ones over windows that are stored.

Run as `python -m benchmarks.folds [-t threads] [-s seconds] [part of a case's name ...]`. Two plans take turns, and the
least time of each counts. Few images are cut against windows that are stored, many against blocks of whole images.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

from benchmarks.packing import Call, asked, least_s, numbers
from topos import Plan, Tape
from topos.backend.native import cascade_bands

IMAGES = (1, 2, 4, 8)
SIZES = ((56, 64, 3), (112, 32, 3), (224, 16, 3), (28, 128, 3), (14, 256, 3), (56, 64, 5))


class Side(NamedTuple):
    """A plan's run, and what its values take."""

    call: Call
    arena_bytes: int


def gradient(tape: Tape, case: tuple[int, ...]) -> Any:
    """The gradient of some images by a convolution of as many channels, padded so that it keeps their extent."""
    images, extent, channels, size = case
    slopes = tape.input(numbers(images * extent * extent, channels))
    kernel = tape.parameter(numbers(channels, channels * size * size))
    windows = (slopes @ kernel).reshape([images, extent, extent, channels, size, size]).permute([0, 3, 1, 4, 2, 5])
    padded, pad = extent + size - 1, size // 2
    folded = windows.fold(2, size, 1, 1, padded).fold(3, size, 1, 1, padded)
    return folded.narrow(3, pad, extent).narrow(2, pad, extent) * 0.5


def side(record: Callable[[Tape], Any]) -> Side:
    """A program's plan as the limits have it."""
    network, results = Tape.record(record)
    plan, table = network.entry(results).lower().prepare(), network.parameters()
    plan.forward(table)
    return Side(lambda: plan.forward(table), arena_bytes(plan))


def arena_bytes(plan: Plan) -> int:
    """What the values of a plan take that pass between its groups."""
    (arena,) = re.findall(r"arena of (\d+) bytes", plan.explain())
    return int(arena)


def cases() -> Iterator[tuple[str, tuple[int, ...]]]:
    """The names, and the sizes."""
    for extent, channels, size in SIZES:
        for images in IMAGES:
            name = f"{images} x {extent} x {extent}, {channels} channels, {size} by {size}"
            yield name, (images, extent, channels, size)


def compare(name: str, record: Callable[[Tape], Any], without: AbstractContextManager[Any], seconds: float) -> None:
    """Prints a line: a program as it is made, of what it is `without` something that is patched."""
    own = side(record)
    with without, patch.dict("os.environ", {"TOPOS_CACHE": ""}):  # what is in the cache was put together otherwise
        other = side(record)
    with_it, without_it = least_s((own.call, other.call), seconds)
    told = f"{with_it * 1e3:8.3f} ms of {without_it * 1e3:8.3f}: {with_it / without_it:.2f}"
    arenas = f"{own.arena_bytes / 2**20:7.2f} MiB of {other.arena_bytes / 2**20:7.2f}"
    print(f"{name:45}{told}  {arenas}", flush=True)


def main() -> None:
    """The table."""
    never = dict.fromkeys(("LARGE_BYTES", "SHARED_BYTES"), 1 << 60)
    for name, case, seconds in asked(__doc__, cases()):
        compare(name, partial(gradient, case=case), patch.multiple(cascade_bands, **never), seconds)


if __name__ == "__main__":
    main()
