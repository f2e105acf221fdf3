"""Few rows by a matrix that is read once: some of its lines side by side, from end to end, onto sums kept nearby.

Memory is read fastest where it is read on and on: the hardware then fetches ahead by itself. A panel is as many columns
as leave their sums in the nearer caches.
"""

from __future__ import annotations

from topos.backend.native.products.frame import Work, argument, frame
from topos.backend.native.products.kind import Kind
from topos.backend.native.products.regions import base
from topos.backend.native.products.strip import Strip, chunk_vectors
from topos.backend.native.products.text import Text
from topos.backend.native.target import Target
from topos.tensor.memory import LINE

_STACK_BYTES = 48 << 10  # of one worker's sums: larger ones lie in the scratch


def streamed(kind: Kind, target: Target) -> str:
    """The text: panel after panel, all rows at once."""

    def body(text: Text, work: Work) -> None:
        room = sums_room(kind, text)
        text.loop(*work.panels, 1, lambda panel, _: _panel(kind, text, work, panel, room))

    return frame(kind, None, body)


def _panel(kind: Kind, text: Text, work: Work, panel: str, room: str) -> None:
    panels = kind.choice.panels
    count = text.let(f"select i1 {text.less(panel, panels.extra)}, i64 {panels.small + 1}, i64 {panels.small}")
    strip = Strip(kind, text, work, panels.start(text, panel), count, room)
    if kind.choice.blocks > 1:
        strip.add_blocks(text.at(room, room_bytes(kind)))
    else:
        strip.zero(strip.sums)
        strip.block("0", str(kind.choice.task.terms))
    strip.store(work.out)


def sums_room(kind: Kind, text: Text) -> str:
    """Where the worker's own sums lie."""
    size = _rooms(kind) * room_bytes(kind)
    if size <= _STACK_BYTES:
        return text.room(f"[{size} x i8]")
    whole = text.at(base(text, argument(text, kind.scratch_place)), kind.room_bytes)
    return text.at(whole, text.mul("%worker", size))


def scratch_bytes(kind: Kind) -> int:
    """What the sums of all workers take, from any address on, where they are too large for the stack."""
    own = _rooms(kind) * room_bytes(kind)
    size = kind.choice.tiles * own if own > _STACK_BYTES else 0
    return kind.room_bytes + size + LINE if size or kind.room_bytes else 0


def room_bytes(kind: Kind) -> int:
    """The sums of the longest strip."""
    vector_bytes = kind.lanes.width * kind.lanes.wide_bytes
    return kind.choice.task.rows * kind.choice.panels.largest * chunk_vectors(vector_bytes) * vector_bytes


def _rooms(kind: Kind) -> int:
    """Sums, and the totals of the blocks before where there are any; or the sums of blocks that are read abreast."""
    return 2 if kind.choice.kind == "streamed" and kind.choice.blocks > 1 else kind.choice.abreast
