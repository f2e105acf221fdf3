"""The register tile of a product: the accumulators that stay in registers from term to term."""

from __future__ import annotations

from collections.abc import Iterator

from topos.backend.native.products.split import split
from topos.backend.native.products.task import ProductTask
from topos.backend.native.target import Target
from topos.reference.products import BLOCK
from topos.tensor.memory import LINE

_STREAM_BYTES = 256
_WORTH_A_SHAPE = 200.0
_CROWDED_BYTES = 32 << 10
_NEAREST_BYTES = 24 << 10  # a right operand below this stays in L1, beside what else is there
_GRID_ROWS = 8  # each has a pointer of its own, and there are 16 registers for all


def tallest(target: Target) -> int:
    """The most rows of a register tile of two vectors."""
    return max((rows for rows, vectors in _register_tiles(target) if vectors > 1), default=2)


def register_tile(task: ProductTask, target: Target, width: int, is_packed: bool) -> tuple[int, int]:
    """(rows, vectors) of the register tile that takes the fewest cycles over this shape, the edges included."""
    all_vectors = -(-task.columns // width)
    # Lines of a panel are fetched ahead beside being read; those of the left operand cost more where read in place.
    fetches, lines = (1 + width * task.wide_bytes / LINE, 0.0) if is_packed else (1.0, 0.06)
    # The right operand comes from L2, at less than half a vector a cycle, unless L1 holds all of it.
    far = 2.25 if min(BLOCK, task.terms) * task.columns * task.wide_bytes > _NEAREST_BYTES else 0.0

    def cycles(tile: tuple[int, int]) -> float:
        row_groups, panels = split(task.rows, tile[0]), split(all_vectors, tile[1])
        total = 0.0
        for rows, row_count in row_groups.sizes:
            for vectors, panel_count in panels.sizes:
                # Two multiply-adds and two loads a cycle, four cycles and a half from one term to the next.
                steps = max(rows * vectors / 2, (rows + fetches * vectors) / 2, 4.5, far * vectors) + 0.5 + lines * rows
                # A row group is read again for every panel: from L1, if it leaves some of it to the panels.
                crowds = rows * min(BLOCK, task.terms) * task.wide_bytes > _CROWDED_BYTES and rows < task.rows
                # Rows of totals that lie whole pages apart share one set of L1, which holds no more than 8 to 12 lines.
                crowds |= rows > 8 and task.terms > BLOCK and task.out[0] * task.wide_bytes % 4096 == 0
                total += steps * (1.1 if crowds else 1.0) * row_count * panel_count
        # Each shape is a function more to be compiled: it has to gain so many cycles in all, or a hundredth.
        shapes = len(row_groups.sizes) * len(panels.sizes)
        return total + shapes * max(0.01 * total, _WORTH_A_SHAPE / max(1, task.terms * task.batches))

    # A matrix that is read once streams best in short lines: the hardware follows each on its way down the rows.
    widest = 8 if task.rows > 2 else max(1, _STREAM_BYTES // (width * task.right_bytes))
    tallest = _GRID_ROWS if task.left_grid is not None else 14
    return min((tile for tile in _register_tiles(target) if tile[0] <= tallest and tile[1] <= widest), key=cycles)


def _register_tiles(target: Target) -> Iterator[tuple[int, int]]:
    """The shapes whose accumulators, a vector of every column and one spread number fit the registers."""
    if not target.has_fma:
        yield from ((1, 1), (2, 1))
        return
    for rows in range(1, 15):
        for vectors in range(1, 9):
            if rows * vectors + vectors + 1 <= target.registers:
                yield rows, vectors
