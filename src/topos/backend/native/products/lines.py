"""Few rows by columns that lie as lines of terms: the lines are transposed in registers as they are read.

Memory is read fastest where it is read on and on, in few places: the hardware then fetches ahead by itself, and more
than any request can ask for. From beyond the nearer caches, the columns of a vector therefore lie far apart, and the
next vector's are those beside them: every lane reads one line after another, from end to end.
"""

from __future__ import annotations

from collections.abc import Sequence

from topos.backend.native.products.frame import Work, frame
from topos.backend.native.products.kind import Kind
from topos.backend.native.products.lanes import Results, prefetch
from topos.backend.native.products.text import Text
from topos.backend.native.target import Target
from topos.reference.products import BLOCK
from topos.tensor.memory import LINE

_AHEAD_BYTES = 512  # how far on in a line it is asked for
_PANEL_BYTES = 32 << 10  # of lines that are all asked for before the first one is read
_MOST_LANES = 8  # the hardware follows no more places at once
_FEWEST_PANELS = 3  # of fewer, each lane would read one line, as it does anyway


def lines(kind: Kind, target: Target) -> str:
    """The text: one panel is a vector or two of columns and all rows; every chain and total stays in registers."""
    return frame(kind, None, lambda text, work: _panels(kind, text, work))


def _panels(kind: Kind, text: Text, work: Work) -> None:
    task, lanes = kind.choice.task, kind.lanes
    first, end = work.panels
    length = _run_lines(kind)
    if length:
        _Apart(kind, text, work, length).panels()
        first = text.add(first, length)

    def panel(index: str, _: Sequence[str]) -> None:
        column = text.mul(kind.choice.panels.start(text, index), lanes.width)
        right = text.at(work.right, text.mul(column, task.right[1] * kind.right.item_bytes))
        out = text.at(work.out, text.mul(column, task.out[1] * lanes.item_bytes))
        kind.choice.panels.each(
            text,
            index,
            task.columns % lanes.width,
            lanes.width,
            lambda vectors, active: _Panel(kind, text, work, vectors, active).run(right, out, column),
        )

    text.loop(first, end, 1, panel)


def _run_lines(kind: Kind) -> int:
    """How many lines a lane reads one after another, as many panels as every tile has but its last; 0 where few.

    An odd number: the lanes had else better not lie a multiple of many lines apart, in the same set of every cache.
    """
    choice = kind.choice
    panels = choice.panels.groups // choice.column_tiles - 1
    if not choice.is_far or kind.lanes.width > _MOST_LANES or panels < _FEWEST_PANELS:
        return 0
    return panels - (panels % 2 == 0)


class _Apart:
    """The first panels of a tile, as many as a run has lines: their columns lie so many lines apart.

    Results are laid side by side to be stored.
    """

    def __init__(self, kind: Kind, text: Text, work: Work, length: int) -> None:
        self.kind, self.text, self.work, self.length = kind, text, work, length
        self.task, self.lanes = kind.choice.task, kind.lanes
        self.panel = _Panel(kind, text, work, kind.choice.panels.largest, kind.lanes.width, length)
        self.columns = kind.choice.panels.largest * kind.lanes.width  # of a panel: each has results of its own
        self.room = text.room(f"[{self.columns * self.task.rows * self.lanes.width} x {self.lanes.scalar}]")
        self.first = text.mul(kind.choice.panels.start(text, work.panels[0]), self.lanes.width)

    def panels(self) -> None:
        """All of them: each time as many as fill a vector of each column's results."""
        self.text.loop("0", self.length, self.lanes.width, lambda line, _: self.group(line))

    def group(self, line: str) -> None:
        """The panels from a line of each lane on, then their results."""
        text, width, size = self.text, self.lanes.width, self.lanes.wide_bytes
        line_bytes = self.task.right[1] * self.kind.right.item_bytes
        right = text.at(self.work.right, text.mul(text.add(self.first, line), line_bytes))
        left_over = text.let(f"sub i64 {self.length}, {line}")

        def one(index: str) -> None:
            totals = self.panel.totals(text.at(right, text.mul(index, line_bytes)))
            for (vector, row), total in zip(self.panel.places, totals, strict=True):
                for lane in range(width):
                    value = text.let(f"extractelement {self.lanes.vector} {total}, i32 {lane}")
                    place = text.at(self.place(str(vector * width + lane), str(row)), text.mul(index, size))
                    text.do(f"store {self.lanes.scalar} {value}, ptr {place}, align {size}")

        text.loop("0", text.least(left_over, width), 1, lambda index, _: one(index))
        is_whole = text.less(width - 1, left_over)
        finish = self.finish
        text.when(is_whole, lambda: finish(line, width), lambda: finish(line, self.length % width))

    def place(self, column: str, row: str) -> str:
        """Where the results of a panel's column and a row lie side by side."""
        text, line_bytes = self.text, self.lanes.width * self.lanes.wide_bytes
        down = text.mul(row, line_bytes)
        return text.at(text.at(self.room, text.mul(column, self.task.rows * line_bytes)), down)

    def finish(self, line: str, active: int) -> None:
        """So many results of every column and row."""
        text, task, lanes = self.text, self.task, self.lanes
        start = text.add(self.first, line)

        def one(lane: str, row: str) -> None:
            column = text.add(start, text.mul(lane, self.length))
            value = lanes.load(text, self.place(lane, row), lanes.width, wide=True)
            out = text.at(self.work.out, text.mul(column, task.out[1] * lanes.item_bytes))
            pointer = text.at(out, text.mul(row, task.out[0] * lanes.item_bytes))
            self.kind.finish(text, Results(value, self.work.product, row, column, active), pointer)

        text.loop("0", self.columns, 1, lambda lane, _: text.loop("0", task.rows, 1, lambda row, _: one(lane, row)))


class _Panel:
    """Some vectors of columns, the last one of `active`, so many lines `apart`; a chain for every vector and row."""

    def __init__(self, kind: Kind, text: Text, work: Work, vectors: int, active: int, apart: int = 1) -> None:
        self.kind, self.text, self.work, self.apart = kind, text, work, apart
        self.task, self.lanes = kind.choice.task, kind.lanes
        self.actives = [self.lanes.width] * (vectors - 1) + [active]
        self.places = [(vector, row) for vector in range(vectors) for row in range(self.task.rows)]

    def totals(self, right: str) -> Sequence[str]:
        """All blocks."""
        text, lanes = self.text, self.lanes
        terms, count = self.task.terms, -(-self.task.terms // BLOCK)
        totals = ["zeroinitializer"] * len(self.places)

        def block(index: str, values: Sequence[str]) -> list[str]:
            start = text.mul(index, BLOCK)
            here = str(terms) if count == 1 else text.least(text.let(f"sub i64 {terms}, {start}"), BLOCK)
            return self.added(values, self.block(self.work.left, right, start, here))

        if count == 1:
            return block("0", totals)
        return text.loop("0", str(count), 1, block, [(lanes.vector, total) for total in totals])

    def run(self, right: str, out: str, column: str) -> None:
        """All blocks, then the store of columns that lie side by side."""
        text, lanes = self.text, self.lanes
        for (vector, row), total in zip(self.places, self.totals(right), strict=True):
            place = text.add(column, vector * lanes.width)
            results = Results(total, self.work.product, str(row), place, self.actives[vector])
            offset = row * self.task.out[0] + vector * lanes.width * self.task.out[1]
            pointer = text.at(out, offset * lanes.item_bytes)
            self.kind.finish(text, results, pointer)

    def added(self, totals: Sequence[str], sums: Sequence[str]) -> list[str]:
        return [self.lanes.add(self.text, one, two) for one, two in zip(totals, sums, strict=True)]

    def block(self, left: str, right: str, start: str, terms: str) -> list[str]:
        """The chains over some terms from `start` on."""
        text, lanes, task = self.text, self.lanes, self.task
        lefts, rights = self.kind.left, self.kind.right
        left = text.at(left, text.mul(start, task.left[1] * lefts.item_bytes))
        right = text.at(right, text.mul(start, task.right[0] * rights.item_bytes))
        kinds = [lanes.vector] * len(self.places)
        stride = task.right[1] * self.apart
        vector_bytes = lanes.width * stride * rights.item_bytes

        def squares(term: str, values: Sequence[str]) -> list[str]:
            source = text.at(right, text.mul(term, rights.item_bytes))
            self.prefetch(source, text.add(start, term))
            place = text.at(left, text.mul(term, task.left[1] * lefts.item_bytes))
            for vector, active in enumerate(self.actives):
                line = rights.transposed(text, text.at(source, vector * vector_bytes), stride, active)
                for step, one in enumerate(line):
                    values = self.chained(values, text.at(place, step * task.left[1] * lefts.item_bytes), vector, one)
            return list(values)

        def single(term: str, values: Sequence[str]) -> list[str]:
            source = text.at(right, text.mul(term, rights.item_bytes))
            place = text.at(left, text.mul(term, task.left[1] * lefts.item_bytes))
            for vector, active in enumerate(self.actives):
                one = rights.gather(text, text.at(source, vector * vector_bytes), stride, active)
                values = self.chained(values, place, vector, one)
            return list(values)

        def carried(sums: Sequence[str]) -> list[tuple[str, str]]:
            return list(zip(kinds, sums, strict=True))

        sums = ["zeroinitializer"] * len(self.places)
        rest = task.terms % lanes.width
        if not rest:
            return text.loop("0", terms, lanes.width, squares, carried(sums))
        whole = text.let(f"and i64 {terms}, {-lanes.width}")
        # Only a last block of less than a vector has no square, and only the last block has terms left over.
        if task.terms % BLOCK == rest:
            some = text.less(0, whole)
            sums = text.when(
                some, lambda: text.loop("0", whole, lanes.width, squares, carried(sums)), lambda: sums, kinds
            )
        else:
            sums = text.loop("0", whole, lanes.width, squares, carried(sums))
        left_over = text.less(whole, terms)
        return text.when(left_over, lambda: text.loop(whole, terms, 1, single, carried(sums)), lambda: sums, kinds)

    def chained(self, sums: Sequence[str], left: str, vector: int, right: str) -> list[str]:
        """One term onto the chains of a vector."""
        text, lanes, after = self.text, self.lanes, list(sums)
        stride = self.task.left[0] * self.kind.left.item_bytes
        for place in range(vector * self.task.rows, (vector + 1) * self.task.rows):
            spread = self.kind.left.splat(text, text.at(left, self.places[place][1] * stride))
            after[place] = lanes.fma(text, spread, right, after[place])
        return after

    def prefetch(self, source: str, term: str) -> None:
        """What lies further on in every line, or where they end, in the lines of the next panel.

        A hardware prefetcher follows few lines at once and none to the next. A step asks for as much as it reads: of
        every line, or of some lines in turn where it reads less than a cache line of each. Lines so short that all
        of them stay nearby are left to the hardware, and those of the next panel asked for at the same place.
        """
        if not self.kind.choice.is_far or self.apart > 1:
            return
        text, task, size = self.text, self.task, self.kind.right.item_bytes
        columns, stride = len(self.actives) * self.lanes.width, task.right[1] * size
        are_short = columns * abs(stride) <= _PANEL_BYTES
        ahead = task.terms if are_short else min(_AHEAD_BYTES * len(self.actives) // size, task.terms)
        inside = text.less(term, task.terms - ahead)
        along, further = ahead * size, (ahead - task.terms) * size + columns * stride
        place = text.at(source, text.let(f"select i1 {inside}, i64 {along}, i64 {further}"))
        turns = max(1, LINE // (self.lanes.width * size))
        if turns > 1:
            step = text.let(f"udiv i64 {term}, {self.lanes.width}")
            turn = text.let(f"and i64 {step}, {turns - 1}")
            place = text.at(place, text.mul(turn, columns // turns * stride))
        for column in range(columns // turns):
            prefetch(text, text.at(place, column * stride), write=False, locality=2 if are_short else 3)
