"""The outside of every kernel: its pointers, the part of the work that a tile names, and the loop over the batch."""

from __future__ import annotations

from collections.abc import Callable

from topos.backend.native.kernel import head
from topos.backend.native.products.kind import Kind
from topos.backend.native.products.regions import Regions, base
from topos.backend.native.products.text import Text
from topos.records import NamedTuple

CALLS = "noinline optnone"
"""Of a function that only calls others, which do the work: it need not be fast, and is compiled in half the time."""


class Work(NamedTuple):
    """One product of matrices inside a tile: its operands, and which row groups and panels are this tile's.

    `scratch` is the worker's own; `shared` is where the shared operand of this product was packed.
    """

    product: str
    left: str
    right: str
    out: str
    scratch: str
    shared: str
    groups: tuple[str, str]
    panels: tuple[str, str]
    others: str = "0"
    """How many products of the tile are still to come after this one."""


def frame(kind: Kind, regions: Regions | None, body: Callable[[Text, Work], None], step: int = 1) -> str:
    """The definition of `@name`: the body once for every product of the batch that is the tile's, or every few."""
    choice, text = kind.choice, Text(kind.helpers)
    pointers = operands(text, kind)
    scratch, shared = _memory(text, kind, regions)
    # Tiles of the same columns run one after another: what they read of the right operand is in the caches.
    row_tile, rest = digit(text, "%tile", choice.row_tiles)
    column_tile, batch_tile = digit(text, rest, choice.column_tiles)
    groups = _range(text, row_tile, choice.row_tiles, choice.rows.groups)
    panels = _range(text, column_tile, choice.column_tiles, choice.panels.groups)
    if kind.reach == "columns" and regions is not None:
        columns = choice.panels.small * kind.lanes.width
        reached = text.let(f"udiv i64 {text.add('%reach', columns - 1)}, {columns}")
        panels = "0", text.least(reached, choice.panels.groups)

    def one(product: str, others: str = "0") -> None:
        left, right, out = moved(text, kind, product, pointers)
        packed = shared
        if regions is not None and regions.shared_bytes:
            packed = text.at(shared, text.mul(product, regions.product_bytes))
        body(text, Work(product, left, right, out, scratch, packed, groups, panels, others))

    batches = choice.task.batches
    if batches == 1:
        one("0")
    else:
        first, end = _range(text, batch_tile, choice.batch_tiles, batches)
        last = end if step == 1 else text.let(f"sub i64 {end}, 1")

        def few(product: str) -> None:
            one(product, "0" if step == 1 else text.let(f"sub i64 {last}, {product}"))

        text.loop(first, end, step, lambda product, _: few(product))
    calls = f" {CALLS}" if regions is not None else ""
    return text.function(f"{head(kind.name)}{calls}")


def _memory(text: Text, kind: Kind, regions: Regions | None) -> tuple[str, str]:
    """Where the worker's own scratch begins, and what all tiles share."""
    scratch = shared = "poison"
    if regions is not None and regions.scratch_bytes(kind.choice.tiles):
        shared = text.at(base(text, argument(text, kind.scratch_place)), kind.room_bytes)
        # Chains that go on are found again by whoever runs the tile next.
        own = text.mul("%tile" if regions.keeps else "%worker", regions.worker_bytes)
        scratch = text.at(shared, text.add(own, regions.shared_bytes))
    if kind.choice.is_prepacked:
        shared = argument(text, kind.scratch_place + 1)
    return scratch, shared


def argument(text: Text, place: int) -> str:
    """A pointer of the block of arguments."""
    return text.let(f"load ptr, ptr {text.at('%arguments', 8 * place)}, align 8")


def operands(text: Text, kind: Kind) -> list[str]:
    """The pointers to left, right and out: of some terms, where those begin and where their totals go."""
    span = kind.span
    if span is None:
        return [argument(text, place) for place in range(3)]
    out = text.at(base(text, argument(text, kind.scratch_place)), span.out)
    return [text.at(argument(text, 0), span.left), text.at(argument(text, 1), span.right), out]


def digit(text: Text, number: str, base: int) -> tuple[str, str]:
    """(`number % base`, `number // base`)."""
    if base == 1:
        return "0", number
    return text.let(f"urem i64 {number}, {base}"), text.let(f"udiv i64 {number}, {base}")


def _range(text: Text, part: str, parts: int, count: int) -> tuple[str, str]:
    """Where a part begins and ends."""
    if parts == 1:
        return "0", str(count)
    return text.share(part, parts, count), text.share(text.add(part, 1), parts, count)


def moved(text: Text, kind: Kind, product: str, pointers: list[str]) -> tuple[str, str, str]:
    """The three operands of one product of the batch, in the form that is computed."""
    order = (1, 0, 2) if kind.choice.is_turned else (0, 1, 2)
    found = [pointers[place] for place in order]
    rest = product
    for place, axis in reversed(list(enumerate(kind.choice.task.batch))):
        index, rest = digit(text, rest, axis.extent) if place else (rest, "0")
        sizes = (kind.left.item_bytes, kind.right.item_bytes, kind.lanes.item_bytes)
        for operand, (stride, size) in enumerate(zip(axis[1:], sizes, strict=True)):
            found[operand] = text.at(found[operand], text.mul(index, stride * size))
    left, right, out = found
    return left, right, out
