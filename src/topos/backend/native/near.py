"""Numbers that neighbouring places read close to one another: which of them exist, and taking them out of registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topos.backend.native.nest import Frame
from topos.backend.native.registers import INT32, INT64, Integer, Operand, listed, vector, written
from topos.backend.native.vocabulary import Lanes

MOST_NEAR = 4
"""Registers that hold what the windows of neighbouring places hold."""
SHORT = 1 << 29
"""Places of an axis that are counted in 32 bits."""
UNROLLED = 16
"""Offsets of a window that are written one by one."""


def counted(frame: Frame, first: Integer, steps: Sequence[int], limit: int) -> Operand:
    """Per lane, whether `0 <= first + step < limit`."""
    return _below(frame, Operand(INT64, written(first)), steps, limit)


def counted_shortly(frame: Frame, first: Integer, steps: Sequence[int | None], limit: int) -> Operand:
    """The same, for a first from 0 to the limit, in lanes as short as numbers where they hold it; not where no step is.

    A mask then has as many bits to a lane as the numbers, and nothing has to be packed.
    """
    if limit >= SHORT:
        return counted(frame, first, [-(1 << 40) if step is None else step for step in steps], limit)
    start = Operand(INT32, str(first))
    if not isinstance(first, int):
        start = frame.function.let(INT32, f"trunc i64 {first.text} to i32")
    return _below(frame, start, [-SHORT if step is None else step for step in steps], limit)


def _below(frame: Frame, first: Operand, steps: Sequence[int], limit: int) -> Operand:
    function, type = frame.function, vector(first.type.item, frame.lanes)
    numbers = frame.reading.lanes_of(function.spread(type, first))
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
