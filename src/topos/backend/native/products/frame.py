"""The outside of every kernel: its pointers, the part of the work that a tile names, and the loop over the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from topos.backend.native.products.choice import Choice
from topos.backend.native.products.lanes import Epilogue, Lanes
from topos.backend.native.products.text import Text


class Work(NamedTuple):
    """One product of matrices inside a tile: its operands, and which row groups and panels are this tile's."""

    left: str
    right: str
    out: str
    scratch: str
    groups: tuple[str, str]
    panels: tuple[str, str]


class Kind(NamedTuple):
    """What the text of a kind is made from."""

    name: str
    choice: Choice
    lanes: Lanes
    epilogue: Epilogue | None
    helpers: dict[str, str]


def frame(kind: Kind, scratch_bytes: int, body: Callable[[Text, Work], None]) -> str:
    """The definition of `@name`, with `scratch_bytes` for each tile on a boundary of 64 bytes."""
    choice, text = kind.choice, Text(kind.helpers)
    pointers = []
    for place in range(4 if scratch_bytes else 3):
        slot = text.at("%arguments", 8 * place)
        pointers.append(text.let(f"load ptr, ptr {slot}, align 8"))
    scratch = pointers.pop() if scratch_bytes else "poison"
    if scratch_bytes:
        address = text.let(f"ptrtoint ptr {scratch} to i64")
        odd = text.let(f"sub i64 0, {address}")
        aligned = text.at(scratch, text.let(f"and i64 {odd}, 63"))
        scratch = text.at(aligned, text.mul("%tile", scratch_bytes))
    column_tile, rest = _digit(text, "%tile", choice.column_tiles)
    row_tile, batch_tile = _digit(text, rest, choice.row_tiles)
    groups = _range(text, row_tile, choice.row_tiles, choice.rows.groups)
    panels = _range(text, column_tile, choice.column_tiles, choice.panels.groups)

    def one(product: str) -> None:
        left, right, out = _moved(text, kind, product, pointers)
        body(text, Work(left, right, out, scratch, groups, panels))

    batches = choice.task.batches
    if batches == 1:
        one("0")
    else:
        first, end = _range(text, batch_tile, choice.batch_tiles, batches)
        text.loop(first, end, 1, lambda product, _: one(product))
    return text.function(f"void @{kind.name}(ptr %arguments, i64 %tile) nounwind")


def _digit(text: Text, number: str, base: int) -> tuple[str, str]:
    """(`number % base`, `number // base`)."""
    if base == 1:
        return "0", number
    return text.let(f"urem i64 {number}, {base}"), text.let(f"udiv i64 {number}, {base}")


def _range(text: Text, part: str, parts: int, count: int) -> tuple[str, str]:
    """Where a part begins and ends."""
    if parts == 1:
        return "0", str(count)
    return text.share(part, parts, count), text.share(text.add(part, 1), parts, count)


def _moved(text: Text, kind: Kind, product: str, pointers: list[str]) -> tuple[str, str, str]:
    """The three operands of one product of the batch."""
    offsets = ["0", "0", "0"]
    rest = product
    for place, axis in reversed(list(enumerate(kind.choice.task.batch))):
        index, rest = _digit(text, rest, axis.extent) if place else (rest, "0")
        for operand, stride in enumerate(axis[1:]):
            offsets[operand] = text.add(offsets[operand], text.mul(index, stride * kind.lanes.item_bytes))
    order = (1, 0, 2) if kind.choice.is_turned else (0, 1, 2)
    left, right, out = (text.at(pointers[place], offset) for place, offset in zip(order, offsets, strict=True))
    return left, right, out
