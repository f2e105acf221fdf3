"""The kernel before a packed one: an operand packed once, for all the tiles that read it."""

from __future__ import annotations

from topos.backend.native.kernel import head
from topos.backend.native.products.copies import Copies, left_functions, right_functions
from topos.backend.native.products.frame import argument, digit, moved, operands
from topos.backend.native.products.kind import Kind
from topos.backend.native.products.regions import Regions, base
from topos.backend.native.products.text import Text
from topos.backend.native.target import Target
from topos.reference.products import BLOCK


def shared(kind: Kind, target: Target) -> str:
    """The text: its units are (product, block of terms, row group or panel), in that order."""
    choice, text, regions = kind.choice, Text(kind.helpers), Regions(kind)
    pointers = operands(text, kind)
    if choice.is_prepacked:
        start = argument(text, kind.scratch_place + 1)
    else:
        start = text.at(base(text, argument(text, kind.scratch_place)), kind.room_bytes)
    parts = choice.shared_parts

    def unit(index: str) -> None:
        part, rest = digit(text, index, parts)
        block, product = digit(text, rest, choice.blocks)
        _pack(kind, text, pointers, regions.shared(text, start, product, block), (product, block, part))

    first, end = (
        text.share(where, choice.pack_tiles, choice.shared_units) for where in ("%tile", text.add("%tile", 1))
    )
    text.loop(first, end, 1, lambda index, _: unit(index))
    parts_text = left_functions(kind, target) if choice.shared == "left" else right_functions(kind)
    return "\n".join([text.function(head(kind.name)), *parts_text])


def _pack(kind: Kind, text: Text, pointers: list[str], goal: str, unit: tuple[str, str, str]) -> None:
    """One unit: a row group, or as many panels as a part holds."""
    choice, (product, block, part) = kind.choice, unit
    left, right, _ = moved(text, kind, product, pointers)
    start = text.mul(block, BLOCK)
    terms = kind.terms(text) if kind.all_terms else str(choice.task.terms)
    if choice.blocks > 1:
        terms = text.least(text.let(f"sub i64 {choice.task.terms}, {start}"), BLOCK)
    left = text.at(left, text.mul(start, choice.task.left[1] * kind.left.item_bytes))
    right = text.at(right, text.mul(start, choice.task.right[0] * kind.right.item_bytes))
    copies = Copies(kind, Regions(kind), text, left, right, terms, (product, start))
    if choice.shared == "left":
        copies.groups(part, text.add(part, 1), "0", goal)
    else:
        first = text.mul(part, choice.part_panels)
        copies.panels(first, text.least(text.add(first, choice.part_panels), choice.panels.groups), "0", goal)
