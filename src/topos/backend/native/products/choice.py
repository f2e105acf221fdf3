"""What a kernel is told to be: its kind, its register tile, its tiles of work."""

from __future__ import annotations

from topos.backend.native.products.split import Split
from topos.backend.native.products.task import ProductTask
from topos.records import NamedTuple
from topos.reference.products import BLOCK

_PART_PANELS = 8
_LINE_GAP = 16  # lines of a whole block would all begin in the same few sets of the nearest cache


class Choice(NamedTuple):
    """A kind and its parameters, for the equal form `task` of the work (`is_turned`: rows and columns exchanged)."""

    kind: str
    why: str
    task: ProductTask
    is_turned: bool = False
    rows: Split = Split(1, 1, 0)
    """Row groups: the rows of one register tile each."""
    panels: Split = Split(1, 1, 0)
    """Column panels: the vectors of one register tile each."""
    batch_tiles: int = 1
    row_tiles: int = 1
    column_tiles: int = 1
    packs_left: bool = False
    packs_right: bool = False
    chunk: int = 1
    """Panels of the right operand that are packed at once."""
    shared: str = ""
    """The operand that a kernel before this one packs for all tiles: `left`, `right` or none."""
    is_far: bool = False
    """Whether what is read comes from beyond the nearer caches."""
    pack_tiles: int = 1
    """Pieces of work of that kernel."""
    has_left_lines: bool = False
    """Whether a left operand that is worked out is packed as lines of terms, and not as terms of rows."""
    abreast: int = 1
    """Blocks of terms that are read side by side, at most."""
    is_prepacked: bool = False
    """Whether the shared copy has memory of its own, the argument behind the scratch, and stays there."""

    @property
    def is_tiled(self) -> bool:
        """Whether its results are register tiles over terms, block by block."""
        return self.kind in ("direct", "packed")

    @property
    def tiles(self) -> int:
        """Pieces of work."""
        return self.batch_tiles * self.row_tiles * self.column_tiles

    @property
    def left_steps(self) -> tuple[int, int]:
        """Numbers from row to row, and from term to term, of a packed left operand."""
        if self.has_left_lines:
            return self.depth + _LINE_GAP, 1
        return 1, self.rows.largest

    @property
    def blocks(self) -> int:
        """Blocks of terms."""
        return -(-self.task.terms // BLOCK)

    @property
    def part_panels(self) -> int:
        """Panels in one unit of packing the right operand for all tiles."""
        return min(_PART_PANELS, self.panels.groups)

    @property
    def shared_parts(self) -> int:
        """Units into which one block of the shared operand falls."""
        return self.rows.groups if self.shared == "left" else -(-self.panels.groups // self.part_panels)

    @property
    def shared_units(self) -> int:
        """Pieces of work in packing it, in all."""
        return self.shared_parts * self.blocks * self.task.batches

    @property
    def depth(self) -> int:
        """The terms of the longest block."""
        return min(BLOCK, self.task.terms)
