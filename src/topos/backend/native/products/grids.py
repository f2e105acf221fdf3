"""Operands whose rows and terms step through several axes: read where they lie, by offsets worked out beforehand.

A place is the offset of its row plus the offset of its term. A tile of work lists the offsets of a block of terms once;
a row group has a pointer for each of its rows.
"""

from __future__ import annotations

from topos.backend.native.products.frame import digit
from topos.backend.native.products.kind import Kind
from topos.backend.native.products.task import Grid
from topos.backend.native.products.text import Text
from topos.backend.native.views import Axes

OFFSET_BYTES = 8
"""One offset, or one pointer."""


def grid_functions(kind: Kind, grid: Grid) -> list[str]:
    """What lists the terms of a block, and the rows of a row group of every size."""
    return [_terms(kind, grid), *(_rows(kind, grid, rows) for rows, _ in kind.choice.rows.sizes)]


def list_terms(kind: Kind, text: Text, to: str, first: str, terms: str) -> None:
    """The offsets of `terms` terms from `first` on, in bytes."""
    text.do(f"call void @{kind.name}_terms(ptr {to}, i64 {first}, i64 {terms})")


def list_rows(kind: Kind, text: Text, to: str, base: str, first: str, rows: int) -> None:
    """The pointers of some rows from `first` on."""
    text.do(f"call void @{kind.name}_rows_{rows}(ptr {to}, ptr {base}, i64 {first})")


def grid_rows(text: Text, rows: int) -> list[str]:
    """The pointers of the rows of a register tile, which lie at `%grid`."""
    places = (text.at("%grid", row * OFFSET_BYTES) for row in range(rows))
    return [text.let(f"load ptr, ptr {place}, align {OFFSET_BYTES}") for place in places]


def _terms(kind: Kind, grid: Grid) -> str:
    text = Text(kind.helpers)

    def one(term: str) -> None:
        offset = _offset(text, grid.terms, text.add("%first", term), kind.left.item_bytes)
        text.do(f"store i64 {offset}, ptr {text.at('%to', text.mul(term, OFFSET_BYTES))}, align {OFFSET_BYTES}")

    text.loop("0", "%terms", 1, lambda term, _: one(term))
    return text.function(f"internal void @{kind.name}_terms(ptr %to, i64 %first, i64 %terms) noinline nounwind")


def _rows(kind: Kind, grid: Grid, rows: int) -> str:
    text = Text(kind.helpers)
    for row in range(rows):
        pointer = text.at("%base", _offset(text, grid.rows, text.add("%first", row), kind.left.item_bytes))
        text.do(f"store ptr {pointer}, ptr {text.at('%to', row * OFFSET_BYTES)}, align {OFFSET_BYTES}")
    return text.function(f"internal void @{kind.name}_rows_{rows}(ptr %to, ptr %base, i64 %first) noinline nounwind")


def _offset(text: Text, axes: Axes, index: str, size: int) -> str:
    offset, rest = "0", index
    for place, (extent, stride) in reversed(list(enumerate(axes))):
        here, rest = digit(text, rest, extent) if place else (rest, "0")
        offset = text.add(offset, text.mul(here, stride * size))
    return offset
