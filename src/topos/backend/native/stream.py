"""Stores that go past the caches, for results too large to stay in them, and operands that are fetched ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topos.backend.native.nest import Frame
from topos.backend.native.reads import Read
from topos.backend.native.registers import INT32, INT64, TRUTH, Integer, Operand, written
from topos.tensor.memory import LINE

STREAMED_BYTES = 1 << 23
"""A result of this size that the plan does not read again goes past the caches."""

AHEAD_BYTES = 1 << 13
"""How far ahead operands are fetched: further than a page of memory, at whose end the processor itself stops."""


def passes_caches(frame: Frame, row: int) -> bool:
    """Whether a result is too large for the caches, and nobody waits for it there. AVX has the instructions."""
    size = frame.spec.rows[row].shape.volume * frame.element(row).dtype.itemsize
    return size >= STREAMED_BYTES and frame.target.vector_bytes >= 32 and not frame.lowering.is_read_later(row)


def fetch_ahead(frame: Frame, read: Read, index: Integer) -> None:
    """Asks for what an operand holds a few thousand bytes after a place; the request is free to go nowhere."""
    if read.element is None or read.guards or read.maps[0][-1] != 1:
        return
    function, m = frame.function, frame.arithmetic(read.element)
    place = m.offset(read.pointer, function.add(index, AHEAD_BYTES // m.bytes))
    function.run("prefetch.p0", place, *(Operand(INT32, number) for number in ("0", "3", "1")))


def streamed(
    frame: Frame,
    pointers: Sequence[Operand],
    fetched: Sequence[Read],
    bounds: tuple[Integer, Integer, int],
    body: Callable[[Integer], None],
) -> Integer:
    """Runs the body for whole vectors, its stores at these pointers going past the caches; answers where it ended.

    `bounds` is the begin and the end, and the extent of the axis. That needs results that start on a cache line; where
    one does not, nothing is done. A fence at the end makes the stores visible to whoever is told that the tile is done.
    Operands to be `fetched` ahead are those of long chains, whose work between two loads keeps the processor from
    reaching the next page in time.
    """
    function, (begin, end, extent) = frame.function, bounds
    stop = function.least(end, extent // frame.lanes * frame.lanes)
    addresses = [function.let(INT64, f"ptrtoint {pointer} to i64").text for pointer in pointers]
    bits = addresses[0]
    for address in addresses[1:]:
        bits = function.let_text(f"or i64 {bits}, {address}")
    rest = function.let_text(f"and i64 {bits}, {LINE - 1}")
    is_lined = function.let(TRUTH, f"icmp eq i64 {rest}, 0")

    def vector(index: Integer) -> None:
        for read in fetched:
            fetch_ahead(frame, read, index)
        body(index)

    def all_vectors() -> None:
        frame.streamed = pointers
        function.loop(begin, stop, frame.lanes, vector)
        frame.streamed = ()
        function.run("x86.sse.sfence")

    function.when(is_lined, all_vectors)
    return function.let(INT64, f"select i1 {is_lined.text}, i64 {written(stop)}, i64 {written(begin)}")
