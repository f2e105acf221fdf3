"""Some chunks of columns of a matrix that few rows read once: lines side by side, onto sums kept nearby.

Every sum takes the next few terms each time it is in registers. Chunks are taken for some rows at a time: what the
first of these read is in the nearest cache for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topos.backend.native.products.frame import Work
from topos.backend.native.products.kind import Kind
from topos.backend.native.products.lanes import Results, prefetch
from topos.backend.native.products.split import split
from topos.backend.native.products.text import Text
from topos.reference.products import BLOCK
from topos.tensor.memory import LINE

_SIDE = 8  # lines side by side; a divisor of BLOCK
_SIDE_OF_FEW_BYTES = 256  # of one vector of each of them, where rows are few
FEW = 2  # rows whose multiply-adds take far less time than memory
MOST_ROWS = 8  # up to here a pass over the right operand costs its bandwidth, whatever is done with it
SUMS_BYTES = 96 << 10  # read and written once for eight terms, they need not stay in L1
_CHAINS = 8  # that hide the latency of a multiply-add; with what they read they fit 16 registers


def side(rows: int, vector_bytes: int) -> int:
    """How many lines are read side by side: of few rows, so many bytes of them."""
    return _SIDE if rows > FEW else min(_SIDE, _SIDE_OF_FEW_BYTES // vector_bytes)


def chunk_vectors(vector_bytes: int) -> int:
    """The vectors of a chunk: a cache line of wide numbers, so that each line is asked for once."""
    return max(1, LINE // vector_bytes)


class Strip:
    """So many chunks of columns from one on, known at run time; their sums lie vector by vector, in each row by row."""

    def __init__(self, kind: Kind, text: Text, work: Work, chunk: str, count: str, room: str) -> None:
        self.kind, self.text, self.work, self.sums = kind, text, work, room
        self.task, self.lanes = kind.choice.task, kind.lanes
        self.vector_bytes = self.lanes.width * self.lanes.wide_bytes
        self.vectors = chunk_vectors(self.vector_bytes)
        self.side = side(self.task.rows, self.vector_bytes)
        self.first, self.all, self.whole = text.mul(chunk, self.vectors), count, count
        self.last = self._actives(self.task.columns % (self.vectors * self.lanes.width))
        if self.last:
            whole = self.task.columns // (self.vectors * self.lanes.width)
            self.is_last = text.less(whole, text.add(chunk, count))
            self.whole = text.let(f"select i1 {self.is_last}, i64 {text.sub(str(whole), chunk)}, i64 {count}")
        self.groups = split(self.task.rows, max(1, _CHAINS // self.vectors))

    def _actives(self, columns: int) -> list[int]:
        """The lanes of each vector of so many columns."""
        return [min(self.lanes.width, columns - start) for start in range(0, columns, self.lanes.width)]

    def add_blocks(self, totals: str) -> None:
        """All blocks of terms, whose totals are then what is stored."""
        text, terms = self.text, self.task.terms
        self.zero(totals)

        def one(index: str) -> None:
            start = text.mul(index, BLOCK)
            self.zero(self.sums)
            self.block(start, text.least(text.sub(str(terms), start), BLOCK))
            self._each_sum(totals, lambda place, offset: self._add(place, text.at(self.sums, offset)))

        text.loop("0", self.kind.choice.blocks, 1, lambda index, _: one(index))
        self.sums = totals

    def zero(self, room: str) -> None:
        """No terms yet."""
        self._each_sum(room, lambda place, _: self._put(place, "zeroinitializer"))

    def _add(self, place: str, other: str) -> None:
        self._put(place, self.lanes.add(self.text, self._get(place), self._get(other)))

    def chunks(self, body: Callable[[str, list[int]], None]) -> None:
        """`body(vector, actives)` for every chunk, from its first vector on."""
        text, full = self.text, [self.lanes.width] * self.vectors

        def every() -> None:
            text.loop("0", self.whole, 1, lambda chunk, _: body(text.mul(chunk, self.vectors), full))

        if not self.last:
            return every()
        text.when(text.less(0, self.whole), every)
        text.when(self.is_last, lambda: body(text.mul(self.whole, self.vectors), self.last))
        return None

    def _each_sum(self, room: str, body: Callable[[str, str], None]) -> None:
        """`body(pointer, offset)` for every vector and row in a room, as they lie."""
        text, rows = self.text, self.task.rows

        def one(place: str, _: Sequence[str]) -> None:
            offset = text.mul(place, self.vector_bytes)
            body(text.at(room, offset), offset)

        text.loop("0", text.mul(self.all, rows * self.vectors), 1, one)

    def _get(self, place: str) -> str:
        return self.lanes.load(self.text, place, self.lanes.width, wide=True)

    def _put(self, place: str, value: str) -> None:
        self.lanes.keep(self.text, place, value, self.lanes.width)

    def begins(self, term: str) -> tuple[str, str]:
        """Where a term of the left and of the right operand begins."""
        text, task = self.text, self.task
        left = text.at(self.work.left, text.mul(term, task.left[1] * self.kind.left.item_bytes))
        right = text.at(self.work.right, text.mul(term, task.right[0] * self.kind.right.item_bytes))
        return left, text.at(right, text.mul(self.first, self.lanes.width * self.kind.right.item_bytes))

    def block(self, start: str, terms: str) -> None:
        """The chains of some terms, a few at a time; in a block that is not the last, no terms are left over."""
        text, task = self.text, self.task
        left, right = self.begins(start)

        def some(term: str, count: int) -> None:
            here = text.at(left, text.mul(term, task.left[1] * self.kind.left.item_bytes))
            self._lines(here, text.at(right, text.mul(term, task.right[0] * self.kind.right.item_bytes)), count)

        def whole(end: str) -> None:
            text.loop("0", end, self.side, lambda term, _: some(term, self.side))

        rest = task.terms % self.side
        if not rest:
            return whole(terms)
        end = str(int(terms) - rest) if terms.isdigit() else text.let(f"and i64 {terms}, {-self.side}")
        text.when(text.less(0, end), lambda: whole(end))
        text.when(text.less(end, terms), lambda: some(end, rest))
        return None

    def _lines(self, left: str, right: str, count: int) -> None:
        """Some lines side by side onto the sums of every chunk, row group by row group."""
        text, task, rights = self.text, self.task, self.kind.right
        line_bytes, row_bytes = task.right[0] * rights.item_bytes, task.left[0] * self.kind.left.item_bytes
        before = self.factors(left, 1, count) if task.rows == 1 else None

        def chunk(vector: str, actives: list[int]) -> None:
            source = text.at(right, text.mul(vector, self.lanes.width * rights.item_bytes))
            lines = [text.at(source, term * line_bytes) for term in range(count)]
            self._prefetch(text.at(source, count * line_bytes), vector)

            def group(number: str) -> None:
                row = self.groups.start(text, number)
                base = text.at(left, text.mul(row, row_bytes))

                def some(rows: int, _: int) -> None:
                    factor = before or self.factors(base, rows, count)
                    self.chains(self.place(self.sums, vector, row), lines, factor, rows, actives)

                self.groups.each(text, number, 0, 0, some)

            text.loop("0", self.groups.groups, 1, lambda number, _: group(number))

        self.chunks(chunk)

    def _prefetch(self, source: str, vector: str) -> None:
        """The lines that come next, side by side; some of them in turn, where a chunk is less than a cache line.

        Where little is done with a line, the hardware is ahead as it is, and requests beside its own hold it up.
        """
        text, rights = self.text, self.kind.right
        if self.task.rows <= FEW and rights.item_bytes == rights.wide_bytes:
            return
        turns = max(1, LINE // (self.vectors * self.lanes.width * rights.item_bytes))
        line_bytes, count = self.task.right[0] * rights.item_bytes, self.side // turns
        if turns > 1:
            turn = text.let(f"and i64 {text.let(f'udiv i64 {vector}, {self.vectors}')}, {turns - 1}")
            source = text.at(source, text.mul(turn, count * line_bytes))
        for term in range(count):
            prefetch(text, text.at(source, term * line_bytes), write=False, locality=2)

    def chains(
        self, room: str, lines: Sequence[str], factor: Callable[[int, int], str], rows: int, actives: list[int]
    ) -> None:
        """The terms of some lines onto the sums of some rows and vectors, from a place in the room on.

        The chains are side by side: a multiply-add waits for the one before it in its own.
        """
        text, lanes = self.text, self.lanes
        where = [self.place(room, str(vector), row) for row in range(rows) for vector in range(len(actives))]
        sums = [self._get(place) for place in where]
        for term, line in enumerate(lines):
            numbers = self._numbers(line, actives)
            for row in range(rows):
                spread = factor(row, term)
                for vector, number in enumerate(numbers):
                    at = row * len(actives) + vector
                    sums[at] = lanes.fma(text, spread, number, sums[at])
        for place, value in zip(where, sums, strict=True):
            self._put(place, value)

    def _numbers(self, line: str, actives: list[int]) -> list[str]:
        """Of a line, some vectors, as the sums have them: paired ones by turns, the even numbers and the odd."""
        text, rights = self.text, self.kind.right
        if self._is_paired(actives):
            return rights.paired(text, line)
        size = self.lanes.width * rights.item_bytes
        return [rights.load(text, text.at(line, at * size), active) for at, active in enumerate(actives)]

    def _is_paired(self, actives: list[int]) -> bool:
        """Whether the sums of two vectors are those of the even columns and of the odd ones."""
        return self.kind.right.opens_pairs and actives == [self.lanes.width] * 2

    def factors(self, left: str, rows: int, count: int) -> Callable[[int, int], str]:
        """A number of the left operand, by row and term, in all lanes: loaded where it is used, or before."""
        text, task, lefts = self.text, self.task, self.kind.left
        down, along = (stride * lefts.item_bytes for stride in task.left)

        def factor(row: int, term: int) -> str:
            return lefts.splat(text, text.at(left, row * down + term * along))

        if lefts.item_bytes == lefts.wide_bytes and task.rows > 1:
            return factor
        before = [[factor(row, term) for term in range(count)] for row in range(rows)]
        return lambda row, term: before[row][term]

    def place(self, room: str, vector: str, row: int | str) -> str:
        """Where the sums of a vector and row lie."""
        text, rows = self.text, self.task.rows
        down = text.mul(str(row), self.vector_bytes)
        return text.at(text.at(room, text.mul(vector, rows * self.vector_bytes)), down)

    def store(self, out: str) -> None:
        """The sums of every chunk to their places in a matrix of results, row by row."""
        text, task, lanes = self.text, self.task, self.lanes
        goals = text.at(out, text.mul(self.first, lanes.width * task.out[1] * lanes.item_bytes))

        def one(vector: str, actives: list[int], row: str) -> None:
            where = self.place(self.sums, vector, row)
            values = [self._get(self.place(where, str(at), 0)) for at in range(len(actives))]
            if self._is_paired(actives):
                values = lanes.unpaired(text, *values)
            goal = text.at(goals, text.mul(vector, lanes.width * task.out[1] * lanes.item_bytes))
            goal = text.at(goal, text.mul(row, task.out[0] * lanes.item_bytes))
            column = text.mul(text.add(self.first, vector), lanes.width)
            for at, (value, active) in enumerate(zip(values, actives, strict=True)):
                if self.kind.choice.blocks == 1:
                    value = lanes.add(text, value, "zeroinitializer")
                results = Results(value, self.work.product, row, text.add(column, at * lanes.width), active)
                self.kind.finish(text, results, text.at(goal, at * lanes.width * task.out[1] * lanes.item_bytes))

        def chunk(vector: str, actives: list[int]) -> None:
            text.loop("0", task.rows, 1, lambda row, _: one(vector, actives, row))

        self.chunks(chunk)
