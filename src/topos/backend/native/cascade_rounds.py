"""The kernels of a cascade of few matrices: threads share its rows, round by round, and then what is summed over them.

What every block of rows reads is packed first. A round is some blocks of rows of every matrix, or all of them where no
product sums over rows. Its rows run, each part of them whoever's it is; what products sum over them is left where all
see it. When all of them are done, those products go on by as many terms, each tile of results whoever's it is. So every
chain takes its terms in ascending order, and what is kept between the two is a round's.
"""

from __future__ import annotations

from functools import partial
from math import prod

from topos.backend.native.cascade_block import FEWEST_ROWS, Block, block_rows, even_rows, most_rows
from topos.backend.native.cascade_reach import end_of, reach_of
from topos.backend.native.cascade_round_kernels import RoundKernels
from topos.backend.native.contractions import contracted
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.products import resumed
from topos.backend.native.products import stage as product_stage
from topos.backend.native.products.tiles import WORTH_A_TILE
from topos.backend.native.program import Call
from topos.backend.native.registers import INT64, Operand
from topos.backend.native.target import Target
from topos.backend.native.writers import Writer
from topos.op import MatMul
from topos.reference.products import BLOCK

ROUND_ROWS, MOST_ROUNDS = 64, 128
"""Rows of a matrix in a round: chains that wait are read and written once for so many terms. Very many rows make longer
rounds, up to a block of 512 terms, for each round is some kernels to be started."""
FEWEST_TILES, MOST_TILES = 8, 16
"""Parts of a round, and tiles of what is summed over it: where the work allows, as many."""


def in_rounds(lowering: Lowering, group: Group, target: Target, write: Writer) -> Call | None:
    """The kernels that run the stages of a group; `None` where one of them has none."""
    *leading, every, _ = group.stages[0].shape
    crossing, matrices = sum(stage.crosses for stage in group.stages), prod(leading)
    rows, count = _cut(lowering, group, matrices) if crossing else _all(lowering, group)
    block, wide = Block(lowering, group, rows), Block(lowering, group, min(every, count * rows))
    parts = min(count, -(-MOST_TILES // matrices))
    reach = reach_of(block, group, target)
    block.reach = Operand(INT64, "%reach") if reach else None
    calls, sums = [], []
    for stage, summed in zip(block.groups, wide.groups, strict=True):
        if stage.crosses:
            work = summed.shape.volume * wide.rows
            tiles = min(-(-MOST_TILES // (matrices * crossing)), max(1, work // WORTH_A_TILE))
            sums.append(contracted(wide, summed, target, partial(resumed, all_terms=every, tiles=tiles)))
        elif isinstance(lowering.spec.rows[stage.rows[0]].opcode, MatMul):
            end = end_of(reach, stage is block.groups[0])
            calls.append(contracted(block, stage, target, partial(product_stage, reach=end, workers=parts)))
        else:
            calls.append(write(block, stage, target))
    written = [call for call in (*calls, *sums) if call is not None]
    if len(written) < len(group.stages):
        return None
    return RoundKernels(block, wide, parts, written[: len(calls)], written[len(calls) :], reach).call()


def _all(lowering: Lowering, group: Group) -> tuple[int, int]:
    """The rows of a block, and how many blocks a matrix has."""
    every = group.stages[0].shape[-2]
    rows = even_rows(every, most_rows(lowering, group))
    return rows, -(-every // rows)


def _cut(lowering: Lowering, group: Group, matrices: int) -> tuple[int, int]:
    """The rows of a block, and the blocks of a matrix in a round: even shares of all."""
    every = group.stages[0].shape[-2]
    shared = matrices * min(every, ROUND_ROWS) // FEWEST_TILES
    rows = block_rows(every, min(most_rows(lowering, group), max(FEWEST_ROWS, shared)))
    most = max(1, max(ROUND_ROWS, -(-every // MOST_ROUNDS)) // rows)
    if every > BLOCK:
        return rows, 1 << min(most, BLOCK // rows).bit_length() - 1
    return rows, even_rows(-(-every // rows), most)
