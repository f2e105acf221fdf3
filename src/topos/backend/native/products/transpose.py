"""Square transposes: pieces of lines laid side by side as they are loaded, then pairs that change places."""

from __future__ import annotations

from collections.abc import Callable

from topos.records import NamedTuple


class Units(NamedTuple):
    """How the text is written: each answers the name of a vector."""

    load: Callable[[int, int], str]
    """16 bytes: of a line, a piece."""
    join: Callable[[str, str, int], str]
    """Two vectors one after the other: so many units each."""
    mix: Callable[[str, str, list[int]], str]
    """Of two whole vectors, for each lane its place in both."""


def transposed(width: int, lane: int, pieces: int, units: Units) -> list[str]:
    """`width` lines of `pieces` pieces of `lane` units: vector `k` of the result holds unit `k` of every line.

    A vector whose piece `l` is of line `lane * l + c`, one for every `c`, is transposed where it is: no unit has to
    change its piece. Loads do what crossing pieces would take shuffles for, which one port of most processors runs.
    """
    found = []
    for piece in range(pieces):
        vectors = [_beside(width, lane, first, piece, units) for first in range(lane)]
        found += _pieces_transposed(vectors, width, units)
    return found


def _beside(width: int, lane: int, first: int, piece: int, units: Units) -> str:
    """The same piece of every `lane`-th line, from line `first` on, in one vector."""
    parts = [units.load(line, piece) for line in range(first, width, lane)]
    size = lane
    while len(parts) > 1:
        parts = [units.join(one, two, size) for one, two in zip(parts[::2], parts[1::2], strict=True)]
        size *= 2
    return parts[0]


def _pieces_transposed(vectors: list[str], width: int, units: Units) -> list[str]:
    """As many vectors as a piece has units, transposed inside every piece: units, then pairs of units interleaved."""
    lane = len(vectors)

    def mixed(one: str, two: str, unit: int, high: int) -> str:
        """Units of either, alternating, from one half of every piece."""
        starts = [
            start + high * (lane // 2) + step for start in range(0, width, lane) for step in range(0, lane // 2, unit)
        ]
        return units.mix(one, two, [start + side + k for start in starts for side in (0, width) for k in range(unit)])

    pairs = [mixed(vectors[i], vectors[i + 1], 1, high) for i in range(0, lane, 2) for high in (0, 1)]
    if lane == 2:
        return pairs
    return [mixed(pairs[half], pairs[half + 2], 2, high) for half in (0, 1) for high in (0, 1)]
