"""Where everything lies in the scratch of a product: what all tiles share, then what each tile has alone."""

from __future__ import annotations

from topos.backend.native.products.choice import Choice
from topos.backend.native.products.kind import Kind
from topos.backend.native.products.text import Text
from topos.reference.products import BLOCK
from topos.tensor.memory import LINE, whole_lines


class Regions:
    """Offsets in bytes from a boundary of 64.

    The shared copy of an operand comes first: one after another the products of the batch, in them the blocks of
    terms, in them the row groups or panels. Behind it each worker has its own packed left, packed right and totals:
    what the last tile left in its cache is written over, and of workers that never come no page is touched.
    A copy that lies beside has `prepacked_bytes` of its own instead, in the same order.
    """

    def __init__(self, kind: Kind) -> None:
        choice, lanes = kind.choice, kind.lanes
        deep = choice.depth * lanes.wide_bytes
        # Packing a row group may write a vector past its end.
        lines = choice.left_steps[0] if choice.has_left_lines else choice.depth
        self.group_bytes = whole_lines((choice.rows.largest * lines + lanes.width) * lanes.wide_bytes)
        self.panel_bytes = choice.panels.largest * lanes.width * deep
        self.vector_bytes = lanes.width * deep
        groups, panels = choice.rows.groups, choice.panels.groups
        one = {"left": groups * self.group_bytes, "right": panels * self.panel_bytes, "": 0}
        self.block_bytes = one[choice.shared]
        self.product_bytes = self.block_bytes * choice.blocks
        self.shared_bytes = 0 if choice.is_prepacked else self.product_bytes * choice.task.batches
        self.prepacked_bytes = self.block_bytes // choice.depth * choice.task.terms * choice.is_prepacked
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
        # Where terms come some at a time: the chains of a block, and behind them the totals of any blocks before.
        self.chains_bytes = whole_lines(rows * columns * lanes.wide_bytes * waits)
        self.grid = self.totals + self.chains_bytes * (2 if kind.all_terms > BLOCK else 1)
        self.worker_bytes = self.grid + (grid_bytes(choice) if choice.task.left_grid is not None else 0)

    def scratch_bytes(self, tiles: int) -> int:
        """The whole, from any address on; there may be as many workers as tiles."""
        size = self.shared_bytes + tiles * self.worker_bytes
        return self.room_bytes + size + LINE if size or self.room_bytes else 0

    def shared(self, text: Text, base: str, product: str, block: str) -> str:
        """Where a block of one product's shared operand begins."""
        here = text.at(base, text.mul(product, self.product_bytes))
        return text.at(here, text.mul(block, self.block_bytes))


def grid_bytes(choice: Choice) -> int:
    """What the offsets of a block of terms take, and the pointers of a row group."""
    return whole_lines(8 * (BLOCK + choice.rows.largest))


def base(text: Text, pointer: str) -> str:
    """The first boundary from a pointer on."""
    address = text.let(f"ptrtoint ptr {pointer} to i64")
    odd = text.let(f"sub i64 0, {address}")
    return text.at(pointer, text.let(f"and i64 {odd}, {LINE - 1}"))
