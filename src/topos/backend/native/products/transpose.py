"""Square transposes in registers, out of shuffles that x86 has as one instruction each."""

from __future__ import annotations

from collections.abc import Callable

Shuffle = Callable[[str, str, list[int]], str]
"""(one vector, another, for each result lane its place in both) -> the name of the result."""


def transposed(lines: list[str], lane: int, shuffle: Shuffle) -> list[str]:
    """`len(lines)` vectors of as many numbers: vector `k` of the result holds number `k` of every line.

    `lane` numbers fill 128 bits, in which neighbours are interleaved first; then those lanes change places.
    """
    width = len(lines)

    def mixed(one: str, two: str, unit: int, high: int) -> str:
        """Units of either, alternating, from one half of every 128-bit lane."""
        starts = [
            start + high * (lane // 2) + step for start in range(0, width, lane) for step in range(0, lane // 2, unit)
        ]
        return shuffle(one, two, [start + side + k for start in starts for side in (0, width) for k in range(unit)])

    pairs = [mixed(lines[i], lines[i + 1], 1, high) for i in range(0, width, 2) for high in (0, 1)]
    if lane == 4:
        quads = [
            mixed(pairs[first + half], pairs[first + half + 2], 2, high)
            for first in range(0, width, 4)
            for half in (0, 1)
            for high in (0, 1)
        ]
        pairs = quads
    # Vector `lane * g + c` now holds, in its 128-bit lane `l`, number `lane * l + c` of lines `lane * g` and following.
    columns = [_lanes_transposed(pairs[c::lane], width, lane, shuffle) for c in range(lane)]
    return [columns[k % lane][k // lane] for k in range(width)]


def _lanes_transposed(vectors: list[str], width: int, lane: int, shuffle: Shuffle) -> list[str]:
    """The square of whole 128-bit lanes: the even and the odd ones of neighbours, as often as it halves."""
    for _ in range((width // lane).bit_length() - 1):
        vectors = [
            shuffle(
                vectors[i],
                vectors[i + 1],
                [start + k for start in range(odd * lane, 2 * width, 2 * lane) for k in range(lane)],
            )
            for odd in (0, 1)
            for i in range(0, len(vectors), 2)
        ]
    return vectors
