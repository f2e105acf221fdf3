"""Where everything lies in the scratch of a product: what all tiles share, then what each tile has alone."""

from __future__ import annotations

from topos.backend.native.products.kind import Kind
from topos.backend.native.products.text import Text
from topos.tensor.memory import LINE, whole_lines


class Regions:
    """Offsets in bytes from a boundary of 64.

    The shared copy of an operand comes first: one after another the products of the batch, in them the blocks of
    terms, in them the row groups or panels. Behind it each tile has its own packed left, packed right and totals.
    """

    def __init__(self, kind: Kind) -> None:
        choice, lanes = kind.choice, kind.lanes
        deep = choice.depth * lanes.wide_bytes
        # Packing a row group may write a vector past its end.
        self.group_bytes = whole_lines(choice.rows.largest * deep + lanes.width * lanes.wide_bytes)
        self.panel_bytes = choice.panels.largest * lanes.width * deep
        self.vector_bytes = lanes.width * deep
        groups, panels = choice.rows.groups, choice.panels.groups
        one = {"left": groups * self.group_bytes, "right": panels * self.panel_bytes, "": 0}
        self.block_bytes = one[choice.shared]
        self.product_bytes = self.block_bytes * choice.blocks
        self.shared_bytes = self.product_bytes * choice.task.batches
        self.keeps = bool(kind.all_terms)
        self.in_out = (
            not self.keeps and choice.task.out[1] == 1 and lanes.item == lanes.scalar and kind.epilogue is None
        )
        self.room_bytes = kind.room_bytes
        self._own(kind)

    def _own(self, kind: Kind) -> None:
        choice, lanes = kind.choice, kind.lanes
        groups = -(-choice.rows.groups // choice.row_tiles)
        rows = groups * choice.rows.largest
        columns = -(-choice.panels.groups // choice.column_tiles) * choice.panels.largest * lanes.width
        waits = (choice.blocks > 1 or self.keeps) and not self.in_out
        self.row_bytes = choice.task.out[0] * lanes.wide_bytes if self.in_out else columns * lanes.wide_bytes
        self.right = groups * self.group_bytes * (choice.packs_left and choice.shared != "left")
        packs_right = choice.packs_right and choice.shared != "right"
        self.totals = self.right + choice.chunk * self.panel_bytes * packs_right
        # Where terms come some at a time: the chains of a block, and behind them the totals of the blocks before.
        self.chains_bytes = whole_lines(rows * columns * lanes.wide_bytes * waits)
        self.tile_bytes = self.totals + self.chains_bytes * (2 if self.keeps else 1)

    def scratch_bytes(self, tiles: int) -> int:
        """The whole, from any address on."""
        size = self.shared_bytes + tiles * self.tile_bytes
        return self.room_bytes + size + LINE if size or self.room_bytes else 0

    def shared(self, text: Text, base: str, product: str, block: str) -> str:
        """Where a block of one product's shared operand begins."""
        here = text.at(base, text.mul(product, self.product_bytes))
        return text.at(here, text.mul(block, self.block_bytes))


def base(text: Text, pointer: str) -> str:
    """The first boundary from a pointer on."""
    address = text.let(f"ptrtoint ptr {pointer} to i64")
    odd = text.let(f"sub i64 0, {address}")
    return text.at(pointer, text.let(f"and i64 {odd}, {LINE - 1}"))
