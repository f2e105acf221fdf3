"""A program without its texts: what it takes to run one that was compiled before, as plain data.

The cache on disk keeps it under the fingerprint of what it was made from. A process that finds it there neither lowers
nor writes a text.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from topos.backend.native.objects import Piece
from topos.records import NamedTuple

Placed = list[tuple[int | None, int]]
"""The operands of a call: the row of a buffer, or `None` for the arena, and the offset in it in bytes."""


class Packable(NamedTuple):
    """An operand that may be found packed: where it lies in a source, and its panels, equal where `layout` is."""

    row: int
    offset_bytes: int
    layout: str
    panel_bytes: int


class Start(NamedTuple):
    """One call: its kernels in order, each with how many tiles, and where their operands are.

    Behind those comes the scratch, where there is any, and in the end the place of the panels of a `packable` operand.
    """

    kernels: list[tuple[str, int]]
    operands: Placed
    packable: Packable | None = None


class Manifest(NamedTuple):
    """The calls of one step in order, the size of the arena, and the buffers whose pointers the caller gives.

    `numbers` are the rows that are one number at every place, as the digits of its bytes; those of them in `whole` are
    in a buffer that is written out. `pieces` are the texts, as the loader knows them; `repeated` is the text of one
    function for many steps, which is compiled when it is worth that, or empty.
    """

    starts: list[Start]
    arena_bytes: int
    buffers: list[int]
    numbers: dict[int, str]
    whole: Collection[int]
    pieces: list[Piece]
    repeated: str = ""

    def written(self) -> bytes:
        """As the cache keeps it."""
        numbers = [[row, number] for row, number in self.numbers.items()]
        facts = [self.starts, self.arena_bytes, self.buffers, numbers, sorted(self.whole), self.pieces, self.repeated]
        return json.dumps(facts, separators=(",", ":")).encode()


def read(content: bytes) -> Manifest:
    """A manifest as it was written."""
    starts, arena_bytes, buffers, numbers, whole, pieces, repeated = json.loads(content)
    return Manifest(
        [Start(kernels, operands, packable and Packable(*packable)) for kernels, operands, packable in starts],
        arena_bytes,
        buffers,
        dict(numbers),
        frozenset(whole),
        [Piece(*piece) for piece in pieces],
        repeated,
    )
