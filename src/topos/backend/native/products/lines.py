"""Few rows by columns that lie as lines of terms: the lines are transposed in registers as they are read."""

from __future__ import annotations

from collections.abc import Sequence

from topos.backend.native.products.frame import Work, frame
from topos.backend.native.products.kind import Kind
from topos.backend.native.products.lanes import Results, prefetch
from topos.backend.native.products.text import Text
from topos.reference.products import BLOCK
from topos.tensor.memory import LINE

_AHEAD_BYTES = 512  # how far on in a line it is asked for
_PANEL_BYTES = 32 << 10  # of lines that are all asked for before the first one is read


def lines(kind: Kind) -> str:
    """The text: one panel is a vector or two of columns and all rows; every chain and total stays in registers."""
    return frame(kind, None, lambda text, work: _panels(kind, text, work))


def _panels(kind: Kind, text: Text, work: Work) -> None:
    task, lanes = kind.choice.task, kind.lanes
    tail = task.columns % lanes.width

    def panel(index: str, _: Sequence[str]) -> None:
        column = text.mul(kind.choice.panels.start(text, index), lanes.width)
        right = text.at(work.right, text.mul(column, task.right[1] * kind.right.item_bytes))
        out = text.at(work.out, text.mul(column, task.out[1] * lanes.item_bytes))
        kind.choice.panels.each(
            text,
            index,
            tail,
            lanes.width,
            lambda vectors, active: _Panel(kind, text, work, vectors, active).run(right, out, column),
        )

    text.loop(*work.panels, 1, panel)


class _Panel:
    """Some vectors of columns, the last one of `active`; a chain for every vector and row."""

    def __init__(self, kind: Kind, text: Text, work: Work, vectors: int, active: int) -> None:
        self.kind, self.text, self.work = kind, text, work
        self.task, self.lanes = kind.choice.task, kind.lanes
        self.actives = [self.lanes.width] * (vectors - 1) + [active]
        self.places = [(vector, row) for vector in range(vectors) for row in range(self.task.rows)]

    def run(self, right: str, out: str, column: str) -> None:
        """All blocks, then the store."""
        text, lanes = self.text, self.lanes
        terms, count = self.task.terms, -(-self.task.terms // BLOCK)
        totals = ["zeroinitializer"] * len(self.places)

        def block(index: str, values: Sequence[str]) -> list[str]:
            start = text.mul(index, BLOCK)
            here = str(terms) if count == 1 else text.least(text.let(f"sub i64 {terms}, {start}"), BLOCK)
            return self.added(values, self.block(self.work.left, right, start, here))

        if count == 1:
            totals = block("0", totals)
        else:
            totals = text.loop("0", str(count), 1, block, [(lanes.vector, total) for total in totals])
        for (vector, row), total in zip(self.places, totals, strict=True):
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
        vector_bytes = lanes.width * task.right[1] * rights.item_bytes

        def squares(term: str, values: Sequence[str]) -> list[str]:
            source = text.at(right, text.mul(term, rights.item_bytes))
            self.prefetch(source, text.add(start, term))
            place = text.at(left, text.mul(term, task.left[1] * lefts.item_bytes))
            for vector, active in enumerate(self.actives):
                line = rights.transposed(text, text.at(source, vector * vector_bytes), task.right[1], active)
                for step, one in enumerate(line):
                    values = self.chained(values, text.at(place, step * task.left[1] * lefts.item_bytes), vector, one)
            return list(values)

        def single(term: str, values: Sequence[str]) -> list[str]:
            source = text.at(right, text.mul(term, rights.item_bytes))
            place = text.at(left, text.mul(term, task.left[1] * lefts.item_bytes))
            for vector, active in enumerate(self.actives):
                one = rights.gather(text, text.at(source, vector * vector_bytes), task.right[1], active)
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
        if not self.kind.choice.is_far:
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
