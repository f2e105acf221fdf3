"""Operands that are worked out as they are packed: a few lines of one at a time, in a room that stays in the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from topos.backend.native.products.epilogue import Definition, internal
from topos.backend.native.products.kind import Kind
from topos.backend.native.products.pack import left_sizes
from topos.backend.native.products.task import Computed
from topos.backend.native.products.text import Text

ROOM_LINE = 128
"""Numbers from one line of the room to the next: a panel's columns, or a strip of terms."""
_TERMS = 64
"""Terms of a strip whose lines run along them."""
_LINES = 16
"""Lines of a strip that are a term each."""


class Line(NamedTuple):
    """The function that a computed operand writes: `void @name(parameters)`.

    It puts `%count` neighbouring numbers of the operand, as accumulators, from `%to` on, and may write the rest of a
    vector of `lanes` behind them. They are those of a product of the batch, from (`%row`, `%column`) of the operand on,
    along the axis in which its lines run. `%arguments` are the kernel's.
    """

    name: str
    lanes: int
    parameters: str = "ptr %arguments, ptr %to, i64 %batch, i64 %row, i64 %column, i64 %count"


Define = Callable[[Line], Definition]


def computed_left(kind: Kind, rows: int) -> str:
    """Packs a row group of a computed left operand: `%terms` terms from `%start` on, of `rows` rows from `%row` on."""
    task, found = kind.choice.task, left_sizes(kind)
    strip = _Strip(kind, "left", task.left_value, rows, task.left[1] == 1)

    def pack(goal: str, count: str) -> None:
        last = (rows - 1) * task.left[0] * kind.lanes.wide_bytes
        name = f"@{kind.name}_left_{rows if rows in found else found[0]}"
        strip.text.do(f"call void {name}(ptr %room, ptr {goal}, i64 {count}, i64 {last})")

    return strip.function(f"left_computed_{rows}", kind.choice.rows.largest, pack)


def computed_right(kind: Kind, vectors: int, active: int) -> str:
    """Packs a panel of a computed right operand: `%terms` terms from `%start` on, of its columns from `%row` on."""
    task, columns = kind.choice.task, (vectors - 1) * kind.lanes.width + active
    strip = _Strip(kind, "right", task.right_value, columns, task.right[0] == 1)

    def pack(goal: str, count: str) -> None:
        strip.text.do(f"call void @{kind.name}_right_{vectors}_{active}(ptr %room, ptr {goal}, i64 {count})")

    return strip.function(f"right_computed_{vectors}_{active}", vectors * kind.lanes.width, pack)


def strip_terms(is_along_terms: bool) -> int:
    """The terms of a strip."""
    return _TERMS if is_along_terms else _LINES


class _Strip:
    """Some terms of some rows of the left operand, or columns of the right one: `across` of them."""

    def __init__(self, kind: Kind, side: str, value: Computed | None, across: int, is_along_terms: bool) -> None:
        assert value is not None
        self.kind, self.side, self.value, self.across = kind, side, value, across
        self.text, self.is_along_terms = Text(kind.helpers), is_along_terms

    def function(self, stem: str, largest: int, pack: Callable[[str, str], None]) -> str:
        """The text; a term takes `largest` accumulators where it is packed."""
        text, size, terms = self.text, self.kind.lanes.wide_bytes, strip_terms(self.is_along_terms)
        lines = self.across if self.is_along_terms else terms
        text.do(f"%room = alloca [{(lines + 1) * ROOM_LINE * size} x i8], align 64")

        def strip(first: str) -> None:
            count = text.least(text.let(f"sub i64 %terms, {first}"), terms)
            begin = text.add("%start", first)
            if self.is_along_terms:
                text.loop("0", str(lines), 1, lambda line, _: self._line(line, text.add("%row", line), begin, count))
            else:
                text.loop(
                    "0", count, 1, lambda line, _: self._line(line, "%row", text.add(begin, line), str(self.across))
                )
            pack(text.at("%to", text.mul(first, largest * size)), count)

        text.loop("0", "%terms", terms, lambda first, _: strip(first))
        parameters = "ptr %arguments, ptr noalias %to, i64 %product, i64 %row, i64 %start, i64 %terms"
        return text.function(f"internal void @{self.kind.name}_{stem}({parameters}) noinline nounwind")

    def _line(self, line: str, row: str, term: str, count: str) -> None:
        """A line into the room."""
        text, kind = self.text, self.kind
        name = f"{kind.name}_{self.side}_line"
        if name not in kind.functions:
            definition = self.value.define(Line(name, kind.lanes.width))
            kind.functions[name] = internal(definition.text)
            for helper in definition.helpers:
                text.need(helper)
        goal = text.at("%room", text.mul(line, ROOM_LINE * kind.lanes.wide_bytes))
        place = (row, term) if (self.side == "left") != self.value.is_turned else (term, row)
        place_text = f"i64 %product, i64 {place[0]}, i64 {place[1]}"
        text.do(f"call void @{name}(ptr %arguments, ptr {goal}, {place_text}, i64 {count})")
