"""Packing: a block of an operand copied into the order in which the register tile reads it, widened."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topos.backend.native.products.frame import CALLS
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
    group = _Group(kind, text, rows, target)
    if term_stride != 1 or row_stride == 1:
        group.lines()
    else:
        _in_pieces(kind, text, group.lanes, group.piece, group.lines)
    arguments = "ptr noalias %from, ptr noalias %to, i64 %terms, i64 %last"
    return text.function(f"internal void @{kind.name}_left_{rows}({arguments}) noinline nounwind")


class _Group:
    """A group of rows of the left operand."""

    def __init__(self, kind: Kind, text: Text, rows: int, target: Target) -> None:
        self.text, self.lanes, self.rows = text, kind.left, rows
        self.row_stride, self.term_stride = kind.choice.task.left
        self.step_bytes = kind.choice.rows.largest * kind.lanes.wide_bytes
        self.column = Lanes(kind.choice.task.element, target, rows, kind.choice.task.left_element)

    def _places(self, term: str) -> tuple[list[str], str]:
        """Where a term of every row lies, and where it goes."""
        text, size = self.text, self.lanes.item_bytes
        source = text.at("%from", text.mul(term, self.term_stride * size))
        offsets = [str(row * self.row_stride * size) for row in range(self.rows)]
        if self.rows > 1:
            offsets[-1] = "%last"
        return [text.at(source, offset) for offset in offsets], text.at("%to", text.mul(term, self.step_bytes))

    def lines(self) -> None:
        """Term by term."""
        self.text.loop("0", "%terms", 1, lambda term, _: self._line(term))

    def _line(self, term: str) -> None:
        text, column = self.text, self.column
        rows, goal = self._places(term)
        if self.row_stride == 1:
            column.keep(text, goal, column.load(text, rows[0], self.rows), self.rows)
            return
        for row, place in enumerate(rows):
            number = text.at(goal, row * column.wide_bytes)
            text.do(f"store {column.scalar} {column.number(text, place)}, ptr {number}, align {column.wide_bytes}")

    def piece(self, term: str) -> None:
        """Some terms from a term on, transposed in registers."""
        text, lanes, wide = self.text, self.lanes, self.lanes.wide_bytes
        rows, goal = self._places(term)
        for line in range(0, self.rows * lanes.piece * wide, 64):
            prefetch(text, text.at(goal, line + _AHEAD_BYTES), write=True, locality=3)
        firsts = range(0, self.rows, lanes.width)
        parts = [lanes.turned(text, rows[first : first + lanes.width], lanes.piece) for first in firsts]
        # In this order what a vector holds beyond the rows is overwritten by the next term.
        for step in range(lanes.piece):
            for first, part in zip(firsts, parts, strict=True):
                lanes.keep(text, text.at(goal, step * self.step_bytes + first * wide), part[step], lanes.width)


def pack_right(kind: Kind, vectors: int, active: int) -> str:
    """`%terms` times `vectors` vectors, one term after another, from any strides; nothing of use beyond the columns."""
    text, (term_stride, column_stride) = Text(kind.helpers), kind.choice.task.right
    counts = [kind.lanes.width] * (vectors - 1) + [active]
    attributes = "noinline nounwind"
    if term_stride != 1 or column_stride == 1:
        _Panel(kind, text, counts).lines()
    else:
        _vectors(kind, text, counts)
        attributes = f"{CALLS} nounwind"
    head = f"internal void @{kind.name}_right_{vectors}_{active}"
    return text.function(f"{head}(ptr noalias %from, ptr noalias %to, i64 %terms) {attributes}")


def _vectors(kind: Kind, text: Text, counts: list[int]) -> None:
    """A panel of columns that are lines of terms: vector by vector, by one function for the vectors of all panels."""
    line_bytes, width = kind.choice.task.right[1] * kind.right.item_bytes, kind.lanes.width
    vector_bytes = width * kind.lanes.wide_bytes
    name, pitch = f"@{kind.name}_right_vector", len(counts) * vector_bytes
    if name not in kind.functions:
        kind.functions[name] = _vector(kind, name)

    def one(vector: str, _: Sequence[str]) -> None:
        last = text.let(f"sub i64 {sum(counts) - 1}, {text.mul(vector, width)}")
        source = text.at("%from", text.mul(vector, width * line_bytes))
        goal = text.at("%to", text.mul(vector, vector_bytes))
        text.do(f"call void {name}(ptr {source}, ptr {goal}, i64 %terms, i64 {pitch}, i64 {last})")

    text.loop("0", str(len(counts)), 1, one)


def _vector(kind: Kind, name: str) -> str:
    """One vector of `%terms` terms, `%pitch` bytes apart; lines after the line `%last` are that one again."""
    text, lanes, width = Text(kind.helpers), kind.right, kind.lanes.width
    line_bytes = kind.choice.task.right[1] * lanes.item_bytes
    lines = list(map(str, range(width)))
    if kind.choice.task.columns % width:
        lines[1:] = [text.least(line, "%last") for line in lines[1:]]
    places = [text.mul(line, line_bytes) for line in lines]

    def copied(term: str, values: Callable[[list[str]], list[str]]) -> None:
        source = text.at("%from", text.mul(term, lanes.item_bytes))
        goal = text.at("%to", text.let(f"mul i64 {term}, %pitch"))
        for further, value in enumerate(values([text.at(source, place) for place in places])):
            lanes.keep(text, text.at(goal, text.let(f"mul i64 %pitch, {further}")), value, width)

    def piece(term: str) -> None:
        copied(term, lambda lines: lanes.turned(text, lines, lanes.piece))

    def line(term: str, _: Sequence[str]) -> None:
        copied(term, lambda lines: [lanes.beside(text, lines)])

    def all_lines() -> None:
        text.loop("0", "%terms", 1, line)

    _in_pieces(kind, text, lanes, piece, all_lines)
    arguments = "ptr noalias %from, ptr noalias %to, i64 %terms, i64 %pitch, i64 %last"
    return text.function(f"internal void {name}({arguments}) noinline nounwind")


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


def _in_pieces(kind: Kind, text: Text, lanes: Lanes, piece: Callable[[str], None], lines: Callable[[], None]) -> None:
    """Pieces over all terms, the last one shifted back onto terms that were copied before; too few line by line."""
    step, lengths = lanes.piece, kind.lengths
    if max(lengths) < step:
        lines()
        return
    is_even = all(length % step == 0 for length in lengths)

    def pieces() -> None:
        last = text.let(f"sub i64 %terms, {step}")
        text.loop("0", "%terms", step, lambda term, _: piece(term if is_even else text.least(term, last)))

    if min(lengths) < step:
        text.when(text.less("%terms", step), lines, pieces)
    else:
        pieces()
