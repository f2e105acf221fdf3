"""Few rows by columns that lie as lines of terms: the lines are transposed in registers as they are read."""

from __future__ import annotations

from collections.abc import Sequence

from topos.backend.native.products.choice import BLOCK
from topos.backend.native.products.frame import Work, frame
from topos.backend.native.products.kind import Kind
from topos.backend.native.products.lanes import Results, prefetch
from topos.backend.native.products.text import Text

_PREFETCH_BYTES = 1 << 20  # a right operand below this stays in L2 by itself


def lines(kind: Kind) -> str:
    """The text: one panel is one vector of columns and all rows; every chain and total stays in registers."""
    return frame(kind, None, lambda text, work: _panels(kind, text, work))


def _panels(kind: Kind, text: Text, work: Work) -> None:
    task, lanes = kind.choice.task, kind.lanes
    tail = task.columns % lanes.width

    def panel(index: str, _: Sequence[str]) -> None:
        column = text.mul(index, lanes.width)
        right = text.at(work.right, text.mul(column, task.right[1] * kind.right.item_bytes))
        out = text.at(work.out, text.mul(column, task.out[1] * lanes.item_bytes))
        kind.choice.panels.each(
            text,
            index,
            tail,
            lanes.width,
            lambda _, active: _Panel(kind, text, active).run(work.left, right, out, column),
        )

    text.loop(*work.panels, 1, panel)


class _Panel:
    """One vector of columns."""

    def __init__(self, kind: Kind, text: Text, active: int) -> None:
        self.kind, self.text, self.active = kind, text, active
        self.task, self.lanes = kind.choice.task, kind.lanes
        self.rows = self.task.rows

    def run(self, left: str, right: str, out: str, column: str) -> None:
        """All blocks, then the store."""
        text, lanes = self.text, self.lanes
        terms, count = self.task.terms, -(-self.task.terms // BLOCK)
        totals = ["zeroinitializer"] * self.rows

        def block(index: str, values: Sequence[str]) -> list[str]:
            start = text.mul(index, BLOCK)
            here = str(terms) if count == 1 else text.least(text.let(f"sub i64 {terms}, {start}"), BLOCK)
            return self.added(values, self.block(left, right, start, here))

        if count == 1:
            totals = block("0", totals)
        else:
            totals = text.loop("0", str(count), 1, block, [(lanes.vector, total) for total in totals])
        for row, total in enumerate(totals):
            where = [str(row), column]
            if self.kind.choice.is_turned:
                where.reverse()
            results = Results(text, total, lanes.vector, where[0], where[1], self.active, self.kind.choice.is_turned)
            pointer = text.at(out, row * self.task.out[0] * lanes.item_bytes)
            lanes.finish(pointer, self.task.out[1], results, self.kind.epilogue)

    def added(self, totals: Sequence[str], sums: Sequence[str]) -> list[str]:
        return [self.lanes.add(self.text, one, two) for one, two in zip(totals, sums, strict=True)]

    def block(self, left: str, right: str, start: str, terms: str) -> list[str]:
        """The chains over some terms from `start` on."""
        text, lanes, task = self.text, self.lanes, self.task
        lefts, rights = self.kind.left, self.kind.right
        left = text.at(left, text.mul(start, task.left[1] * lefts.item_bytes))
        right = text.at(right, text.mul(start, task.right[0] * rights.item_bytes))
        kinds = [lanes.vector] * self.rows

        def squares(term: str, values: Sequence[str]) -> list[str]:
            source = text.at(right, text.mul(term, rights.item_bytes))
            self.prefetch(source)
            place = text.at(left, text.mul(term, task.left[1] * lefts.item_bytes))
            for step, spread in enumerate(rights.transposed(text, source, task.right[1], self.active)):
                values = self.chained(values, text.at(place, step * task.left[1] * lefts.item_bytes), spread)
            return list(values)

        def single(term: str, values: Sequence[str]) -> list[str]:
            source = text.at(right, text.mul(term, rights.item_bytes))
            spread = rights.gather(text, source, task.right[1], self.active)
            return self.chained(values, text.at(left, text.mul(term, task.left[1] * lefts.item_bytes)), spread)

        def carried(sums: Sequence[str]) -> list[tuple[str, str]]:
            return list(zip(kinds, sums, strict=True))

        sums = ["zeroinitializer"] * self.rows
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

    def chained(self, sums: Sequence[str], left: str, right: str) -> list[str]:
        """One term onto the chain of every row."""
        text, lanes = self.text, self.lanes
        stride = self.task.left[0] * self.kind.left.item_bytes
        spreads = [self.kind.left.splat(text, text.at(left, row * stride)) for row in range(self.rows)]
        return [lanes.fma(text, spread, right, value) for spread, value in zip(spreads, sums, strict=True)]

    def prefetch(self, source: str) -> None:
        """The same terms of the next panel, into L2: a hardware prefetcher follows no more than a few lines at once."""
        if self.task.columns * self.task.terms * self.kind.right.item_bytes < _PREFETCH_BYTES:
            return
        for lane in range(self.lanes.width):
            ahead = self.text.at(source, (self.lanes.width + lane) * self.task.right[1] * self.kind.right.item_bytes)
            prefetch(self.text, ahead, write=False, locality=2)
