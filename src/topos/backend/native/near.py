"""Numbers that neighbouring places read close to one another: which of them exist, and taking them out of registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topos.backend.native.nest import Frame
from topos.backend.native.registers import INT64, Integer, Operand, listed, vector, written
from topos.backend.native.vocabulary import Lanes

MOST_NEAR = 4
"""Registers that hold what the windows of neighbouring places hold."""
UNROLLED = 16
"""Offsets of a window that are written one by one."""


def counted(frame: Frame, first: Integer, steps: Sequence[int], limit: int) -> Operand:
    """Per lane, whether `0 <= first + step < limit`."""
    function, type = frame.function, vector("i64", frame.lanes)
    numbers = frame.reading.lanes_of(function.spread(type, Operand(INT64, written(first))))
    numbers = numbers + frame.reading.lanes_of(listed(type, tuple(steps)))
    limits = frame.reading.constant_text(type, limit)
    return function.let(type.of("i1"), f"icmp ult {numbers}, {limits}")


def taken(frame: Frame, held: Sequence[Lanes], places: Mapping[int, int]) -> Lanes:
    """A register with, in some lanes, the numbers at places of several registers; those in their own lanes stay."""
    function, lanes = frame.function, frame.lanes
    found: Lanes | None = None
    for chunk, value in enumerate(held):
        here = {lane: place % lanes for lane, place in places.items() if place // lanes == chunk}
        if found is None and len(here) == len(places) and all(lane == place for lane, place in here.items()):
            return value
        if here:
            before = value if found is None else found
            index = [lanes + here[lane] if lane in here else lane for lane in range(lanes)]
            wanted = listed(vector("i32", lanes), tuple(index))
            found = frame.reading.lanes_of(
                function.let(value.type, f"shufflevector {before}, {value.type.text} {value.text}, {wanted}")
            )
    assert found is not None
    return found
