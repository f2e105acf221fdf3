"""Windows added back onto their axis.

Every place collects what it is given, offset after offset, in a register: nothing is cleared, and each place is stored
once.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from topos.backend.native.costs import lanes_up_to
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.loops import lanes_for
from topos.backend.native.near import MOST_NEAR, UNROLLED, counted, taken, window_from
from topos.backend.native.nest import Frame
from topos.backend.native.program import Call
from topos.backend.native.reads import Place
from topos.backend.native.registers import INT64, Integer, Operand, listed, vector, written
from topos.backend.native.rings import Ring
from topos.backend.native.target import Target
from topos.backend.native.views import merged
from topos.backend.native.vocabulary import Lanes
from topos.op import Fold


def fold(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """The lanes are neighbours after the axis, or along it where nothing comes after.

    Windows are then a step apart, or so near to one another that a few registers hold those of all lanes.
    """
    (row,) = group.rows
    opcode = lowering.spec.rows[row].opcode
    assert isinstance(opcode, Fold)
    lanes = lanes_for(lowering, group, target)
    is_last, most = prod(group.shape[opcode.axis + 1 :]) == 1, lanes_up_to(lanes, group.shape[opcode.axis])
    work = _Windows(Frame(lowering, target, most if is_last else lanes), row, opcode, group)
    is_near = is_last and opcode.step > 1 and work.is_near()
    is_along = is_last and work.may_be_along() and (opcode.step == 1 or is_near)
    if is_last and not is_along:
        work = _Windows(Frame(lowering, target, lanes), row, opcode, group)
    frame = work.frame

    def along(outer: tuple[Integer, ...], begin: Integer, end: Integer) -> None:
        body = work.near if is_near else work.along
        frame.vectors(begin, end, group.shape[opcode.axis], lambda index, count: body(outer, index, count))

    def across(outer: tuple[Integer, ...], begin: Integer, end: Integer) -> None:
        frame.vectors(begin, end, work.after[-1], lambda index, count: work.across(outer, index, count))

    size = prod(group.shape) * opcode.size
    if is_along:
        tiles = frame.tiled([*work.before, group.shape[opcode.axis]], size, along)
    else:
        tiles = frame.tiled([*work.before, group.shape[opcode.axis], *work.after], size, across)
    return Call((frame.kernel("fold", tiles),), frame.pointers)


class _Windows:
    """The operand and the result of a fold, laid out: axes before, window and offset (or place), axes after."""

    def __init__(self, frame: Frame, row: int, opcode: Fold, group: Group) -> None:
        self.frame, lowering = frame, frame.lowering
        self.opcode, self.count = opcode, opcode.count
        (self.operand,) = frame.spec.rows[row].operands
        self.own = frame.arithmetic(frame.element(row))
        self.m = frame.arithmetic(frame.element(row).accumulator)
        self.ring = lowering.rings.get(row)
        axis, stored = opcode.axis, lowering.views[row]
        own = list(stored.strides)
        read = None if self.operand in frame.lowering.constants else frame.read(self.operand)
        self.result = frame.add(stored, self.own.bytes)
        maps = [] if read is None else read.maps
        self.before, first = merged(group.shape[:axis], [*[map[:axis] for map in maps], own[:axis]])
        self.after, last = merged(group.shape[axis + 1 :], [*[map[axis + 2 :] for map in maps], own[axis + 1 :]])
        self._maps = [
            (outer, map[axis], map[axis + 1], inner) for map, outer, inner in zip(maps, first, last, strict=False)
        ]
        self._first, self._last, self._step = first[-1], last[-1], own[axis]
        self._read = read

    def across(self, outer: tuple[Integer, ...], index: Integer, count: Integer | None) -> None:
        """One place of the axis, for neighbours after it."""
        if self._read is not None:
            self._read.maps = [[*o, w, f, *i] for o, w, f, i in self._maps]
        depth = len(self.before)
        head, at, tail = outer[:depth], outer[depth], outer[depth + 1 :]
        # The indices in the order of the maps: before, window, offset, after.
        value = self.m.constant(0.0)

        def add(offset: Integer, held: Operand) -> list[Operand]:
            return [self._given(head, tail, at, offset, index, count, held)]

        total = self._offsets(add, value)
        steps = [*self._first, self._step, *self._last]
        self.frame.store(self.own, self.own.rounded(total), self.result, steps, Place(outer, index, count))

    def _given(
        self,
        head: tuple[Integer, ...],
        tail: tuple[Integer, ...],
        at: Integer,
        offset: Integer,
        index: Integer,
        count: Integer | None,
        held: Operand,
    ) -> Operand:
        """The sum with what one offset gives a place, where a window has its offset there."""
        function, opcode = self.frame.function, self.opcode
        first = at if self.ring is None else function.add(at, self.ring.begun)
        start = function.add(first, function.multiply(offset, -opcode.dilation))
        window, fits = window_from(function, start, opcode)
        before = function.block
        inside: list[tuple[Operand, str]] = []

        def one() -> None:
            place = Place((*head, self._row(window), offset, *tail), index, count)
            value = self.frame.value(self.operand, place, self.own.element)
            inside.append((self._lanes(held) + value, function.block))

        function.when(fits, one)
        return function.join(held.type, [*inside, (held, before)])

    def _row(self, window: Integer) -> Integer:
        """Where a window lies among those that there are."""
        if self.ring is None:
            return window
        turned = self.frame.function.add(window, self.ring.ahead)
        return self.frame.function.let(INT64, f"urem i64 {written(turned)}, {self.ring.rows}")

    def along(self, outer: tuple[Integer, ...], index: Integer, count: Integer | None) -> None:
        """Neighbouring places of the axis, whose windows are neighbours too."""
        if self._read is not None:
            self._read.maps = [[*o, f, w] for o, w, f, _ in self._maps]

        def add(offset: Integer, held: Operand) -> list[Operand]:
            return [self._lanes(held) + self._masked(outer, index, offset, count)]

        total = self._offsets(add, self.m.constant(0.0))
        steps = [*self._first, self._step]
        self.frame.store(self.own, self.own.rounded(total), self.result, steps, Place(outer, index, count))

    def is_near(self) -> bool:
        """Whether the numbers for neighbouring places lie in a few registers, and in the same lanes everywhere."""
        if self._read is None or self._read.element is None or len(self._read.maps) > 1 or len(self._maps) != 1:
            return False
        _, window, offset, _ = self._maps[0]
        if self.frame.lanes % self.opcode.step or min(window, offset) < 0:
            return False
        places = [place for lanes in self._places() for place in lanes.values()]
        return max(places) - min(places) < MOST_NEAR * self.frame.lanes

    def _places(self) -> list[dict[int, int]]:
        """For each offset the lanes that it gives something, and how many numbers after the first window's."""
        _, window, offset, _ = self._maps[0]
        starts = ((at, [lane - at * self.opcode.dilation for lane in range(self.frame.lanes)]) for at in self._sizes())
        return [
            {
                lane: start // self.opcode.step * window + at * offset
                for lane, start in enumerate(lanes)
                if start % self.opcode.step == 0
            }
            for at, lanes in starts
        ]

    def _sizes(self) -> range:
        return range(self.opcode.size)

    def near(self, outer: tuple[Integer, ...], index: Integer, count: Integer | None) -> None:
        """Neighbouring places of the axis: what their windows hold is loaded once, and taken out offset by offset."""
        assert self._read is not None
        ((before, window, offset, _),) = self._maps
        self._read.maps = [[*before, 1]]
        function, lanes, step = self.frame.function, self.frame.lanes, self.opcode.step
        first: Integer = index // step if isinstance(index, int) else function.let(INT64, f"udiv {index}, {step}")
        places = self._places()
        least = min(place for given in places for place in given.values())
        most = max(place for given in places for place in given.values())
        all_numbers = (self.count - 1) * window + (self.opcode.size - 1) * offset + 1
        start = function.add(function.multiply(first, window), least)
        held = [
            self._numbers(outer, function.add(start, chunk), all_numbers) for chunk in range(0, most - least + 1, lanes)
        ]
        total = self.m.constant(0.0)
        for at, given in enumerate(places):
            value = taken(self.frame, held, {lane: place - least for lane, place in given.items()})
            windows = [
                (lane - at * self.opcode.dilation) // step if lane in given else -(1 << 40) for lane in range(lanes)
            ]
            exists = counted(self.frame, first, windows, self.count)
            total = total + self.frame.reading.select(self._lanes(exists), value, 0.0)
        steps = [*self._first, self._step]
        self.frame.store(self.own, self.own.rounded(total), self.result, steps, Place(outer, index, count))

    def _numbers(self, outer: tuple[Integer, ...], start: Integer, limit: int) -> Lanes:
        """Neighbouring numbers of a row, those that exist."""
        exists = counted(self.frame, start, range(self.frame.lanes), limit)
        return self.frame.value_where(self.operand, Place(outer, start, None), self.own.element, exists)

    def _masked(self, outer: tuple[Integer, ...], index: Integer, offset: Integer, count: Integer | None) -> Lanes:
        """What one offset gives neighbouring places; `+0.0`, which changes no sum, where it gives nothing."""
        frame, function = self.frame, self.frame.function
        first = index if self.ring is None else function.add(index, self.ring.begun)
        start = function.add(first, function.multiply(offset, -self.opcode.dilation))
        places = vector("i64", frame.lanes)
        first = Operand(INT64, written(start))
        windows = self._lanes(function.spread(places, first))
        if frame.lanes > 1:
            windows = windows + self._lanes(listed(places, tuple(range(frame.lanes))))
        below = function.let(places.of("i1"), f"icmp ult {windows}, {frame.reading.constant_text(places, self.count)}")
        if count is not None:
            present = function.prefix(frame.lanes, count)
            below = function.let(below.type, f"and {below}, {present.text}")
        if self.ring is not None:
            value = self._around((*outer, offset), start, below, self.ring)
        else:
            value = frame.value_where(self.operand, Place((*outer, offset), start, None), self.own.element, below)
        return frame.reading.select(self._lanes(below), value, 0.0)  # type: ignore[no-any-return]

    def may_be_along(self) -> bool:
        """Whether the windows of a register lie in one piece, or in two around the end of a ring."""
        return self.ring is None or (self.opcode.step == 1 and self.ring.rows >= self.frame.lanes)

    def _around(self, outer: tuple[Integer, ...], start: Integer, exists: Operand, ring: Ring) -> Lanes:
        """Neighbouring windows of a ring, those that exist: up to its end, and from its beginning on."""
        frame, function, rows = self.frame, self.frame.function, ring.rows
        before = -(-(self.opcode.size - 1) * self.opcode.dilation // rows) * rows
        turned = function.add(start, ring.ahead + before)
        row = function.let(INT64, f"urem i64 {written(turned)}, {rows}")
        is_before = counted(self.frame, row, range(frame.lanes), rows)
        pieces = []
        is_after = function.let(exists.type, f"xor {is_before}, splat (i1 true)")
        for begin, mask in ((row, is_before), (function.add(row, -rows), is_after)):
            here = function.let(exists.type, f"and {exists}, {mask.text}")
            pieces.append(frame.value_where(self.operand, Place(outer, begin, None), self.own.element, here))
        return frame.reading.select(self._lanes(is_before), *pieces)  # type: ignore[no-any-return]

    def _offsets(self, add: Callable[[Integer, Operand], list[Operand]], start: Lanes) -> Lanes:
        """The sum over the offsets in ascending order."""
        function = self.frame.function
        if self.opcode.size > UNROLLED:
            return self._lanes(function.loop(0, self.opcode.size, 1, add, [start])[0])
        held: Operand = start
        for offset in range(self.opcode.size):
            (held,) = add(offset, held)
        return self._lanes(held)

    def _lanes(self, operand: Operand) -> Lanes:
        return self.frame.reading.lanes_of(operand)
