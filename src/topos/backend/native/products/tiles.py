"""Tiles of work: how many, over which rows and columns, and which operand is packed once for all of them."""

from __future__ import annotations

from collections.abc import Iterator

from topos.backend.native.products.choice import Choice
from topos.backend.native.products.task import ProductTask
from topos.backend.native.target import Target

WORTH_A_TILE = 200_000  # multiply-adds: about what dispatching to another thread costs, and a margin
_WORTH_BYTES = 128 << 10  # of both operands, which may come from memory, however few multiply-adds they are for
MOST_TILES = 8
_LARGE_TILE = 8_000_000  # multiply-adds: a tenth of a millisecond, which a thread that comes late may cost
_MORE_TILES = 16  # where they are as large
_MANY_TILES = 64  # of work so large that a tile's share of the right operand would leave L2
_BARRIER = 400_000  # multiply-adds in the time that one more kernel costs
_RESIDENT = 75 / 128  # of what L2 holds: the part that stays while the rest is read and written past it
_WORKED_OUT = 16  # multiply-adds in the time in which a number is worked out and packed


def shared_out(choice: Choice, target: Target) -> Choice:
    """The choice with its tiles: over the batch first, then in the way that costs least."""
    width = target.lanes(choice.task.wide_bytes)
    chunk_bytes = target.second_cache_bytes // 2  # what is packed of the right operand at once: it stays in L2
    block_bytes = choice.panels.groups * choice.panels.largest * width * choice.depth * choice.task.wide_bytes
    most = max(MOST_TILES, min(_MORE_TILES, choice.task.work // _LARGE_TILE))
    most = max(most, block_bytes // chunk_bytes) if choice.packs_right else most
    worth = max(1, _effort(choice.task) // WORTH_A_TILE, choice.task.read_bytes // _WORTH_BYTES)
    wanted = min(most, _MANY_TILES, worth)
    batches = choice.task.batches
    # As even as can be: of a few tiles the longest would be waited for.
    counts = range(min(batches, wanted), min(batches, 2 * wanted - 1) + 1)
    batch_tiles = min(counts, key=lambda count: -(-batches // count) * count)
    rest = -(-wanted // batch_tiles)
    choice = choice._replace(batch_tiles=batch_tiles)
    best = min(_splits(choice, rest), key=lambda split: _cost(split, target))
    panels = -(-choice.panels.groups // best.column_tiles)
    panel_bytes = choice.panels.largest * width * choice.depth * choice.task.wide_bytes
    chunks = -(-panels // max(1, chunk_bytes // max(1, panel_bytes)))
    return best._replace(chunk=-(-panels // chunks), pack_tiles=min(MOST_TILES, best.shared_units))


def _effort(task: ProductTask) -> int:
    """Multiply-adds, and the time of what is worked out beside them."""
    left = task.rows * task.terms * (task.left_value is not None)
    right = task.terms * task.columns * (task.right_value is not None)
    return task.work + _WORKED_OUT * task.batches * (left + right)


def _splits(choice: Choice, tiles: int) -> Iterator[Choice]:
    """The ways to make about so many tiles of one product."""
    shared = ["", *["left"] * choice.packs_left, *["right"] * choice.packs_right]
    for row_tiles in range(1, min(tiles, choice.rows.groups) + 1):
        for column_tiles in range(1, min(tiles // row_tiles, choice.panels.groups) + 1):
            for operand in shared:
                if choice.task.left_value is not None and column_tiles > 1 and operand != "left":
                    continue  # what is worked out is worked out once
                if choice.task.right_value is not None and row_tiles > 1 and operand != "right":
                    continue
                yield choice._replace(row_tiles=row_tiles, column_tiles=column_tiles, shared=operand)


def _cost(choice: Choice, target: Target) -> float:
    """The time relative to that of the multiply-adds alone."""
    resident_bytes = int(_RESIDENT * target.second_cache_bytes)
    task, row_tiles, column_tiles = choice.task, choice.row_tiles, choice.column_tiles
    longest = -(-choice.rows.groups // row_tiles) * -(-choice.panels.groups // column_tiles)
    cost = longest * row_tiles * column_tiles / (choice.rows.groups * choice.panels.groups)
    cost += 0.5 / (row_tiles * column_tiles)  # threads rarely end together: one waits for half a tile
    # The left operand is read again for every column of tiles, at best from L2.
    stays = task.rows * task.terms * task.left_bytes <= row_tiles * resident_bytes
    cost += (2 if stays else 6) * column_tiles / task.columns
    if not choice.packs_right:
        # What tiles read of the right operand as it lies had better stay in L2; where they read parts of its lines,
        # what lies beside them comes along.
        terms = task.terms if row_tiles > 1 else choice.depth
        room = resident_bytes if column_tiles > 1 else 2 * resident_bytes
        beyond = terms * task.columns * task.right_bytes / column_tiles / room - 1
        cost += min(0.5, max(0.0, 0.3 * beyond))
    if not (choice.packs_right or choice.packs_left):
        return cost
    # What every row of tiles packs of the right operand, and every column of tiles packs or rereads of the left one,
    # in columns of multiply-adds for a column of terms.
    # A shared right operand is still streamed from beyond L2 by every row of tiles.
    cost += 18 * (1 + row_tiles / 2 if choice.shared == "right" else row_tiles) / task.rows * choice.packs_right
    cost += 6 * choice.packs_left * (1 if choice.shared == "left" else column_tiles) / task.columns
    if not choice.shared:
        return cost
    # What is worked out is best never put where all tiles see it.
    cost += 8 / task.columns * (choice.shared == "left" and task.left_value is not None)
    cost += 8 / task.rows * (choice.shared == "right" and task.right_value is not None)
    # The copy that all tiles share goes through the larger caches, and it had better be the smaller operand's.
    own = task.rows if choice.shared == "left" else task.columns
    return cost + _BARRIER / task.work + 0.02 * own / (task.rows + task.columns)
