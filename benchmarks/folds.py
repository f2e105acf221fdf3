"""What bands save: input gradients of convolutions beside the same ones over windows that are stored.

Run as `python -m benchmarks.folds [-t threads] [-s seconds] [part of a case's name ...]`. Two plans take turns, and the
least time of each counts. Few images are cut against windows that are stored, many against blocks of whole images.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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


def gradient(tape: Tape, images: int, extent: int, channels: int, size: int) -> Any:
    """The gradient of some images by a convolution of as many channels, padded so that it keeps their extent."""
    slopes = tape.input(numbers(images * extent * extent, channels))
    kernel = tape.parameter(numbers(channels, channels * size * size))
    windows = (slopes @ kernel).reshape([images, extent, extent, channels, size, size]).permute([0, 3, 1, 4, 2, 5])
    padded, pad = extent + size - 1, size // 2
    folded = windows.fold(2, size, 1, 1, padded).fold(3, size, 1, 1, padded)
    return folded.narrow(3, pad, extent).narrow(2, pad, extent) * 0.5


def side(*case: int) -> Side:
    """The case as the limits have it."""
    network, result = Tape.record(lambda tape: gradient(tape, *case))
    plan, table = network.entry(result).lower().prepare(), network.parameters()
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


def main() -> None:
    """The table."""
    for name, case, seconds in asked(__doc__, cases()):
        banded = side(*case)
        never = dict.fromkeys(("LARGE_BYTES", "SHARED_BYTES"), 1 << 60)
        # What is in the cache was put together under other limits.
        with patch.multiple(cascade_bands, **never), patch.dict("os.environ", {"TOPOS_CACHE": ""}):
            whole = side(*case)
        with_it, without = least_s((banded.call, whole.call), seconds)
        told = f"{with_it * 1e3:8.3f} ms of {without * 1e3:8.3f}: {with_it / without:.2f}"
        arenas = f"{banded.arena_bytes / 2**20:7.2f} MiB of {whole.arena_bytes / 2**20:7.2f}"
        print(f"{name:40}{told}  {arenas}", flush=True)


if __name__ == "__main__":
    main()
