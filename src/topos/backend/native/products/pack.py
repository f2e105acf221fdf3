"""Packing: a block of an operand copied into the order in which the register tile reads it, widened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from topos.backend.native.products.choice import BLOCK
from topos.backend.native.products.kind import Kind
from topos.backend.native.products.lanes import Lanes, prefetch
from topos.backend.native.products.text import Text
from topos.backend.native.target import Target

_AHEAD_BYTES = 2048  # how far ahead the copy's lines are asked for: a store that misses holds up those behind it


def left_sizes(kind: Kind) -> list[int]:
    """The rows that a function of `pack_left` is for: one serves all groups unless a term's rows are one vector."""
    sizes = [rows for rows, _ in kind.choice.rows.sizes]
    return sizes if kind.choice.task.left[0] == 1 else sizes[:1]


def pack_left(kind: Kind, rows: int, target: Target) -> str:
    """`%terms` times the numbers of a row group, one term after another, from any strides.

    The last row lies `%last` bytes from the first: a group that is a row short has it twice. It may write a vector past
    the end.
    """
    text, (row_stride, term_stride) = Text(kind.helpers), kind.choice.task.left
    step_bytes = kind.choice.rows.largest * kind.lanes.wide_bytes
    lanes, size, wide = kind.left, kind.left.item_bytes, kind.lanes.wide_bytes
    column = Lanes(kind.choice.task.element, target, rows, kind.choice.task.left_element)

    def place(row: int) -> str:
        return "%last" if row and row == rows - 1 else str(row * row_stride * size)

    def single(term: str, _: Sequence[str]) -> None:
        source = text.at("%from", text.mul(term, term_stride * size))
        goal = text.at("%to", text.mul(term, step_bytes))
        if row_stride == 1:
            column.keep(text, goal, column.load(text, source, rows), rows)
            return
        for row in range(rows):
            number = column.number(text, text.at(source, place(row)))
            text.do(f"store {column.scalar} {number}, ptr {text.at(goal, row * wide)}, align {wide}")

    def singles() -> None:
        text.loop("0", "%terms", 1, single)

    def square(term: str) -> None:
        source = text.at("%from", text.mul(term, size))
        goal = text.at("%to", text.mul(term, step_bytes))
        lines = [text.at(source, place(row)) for row in range(rows)]
        for line in range(0, rows * lanes.width * wide, 64):
            prefetch(text, text.at(goal, line + _AHEAD_BYTES), write=True, locality=3)
        parts = [
            (first, lanes.turned(text, lines[first : first + lanes.width])) for first in range(0, rows, lanes.width)
        ]
        # In this order what a vector holds beyond the rows is overwritten by the next term.
        for step in range(lanes.width):
            for first, square in parts:
                lanes.keep(text, text.at(goal, (step * rows + first) * wide), square[step], lanes.width)

    if term_stride != 1 or row_stride == 1:
        singles()
    else:
        _in_squares(kind, text, [square], singles)
    arguments = "ptr noalias %from, ptr noalias %to, i64 %terms, i64 %last"
    return text.function(f"internal void @{kind.name}_left_{rows}({arguments}) noinline nounwind")


def pack_right(kind: Kind, vectors: int, active: int) -> str:
    """`%terms` times `vectors` vectors, one term after another, from any strides; zeros beyond the columns."""
    text, (term_stride, column_stride) = Text(kind.helpers), kind.choice.task.right
    panel = _Panel(kind, text, [kind.lanes.width] * (vectors - 1) + [active])
    if term_stride != 1 or column_stride == 1:
        panel.lines()
    else:
        _in_squares(kind, text, panel.squares(), panel.lines)
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

    def lines(self) -> None:
        """Term by term, all vectors of one."""

        def step(term: str, _: Sequence[str]) -> None:
            for vector, count in enumerate(self.counts):
                value = self._vector(self._source(term, vector), count)
                self.lanes.keep(self.text, self._goal(term, vector), value, self.lanes.width)

        self.text.loop("0", "%terms", 1, step)

    def squares(self) -> list[Callable[[str], None]]:
        """For every vector, as many terms as lanes from a term on, transposed in registers."""

        def square(vector: int, count: int, term: str) -> None:
            values = self.lanes.transposed(self.text, self._source(term, vector), self.column_stride, count)
            for further, value in enumerate(values):
                goal = self._goal(term, further * len(self.counts) + vector)
                self.lanes.keep(self.text, goal, value, self.lanes.width)

        return [partial(square, vector, count) for vector, count in enumerate(self.counts)]


def _in_squares(kind: Kind, text: Text, squares: Sequence[Callable[[str], None]], lines: Callable[[], None]) -> None:
    """Squares over all terms, the last one shifted back onto terms that were copied before; too few line by line."""
    width, terms = kind.lanes.width, kind.choice.task.terms
    rest = terms % BLOCK
    if terms < width:
        lines()
        return

    def all_squares() -> None:
        last = text.let(f"sub i64 %terms, {width}")
        for square in squares:

            def step(term: str, _: Sequence[str], square: Callable[[str], None] = square) -> None:
                square(text.least(term, last) if rest % width else term)

            text.loop("0", "%terms", width, step)

    if 0 < rest < width:
        text.when(text.less("%terms", width), lines, all_squares)
    else:
        all_squares()
