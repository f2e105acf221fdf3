"""Packing: a block of an operand copied into the order in which the register tile reads it, widened."""

from __future__ import annotations

from collections.abc import Sequence

from topos.backend.native.products.kind import Kind
from topos.backend.native.products.lanes import Lanes, prefetch
from topos.backend.native.products.text import Text
from topos.backend.native.target import Target

_AHEAD_BYTES = 2048  # how far ahead the copy's lines are asked for: a store that misses holds up those behind it


def pack_left(kind: Kind, rows: int, target: Target) -> str:
    """`%terms` times `rows` numbers, one term after another, from any strides; it may write a vector past the end."""
    text, (row_stride, term_stride) = Text(kind.helpers), kind.choice.task.left
    lanes, size, wide = kind.left, kind.left.item_bytes, kind.lanes.wide_bytes
    column = Lanes(kind.choice.task.element, target, rows, kind.choice.task.left_element)

    def single(term: str, _: Sequence[str]) -> None:
        source = text.at("%from", text.mul(term, term_stride * size))
        goal = text.at("%to", text.mul(term, rows * wide))
        if row_stride == 1:
            column.keep(text, goal, column.load(text, source, rows), rows)
            return
        for row in range(rows):
            number = column.number(text, text.at(source, row * row_stride * size))
            text.do(f"store {column.scalar} {number}, ptr {text.at(goal, row * wide)}, align {wide}")

    def squares(term: str, _: Sequence[str]) -> None:
        source = text.at("%from", text.mul(term, size))
        goal = text.at("%to", text.mul(term, rows * wide))
        for line in range(0, rows * lanes.width * wide, 64):
            prefetch(text, text.at(goal, line + _AHEAD_BYTES), write=True, locality=3)
        parts = [
            (first, lanes.transposed(text, text.at(source, first * row_stride * size), row_stride, rows - first))
            for first in range(0, rows, lanes.width)
        ]
        # In this order what a vector holds beyond the rows is overwritten by the next term.
        for step in range(lanes.width):
            for first, square in parts:
                lanes.keep(text, text.at(goal, (step * rows + first) * wide), square[step], lanes.width)

    terms = kind.choice.task.terms
    if term_stride != 1 or row_stride == 1 or kind.choice.depth < lanes.width:
        text.loop("0", "%terms", 1, single)
    elif terms % lanes.width == 0:
        text.loop("0", "%terms", lanes.width, squares)
    else:
        whole = text.let(f"and i64 %terms, {-lanes.width}")
        text.when(text.less(0, whole), lambda: text.loop("0", whole, lanes.width, squares))
        text.when(text.less(whole, "%terms"), lambda: text.loop(whole, "%terms", 1, single))
    return text.function(
        f"internal void @{kind.name}_left_{rows}(ptr noalias %from, ptr noalias %to, i64 %terms) noinline nounwind"
    )


def pack_right(kind: Kind, vectors: int, active: int) -> str:
    """`%terms` times `vectors` vectors, one term after another, from any strides; zeros beyond the columns."""
    text, (term_stride, column_stride) = Text(kind.helpers), kind.choice.task.right
    width = kind.lanes.width
    panel = _Panel(kind, text, [width] * (vectors - 1) + [active])
    if term_stride != 1 or column_stride == 1 or kind.choice.depth < width:
        panel.lines("0", "%terms")
    elif kind.choice.task.terms % width == 0:
        panel.squares("%terms")
    else:
        whole = text.let(f"and i64 %terms, {-width}")
        text.when(text.less(0, whole), lambda: panel.squares(whole))
        text.when(text.less(whole, "%terms"), lambda: panel.lines(whole, "%terms"))
    head = f"internal void @{kind.name}_right_{vectors}_{active}"
    return text.function(f"{head}(ptr noalias %from, ptr noalias %to, i64 %terms) noinline nounwind")


class _Panel:
    """A panel of the right operand: how many lanes of each vector are columns."""

    def __init__(self, kind: Kind, text: Text, counts: list[int]) -> None:
        self.lanes, self.text, self.counts = kind.right, text, counts
        self.term_stride, self.column_stride = kind.choice.task.right
        self.vector_bytes = self.lanes.width * self.lanes.wide_bytes

    def _source(self, term: str, vector: int) -> str:
        size = self.lanes.item_bytes
        source = self.text.at("%from", self.text.mul(term, self.term_stride * size))
        return self.text.at(source, vector * self.lanes.width * self.column_stride * size)

    def _goal(self, term: str, offset: int) -> str:
        goal = self.text.at("%to", self.text.mul(term, len(self.counts) * self.vector_bytes))
        return self.text.at(goal, offset * self.vector_bytes)

    def _vector(self, source: str, count: int) -> str:
        if self.column_stride == 1:
            return self.lanes.load(self.text, source, count)
        return self.lanes.gather(self.text, source, self.column_stride, count)

    def lines(self, first: str, end: str) -> None:
        """Term by term, all vectors of one."""

        def step(term: str, _: Sequence[str]) -> None:
            for vector, count in enumerate(self.counts):
                value = self._vector(self._source(term, vector), count)
                self.lanes.keep(self.text, self._goal(term, vector), value, self.lanes.width)

        self.text.loop(first, end, 1, step)

    def squares(self, end: str) -> None:
        """Vector by vector, as many terms as lanes at once, transposed in registers."""
        for vector, count in enumerate(self.counts):

            def step(term: str, _: Sequence[str], vector: int = vector, count: int = count) -> None:
                square = self.lanes.transposed(self.text, self._source(term, vector), self.column_stride, count)
                for further, value in enumerate(square):
                    goal = self._goal(term, further * len(self.counts) + vector)
                    self.lanes.keep(self.text, goal, value, self.lanes.width)

            self.text.loop("0", end, self.lanes.width, step)
