"""Numbers that neighbouring places read close to one another: which of them exist, and taking them out of registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topos.backend.native.lines import Lines
from topos.backend.native.nest import Frame
from topos.backend.native.reads import Place
from topos.backend.native.registers import INT32, INT64, TRUTH, Integer, Operand, listed, vector, written
from topos.backend.native.text import Function
from topos.backend.native.vocabulary import Lanes
from topos.element import Element
from topos.op import Fold

MOST_NEAR = 4
"""Registers that hold what the windows of neighbouring places hold."""
SHORT = 1 << 29
"""Places of an axis that are counted in 32 bits."""
UNROLLED = 16
"""Offsets of a window that are written one by one."""


def lanes_axis(shape: Sequence[int]) -> int:
    """The axis of the lanes: the last one of more than one place."""
    return max((axis for axis, extent in enumerate(shape) if extent > 1), default=0)


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


def window_from(function: Function, start: Integer, fold: Fold) -> tuple[Integer, Operand]:
    """The window that begins at a place of a fold's axis, and whether there is one."""
    window = start
    fits = function.let(TRUTH, f"icmp ult i64 {written(start)}, {(fold.count - 1) * fold.step + 1}")
    if fold.step > 1:
        window = function.let(INT64, f"udiv i64 {written(start)}, {fold.step}")
        rest = function.let(INT64, f"urem i64 {written(start)}, {fold.step}")
        none = function.let(TRUTH, f"icmp eq i64 {rest.text}, 0")
        fits = function.let(TRUTH, f"and i1 {fits.text}, {none.text}")
    return window, fits


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


def numbers_at(frame: Frame, operand: int, wanted: Element, lines: Lines) -> list[Lanes]:
    """Numbers of an operand at the lanes of each line; those of others are any."""
    function = frame.function
    if operand in frame.lowering.constants:
        return [frame.value(operand, Place((), 0, None), wanted)] * len(lines.lines)
    read = frame.reads[operand]
    assert read.element is not None
    m, steps = frame.arithmetic(read.element), read.maps[0]
    first: Integer = 0
    for index, step in zip(lines.begin, steps, strict=True):
        first = function.add(first, function.multiply(index, step))
    places = [
        {
            lane: sum(at * step for at, step in zip(place, steps, strict=True))
            for lane, place in enumerate(line.lanes)
            if place is not None
        }
        for line in lines.lines
    ]
    is_one = lines.axis < 0 or steps[lines.axis] == 0
    many = [at for at, each in enumerate(places) if len({*each.values()}) > is_one]
    found = Numbers(frame, operand, first).taken([places[at] for at in many], [lines.exists[at] for at in many])
    values = dict(zip(many, found, strict=True))
    ones: dict[int, Lanes] = {}
    for at, each in enumerate(places):
        if at not in values:
            start = next(iter(each.values()), None)
            if start is not None and start not in ones:
                ones[start] = m.load_one(m.offset(read.pointer, function.add(first, start)))
            values[at] = m.constant(1.0) if start is None else ones[start]
    return [values[at] for at in range(len(places))]


class Numbers:
    """Numbers of a buffer near a place."""

    def __init__(self, frame: Frame, operand: int, first: Integer) -> None:
        self._frame, self._first = frame, first
        read, view = frame.reads[operand], frame.lowering.view(operand)
        assert read.element is not None
        self._m, self._pointer = frame.arithmetic(read.element), read.pointer
        self._before, self._volume = view.offset, frame.spec.rows[view.row].shape.volume

    def taken(self, places: Sequence[dict[int, int]], masks: Sequence[Operand | None]) -> list[Lanes]:
        """Several registers: loaded as they lie, taken out of a few others, or number by number.

        Each has a place for some of its lanes, and a mask of those whose memory may be touched, where not all may be.
        """
        lanes = self._frame.lanes
        if not places:
            return []
        starts = [_start(each) for each in places]
        if None not in starts:
            shared = {start: starts.count(start) for start in starts if start is not None}
            alone = {start: mask for start, mask in zip(starts, masks, strict=True) if start is not None}
            loaded = {at: self._line(at, alone[at], times > 1) for at, times in shared.items()}
            return [loaded[start] for start in starts if start is not None]
        found: dict[int, Lanes] = {}
        for near in _clusters(places, MOST_NEAR * lanes):
            every = [place for at in near for place in places[at].values()]
            least, chunks = min(every, default=0), range(0, max(every, default=0) - min(every, default=0) + 1, lanes)
            if len(chunks) > MOST_NEAR:
                found.update((at, self._gathered(places[at], masks[at])) for at in near)
                continue
            held = [self._line(least + chunk, None, True) for chunk in chunks]
            for at in near:
                moved = {lane: place - least for lane, place in places[at].items()}
                found[at] = taken(self._frame, held, moved) if moved else held[0]
        return [found[at] for at in range(len(places))]

    def _line(self, start: int, exists: Operand | None, is_shared: bool) -> Lanes:
        """Neighbouring numbers, those that exist or, for several lines, those that the buffer has."""
        m, function = self._m, self._frame.function
        first = function.add(self._first, start)
        place, type = m.offset(self._pointer, first), m.reading.type(m.stored)
        if not is_shared:
            return m.load(place) if exists is None else m.opened(function.load_masked(type, place, exists, m.bytes))
        number, lanes = function.add(first, self._before), self._frame.lanes
        if self._volume < lanes:
            exists = counted(self._frame, number, range(lanes), self._volume)
            return m.opened(function.load_masked(type, place, exists, m.bytes))
        edge, inside, after = function.label("edge"), function.label("inside"), function.label("after")
        function.branch_if(
            function.let(TRUTH, f"icmp ugt i64 {written(number)}, {self._volume - lanes}"), edge, inside, True
        )
        function.start(edge)
        exists = counted(self._frame, number, range(lanes), self._volume)
        some = function.load_masked(type, place, exists, m.bytes)
        function.branch(after)
        function.start(inside)
        every = function.load(type, place, m.bytes)
        function.branch(after)
        function.start(after)
        return m.opened(function.join(type, [(some, edge), (every, inside)]))

    def _gathered(self, places: dict[int, int], exists: Operand | None) -> Lanes:
        frame, m = self._frame, self._m
        lanes = range(frame.lanes)
        index = m.reading.type("i64")
        offsets = listed(index, tuple(places.get(lane, 0) for lane in lanes))
        base = m.offset(self._pointer, self._first)
        item = m.reading.type(m.stored).of_one().text
        pointers = frame.function.let(
            m.reading.type("ptr"), f"getelementptr inbounds {item}, ptr {base.text}, {offsets}"
        )
        if exists is None:
            exists = listed(m.reading.type("i1"), tuple(lane in places for lane in lanes))
        return frame.gathered(m, Operand(pointers.type, f"align {m.bytes} {pointers.text}"), exists)


def _clusters(places: Sequence[dict[int, int]], width: int) -> list[list[int]]:
    """Registers, by their numbers, whose places lie close together; more than a width apart where one's own do."""
    found: list[list[int]] = []
    least = 0
    for at in sorted(range(len(places)), key=lambda at: min(places[at].values(), default=0)):
        if not found or max(places[at].values(), default=0) - least >= width:
            found.append([])
            least = min(places[at].values(), default=0)
        found[-1].append(at)
    return found


def _start(places: dict[int, int]) -> int | None:
    """Where lanes lie that follow one another; `None` where they do not."""
    starts = {place - lane for lane, place in places.items()}
    return starts.pop() if len(starts) == 1 else None if starts else 0
