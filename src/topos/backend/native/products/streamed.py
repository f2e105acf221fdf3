"""Few rows by a matrix that is read once: some of its lines side by side, from end to end, onto sums kept nearby.

Memory is read fastest where it is read on and on: the hardware then fetches ahead by itself. A panel is as many columns
as leave their sums in the nearer caches; every sum takes the next few terms each time it is in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topos.backend.native.products.frame import Work, argument, frame
from topos.backend.native.products.kind import Kind
from topos.backend.native.products.lanes import Results, prefetch
from topos.backend.native.products.regions import base
from topos.backend.native.products.text import Text
from topos.backend.native.target import Target
from topos.reference.products import BLOCK
from topos.tensor.memory import LINE

_SIDE = 8  # lines side by side; a divisor of BLOCK
_SIDE_OF_FEW_BYTES = 256  # of one vector of each of them, where rows are few
FEW = 2  # rows whose multiply-adds take far less time than memory
_STACK_BYTES = 48 << 10


def side(rows: int, vector_bytes: int) -> int:
    """How many lines are read side by side: of few rows, so many bytes of them."""
    return _SIDE if rows > FEW else min(_SIDE, _SIDE_OF_FEW_BYTES // vector_bytes)


def streamed(kind: Kind, target: Target) -> str:
    """The text: panel after panel, all rows at once."""

    def body(text: Text, work: Work) -> None:
        if scratch_bytes(kind) > kind.room_bytes + LINE:
            own = text.mul("%worker", _rooms(kind) * _room_bytes(kind))
            room = text.at(text.at(base(text, argument(text, kind.scratch_place)), kind.room_bytes), own)
        else:
            room = text.room(f"[{_rooms(kind) * _room_bytes(kind)} x i8]")
        text.loop(*work.panels, 1, lambda panel, _: _Panel(kind, text, work, panel, room).run())

    return frame(kind, None, body)


def scratch_bytes(kind: Kind) -> int:
    """What the sums of all workers take, from any address on, where they are too large for the stack."""
    own = _rooms(kind) * _room_bytes(kind)
    size = kind.choice.tiles * own if own > _STACK_BYTES else 0
    return kind.room_bytes + size + LINE if size or kind.room_bytes else 0


def _room_bytes(kind: Kind) -> int:
    """The sums of the longest panel."""
    choice, lanes = kind.choice, kind.lanes
    return choice.task.rows * choice.panels.largest * lanes.width * lanes.wide_bytes


def _rooms(kind: Kind) -> int:
    """Sums, and the totals of the blocks before where there are any."""
    return 2 if kind.choice.blocks > 1 else 1


class _Panel:
    """Some vectors of columns, known at run time; their sums lie vector by vector, in each row by row."""

    def __init__(self, kind: Kind, text: Text, work: Work, panel: str, room: str) -> None:
        self.kind, self.text, self.work = kind, text, work
        self.task, self.lanes = kind.choice.task, kind.lanes
        self.vector_bytes = self.lanes.width * self.lanes.wide_bytes
        panels, self.tail = kind.choice.panels, self.task.columns % self.lanes.width
        self.column = text.mul(panels.start(text, panel), self.lanes.width)
        self.is_last = text.let(f"icmp eq i64 {panel}, {panels.groups - 1}")
        self.all = text.let(f"select i1 {text.less(panel, panels.extra)}, i64 {panels.small + 1}, i64 {panels.small}")
        self.whole = self.all
        if self.tail:
            self.whole = text.let(f"select i1 {self.is_last}, i64 {panels.small - 1}, i64 {self.all}")
        self.side = side(self.task.rows, self.vector_bytes)
        self.sums = room
        self.totals = text.at(room, _room_bytes(kind)) if _rooms(kind) > 1 else room

    def run(self) -> None:
        """All blocks, then the store."""
        text, task = self.text, self.task
        right = text.at(self.work.right, text.mul(self.column, self.kind.right.item_bytes))
        self.each_sum(self.totals, lambda place, _: self.put(place, "zeroinitializer"))
        if self.kind.choice.blocks == 1:
            self.block(self.work.left, right, task.terms)
        else:
            whole, rest = divmod(task.terms, BLOCK)
            text.loop("0", whole, 1, lambda index, _: self.added(right, text.mul(index, BLOCK), BLOCK))
            if rest:
                self.added(right, str(whole * BLOCK), rest)
        self.vectors(self.finish)

    def vectors(self, body: Callable[[str, int], None]) -> None:
        """`body(vector, active)` for every vector of the panel."""
        self.text.loop("0", self.whole, 1, lambda vector, _: body(vector, self.lanes.width))
        if self.tail:
            self.text.when(self.is_last, lambda: body(self.whole, self.tail))

    def each_sum(self, room: str, body: Callable[[str, str], None]) -> None:
        """`body(pointer, offset)` for every vector and row in a room, as they lie."""
        text, rows = self.text, self.task.rows

        def one(place: str, _: Sequence[str]) -> None:
            offset = text.mul(place, self.vector_bytes)
            body(text.at(room, offset), offset)

        text.loop("0", text.mul(self.all, rows), 1, one)

    def get(self, place: str) -> str:
        return self.lanes.load(self.text, place, self.lanes.width, wide=True)

    def put(self, place: str, value: str) -> None:
        self.lanes.keep(self.text, place, value, self.lanes.width)

    def added(self, right: str, start: str, terms: int) -> None:
        """One block of terms onto the totals."""
        text, task = self.text, self.task
        left = text.at(self.work.left, text.mul(start, task.left[1] * self.kind.left.item_bytes))
        self.each_sum(self.sums, lambda place, _: self.put(place, "zeroinitializer"))
        self.block(left, text.at(right, text.mul(start, task.right[0] * self.kind.right.item_bytes)), terms)

        def add(place: str, offset: str) -> None:
            self.put(place, self.lanes.add(text, self.get(place), self.get(text.at(self.sums, offset))))

        self.each_sum(self.totals, add)

    def block(self, left: str, right: str, terms: int) -> None:
        """The chains over so many terms, a few at a time."""
        text, task = self.text, self.task

        def some(term: str, count: int) -> None:
            here = text.at(left, text.mul(term, task.left[1] * self.kind.left.item_bytes))
            self.lines(here, text.at(right, text.mul(term, task.right[0] * self.kind.right.item_bytes)), count)

        whole = terms - terms % self.side
        if whole:
            text.loop("0", whole, self.side, lambda term, _: some(term, self.side))
        if whole < terms:
            some(str(whole), terms - whole)

    def lines(self, left: str, right: str, count: int) -> None:
        """So many terms onto every sum."""
        text, task, lanes = self.text, self.task, self.lanes
        rights = self.kind.right
        line_bytes = task.right[0] * rights.item_bytes
        factor = self.factors(left, count)

        def step(vector: str, active: int) -> None:
            source = text.at(right, text.mul(vector, lanes.width * rights.item_bytes))
            values = [rights.load(text, text.at(source, term * line_bytes), active) for term in range(count)]
            self.prefetch(text.at(source, count * line_bytes), vector)
            places = [self.place(self.sums, vector, row) for row in range(task.rows)]
            sums = [self.get(place) for place in places]
            # The chains of all rows side by side: a multiply-add waits for the one before it in its own.
            for term, line in enumerate(values):
                sums = [lanes.fma(text, factor(row, term), line, value) for row, value in enumerate(sums)]
            for place, value in zip(places, sums, strict=True):
                self.put(place, value)

        self.vectors(step)

    def prefetch(self, source: str, vector: str) -> None:
        """The lines that come next, side by side; some of them in turn, where a vector is less than a cache line."""
        text, rights = self.text, self.kind.right
        turns = max(1, LINE // (self.lanes.width * rights.item_bytes))
        if turns > 1 and self.task.rows == 1 and rights.item_bytes == rights.wide_bytes:
            return  # so little is done with a line that the hardware is ahead as it is
        line_bytes, count = self.task.right[0] * rights.item_bytes, max(1, self.side // turns)
        if turns > 1:
            turn = text.let(f"and i64 {vector}, {turns - 1}")
            source = text.at(source, text.mul(turn, count * line_bytes))
        for term in range(count):
            prefetch(text, text.at(source, term * line_bytes), write=False, locality=2)

    def factors(self, left: str, count: int) -> Callable[[int, int], str]:
        """A number of the left operand, by row and term, in all lanes: loaded where it is used, or before."""
        text, task, lefts = self.text, self.task, self.kind.left
        down, along = (stride * lefts.item_bytes for stride in task.left)

        def factor(row: int, term: int) -> str:
            return lefts.splat(text, text.at(left, row * down + term * along))

        if lefts.item_bytes == lefts.wide_bytes and task.rows > FEW:
            return factor
        before = [[factor(row, term) for term in range(count)] for row in range(task.rows)]
        return lambda row, term: before[row][term]

    def place(self, room: str, vector: str, row: int | str) -> str:
        """Where the sums of a vector and row lie."""
        text, rows = self.text, self.task.rows
        down = row * self.vector_bytes if isinstance(row, int) else text.mul(row, self.vector_bytes)
        return text.at(text.at(room, text.mul(vector, rows * self.vector_bytes)), down)

    def finish(self, vector: str, active: int) -> None:
        """The results of a vector, row by row."""
        text, task, lanes = self.text, self.task, self.lanes
        column = text.add(self.column, text.mul(vector, lanes.width))
        goal = text.at(self.work.out, text.mul(column, task.out[1] * lanes.item_bytes))

        def one(row: str) -> None:
            value = self.get(self.place(self.totals, vector, row))
            if self.kind.choice.blocks == 1:
                value = lanes.add(text, value, "zeroinitializer")
            results = Results(value, self.work.product, row, column, active)
            self.kind.finish(text, results, text.at(goal, text.mul(row, task.out[0] * lanes.item_bytes)))

        if task.rows == 1:
            one("0")
        else:
            text.loop("0", task.rows, 1, lambda row, _: one(row))
