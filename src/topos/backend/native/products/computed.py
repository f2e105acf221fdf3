"""Operands that are worked out as they are packed, line by line: straight to where they are packed, or through a room.

A computed left operand whose lines run along terms may be packed as lines, not as terms: a register tile reads one
number of each row in either order.
"""

from __future__ import annotations

from collections.abc import Callable

from topos.backend.native.products.epilogue import internal
from topos.backend.native.products.kind import Kind
from topos.backend.native.products.pack import left_sizes
from topos.backend.native.products.task import Computed, Line
from topos.backend.native.products.text import Text

ROOM_LINE = 128
"""Numbers from one line of the room to the next."""
STRIP = 128
"""Terms of a line in the room, which has one for each column of a panel: it stays in the nearest cache."""
_PARAMETERS = "ptr %arguments, ptr noalias %to, i64 %product, i64 %row, i64 %start, i64 %terms"


def computed_left(kind: Kind, rows: int) -> str:
    """Packs `rows` rows from `%row` on of a computed left operand, `%terms` terms from `%start` on."""
    text, choice, size = Text(kind.helpers), kind.choice, kind.lanes.wide_bytes
    lines = _Lines(kind, text, "left", choice.task.left_value)
    row_step, term_step = choice.left_steps

    def row_line(row: str) -> None:
        lines.write(text.at("%to", text.mul(row, row_step * size)), text.add("%row", row), "%start", "%terms")

    def term_line(term: str) -> None:
        lines.write(text.at("%to", text.mul(term, term_step * size)), "%row", text.add("%start", term), str(rows))

    def pack(goal: str, count: str) -> None:
        found = left_sizes(kind)
        name, last = f"@{kind.name}_left_{rows if rows in found else found[0]}", (rows - 1) * ROOM_LINE * size
        text.do(f"call void {name}(ptr %room, ptr {goal}, i64 {count}, i64 {last})")

    if choice.has_left_lines:
        text.loop("0", str(rows), 1, lambda row, _: row_line(row))
    elif choice.task.left[1] == 1:
        lines.in_room(rows, choice.rows.largest * size, pack)
    else:
        text.loop("0", "%terms", 1, lambda term, _: term_line(term))
    return text.function(f"internal void @{kind.name}_left_computed_{rows}({_PARAMETERS}) noinline nounwind")


def computed_right(kind: Kind, vectors: int, active: int) -> str:
    """Packs a panel from column `%row` on of a computed right operand, `%terms` terms from `%start` on."""
    text, size = Text(kind.helpers), kind.lanes.wide_bytes
    lines = _Lines(kind, text, "right", kind.choice.task.right_value)
    columns, term_bytes = (vectors - 1) * kind.lanes.width + active, vectors * kind.lanes.width * size

    def term_line(term: str) -> None:
        lines.write(text.at("%to", text.mul(term, term_bytes)), "%row", text.add("%start", term), str(columns))

    def pack(goal: str, count: str) -> None:
        text.do(f"call void @{kind.name}_right_{vectors}_{active}(ptr %room, ptr {goal}, i64 {count})")

    if kind.choice.task.right[1] == 1:
        text.loop("0", "%terms", 1, lambda term, _: term_line(term))
    else:
        lines.in_room(columns, term_bytes, pack)
    head = f"internal void @{kind.name}_right_computed_{vectors}_{active}"
    return text.function(f"{head}({_PARAMETERS}) noinline nounwind")


class _Lines:
    """The calls of the function that an operand writes."""

    def __init__(self, kind: Kind, text: Text, side: str, value: Computed | None) -> None:
        assert value is not None
        self.text, self.value, self.is_left = text, value, side == "left"
        self.size = kind.lanes.wide_bytes
        self.name = f"{kind.name}_{side}_line"
        if self.name not in kind.functions:
            definition = value.define(Line(self.name, kind.lanes.width))
            kind.functions[self.name] = internal(definition.text)
            for helper in definition.helpers:
                text.need(helper)

    def write(self, goal: str, across: str, term: str, count: str) -> None:
        """The numbers of a row of the left operand, or a column of the right one, from a term on; or the other way."""
        row, column = (across, term) if self.is_left != self.value.is_turned else (term, across)
        place = f"i64 %product, i64 {row}, i64 {column}, i64 {count}"
        self.text.do(f"call void @{self.name}(ptr %arguments, ptr {goal}, {place})")

    def in_room(self, across: int, term_bytes: int, pack: Callable[[str, str], None]) -> None:
        """A strip of terms of every row or column into the room, and from there to where terms lie together."""
        text = self.text
        text.do(f"%room = alloca [{across * ROOM_LINE * self.size} x i8], align 64")

        def strip(first: str) -> None:
            count, begin = text.least(text.let(f"sub i64 %terms, {first}"), STRIP), text.add("%start", first)

            def line(index: str) -> None:
                goal = text.at("%room", text.mul(index, ROOM_LINE * self.size))
                self.write(goal, text.add("%row", index), begin, count)

            text.loop("0", str(across), 1, lambda index, _: line(index))
            pack(text.at("%to", text.mul(first, term_bytes)), count)

        text.loop("0", "%terms", STRIP, lambda first, _: strip(first))
