"""A product over panels that stay: its right operand packed once, into memory beside whatever never changes."""

from __future__ import annotations

from topos.backend.native.products.choice import Choice
from topos.backend.native.products.elect import packing
from topos.backend.native.products.register_tiles import register_tile
from topos.backend.native.products.split import split
from topos.backend.native.products.task import ProductTask, folded
from topos.backend.native.products.terms import blockwise_form, is_split
from topos.backend.native.products.tiles import MOST_TILES, WORTH_A_TILE
from topos.backend.native.target import Target
from topos.reference.products import BLOCK

_FEWEST_ROWS = 4  # fewer rows than these wait for the memory of the operand, in whatever order it lies
_MOST_ROWS = 128  # beyond, packing is less than a tenth of the time
_LEAST_NUMBERS = 1 << 16
_WHOLE_BLOCKS = 4  # of terms: fewer are cut among tiles, which panels are not


def prepacked_choice(task: ProductTask, target: Target, is_folded: bool) -> Choice | None:
    """The product over panels packed before, or `None` where they would save little: measured, they save 8 to 45%.

    Panels are as wide as the accumulators: an operand that is stored narrower has to be read by more rows.
    """
    plain = folded(task) if is_folded else task
    if plain.batch or task.is_computed or _is_shared_out(task) or not target.has_fma or not _gains(plain):
        return None
    width = target.lanes(plain.wide_bytes)
    rows, vectors = register_tile(plain, target, width, is_packed=True)
    panels = split(-(-plain.columns // width), vectors)
    choice = Choice("packed", "its right operand is packed beside it", plain, False, split(plain.rows, rows), panels)
    tiles = max(1, min(MOST_TILES, plain.work // WORTH_A_TILE, panels.groups))
    choice = packing(choice, target)._replace(
        column_tiles=tiles, chunk=panels.groups, shared="right", is_prepacked=True
    )
    return choice._replace(pack_tiles=min(MOST_TILES, choice.shared_units))


def _is_shared_out(task: ProductTask) -> bool:
    """Whether blocks of terms are what tiles take, and as they lie they are read as fast as panels."""
    return is_split(task) and (blockwise_form(task) is None or task.terms >= _WHOLE_BLOCKS * BLOCK)


def _gains(task: ProductTask) -> bool:
    fewest = _FEWEST_ROWS * task.wide_bytes // task.right_bytes
    return fewest <= task.rows <= _MOST_ROWS and task.terms * task.columns >= _LEAST_NUMBERS
