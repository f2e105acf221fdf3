"""The kernel of a cascade: for each block of rows all its stages, over memory that the worker keeps for itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from topos.backend.native.cascade_bands import bands_of
from topos.backend.native.cascade_block import Block, block_rows, even_rows, most_rows
from topos.backend.native.cascade_folds import images_of
from topos.backend.native.cascade_places import Places
from topos.backend.native.cascade_reach import Looking, Reach, end_of, reach_of
from topos.backend.native.cascade_rolling import banded
from topos.backend.native.cascade_rounds import in_rounds
from topos.backend.native.cascade_stages import Stages
from topos.backend.native.contractions import contracted
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.kernel import head
from topos.backend.native.products import resumed
from topos.backend.native.products import stage as product_stage
from topos.backend.native.products.frame import digit
from topos.backend.native.products.text import Text
from topos.backend.native.program import Call, Pointer
from topos.backend.native.registers import INT64, Operand
from topos.backend.native.target import Target
from topos.backend.native.writers import Writer
from topos.op import Fold, MatMul

FEWEST_MATRICES = 8
"""Fewer leave threads without work, were a matrix always one thread's where products sum over its rows."""
MOST_TILES = 16
"""Tiles of work; each worker has memory of its own."""


def cascade(lowering: Lowering, group: Group, target: Target, write: Writer) -> Call | None:
    """The kernel that runs the stages of a group; `None` where one of them has none."""
    bands = bands_of(lowering, group.stages)
    if bands is not None:
        return banded(lowering, group, bands, target, write)
    folds = isinstance(lowering.spec.rows[group.stages[-1].rows[-1]].opcode, Fold)
    if not folds and prod(group.stages[0].shape[:-2]) < FEWEST_MATRICES:
        return in_rounds(lowering, group, target, write)
    block = Block(lowering, group, _rows(lowering, group))
    reach = reach_of(block, group, target)
    block.reach = Operand(INT64, "%reach") if reach else None
    calls = []
    for stage in block.groups:
        products = partial(product_stage, reach=end_of(reach, stage is block.groups[0]))
        if stage.crosses:
            products = partial(resumed, all_terms=block.all_rows, tiles=1)
        is_product = isinstance(lowering.spec.rows[stage.rows[0]].opcode, MatMul)
        call = contracted(block, stage, target, products) if is_product else write(block, stage, target)
        if call is None:
            return None
        calls.append(call)
    return _Cascade(block, calls, reach).call()


def _rows(lowering: Lowering, group: Group) -> int:
    """The rows of a block: even shares of all rows, each value of a block as large as the cache allows."""
    if isinstance(lowering.spec.rows[group.stages[-1].rows[-1]].opcode, Fold):
        return images_of(lowering, group)
    most = most_rows(lowering, group)
    rows = group.stages[0].shape[-2]
    return block_rows(rows, most) if any(stage.crosses for stage in group.stages) else even_rows(rows, most)


class _Cascade:
    """A kernel in the making."""

    def __init__(self, block: Block, calls: Sequence[Call], reach: Reach | None) -> None:
        self.block, self.calls, self.reach = block, calls, reach
        self.crosses = [stage.crosses for stage in block.groups]
        further = ["%begun" if crosses else "%reach" for crosses in self.crosses]
        self.stages = Stages(calls, {row: block.bytes_of(row) for row in block.interiors()}, further)
        self.operands = Places(block, calls, self.stages.values, [] if reach is None else [reach.mask])
        self.blocks = -(-block.all_rows // block.rows)
        self.matrices = prod(block.leading)
        self.parts = 1 if any(self.crosses) else self._parts()
        self.tiles = min(MOST_TILES, self.matrices * self.parts)

    def _parts(self) -> int:
        """Into how many parts the blocks of a matrix fall."""
        if self.block.all_rows % self.block.rows == 0:
            return min(-(-MOST_TILES // self.matrices), self.blocks)
        # A part has two blocks at least: the last block of all is moved back onto rows of the one before it.
        return max(1, min(-(-MOST_TILES // self.matrices) // 2, self.blocks // 2))

    def call(self) -> Call:
        """The kernel and its operands."""
        return self.stages.call(list(self.operands.pointers), self.tiles, self._text)

    # text
    def _text(self, name: str, helpers: dict[str, str]) -> str:
        self.text = text = Text(helpers)
        self.arguments, self.memory = self.stages.begin(text, len(self.operands.pointers))
        units = self.matrices * self.parts
        first = text.share("%tile", self.tiles, units)
        end = text.share(text.add("%tile", 1), self.tiles, units)
        text.loop(first, end, 1, lambda unit, _: self._unit(unit))
        return text.function(head(name))

    def _unit(self, unit: str) -> None:
        """Some blocks of one matrix: what all of them read is packed first."""
        text = self.text
        part, matrix = digit(text, unit, self.parts)
        places = self.operands.of(text, self.arguments, matrix)
        for at, call in enumerate(self.calls):
            self._fill(at, places, "0", "0")
            for kernel in call.kernels[: 0 if self.crosses[at] else -1]:
                self.stages.run(text, at, kernel, "poison")
        looking = Looking(self.block, self.reach, text) if self.reach else None
        finite = looking.finite(places[looking.reach.right]) if looking else ""

        def one(block: str) -> None:
            # The last block of all is moved back onto rows of the one before; sums take no row again.
            begun = text.mul(block, self.block.rows)
            row = self.block.first(text, begun)
            reach = "poison"
            if looking is not None:
                mask = self.operands.at(text, places, Pointer(looking.reach.mask, 0), row)
                reach = looking.columns_of(mask, finite)
            for at, call in enumerate(self.calls):
                self._fill(at, places, row, begun if self.crosses[at] else row)
                for kernel in call.kernels[0 if self.crosses[at] else -1 :]:
                    self.stages.run(text, at, kernel, begun if self.crosses[at] else reach)

        first = text.share(part, self.parts, self.blocks) if self.parts > 1 else "0"
        end = text.share(text.add(part, 1), self.parts, self.blocks) if self.parts > 1 else str(self.blocks)
        text.loop(first, end, 1, lambda block, _: one(block))

    def _fill(self, at: int, places: dict[int, str], row: str, begin: str) -> None:
        """The arguments of a stage that begins with a row, at a block that begins with one."""
        text, values = self.text, self.stages.values

        def place(operand: Pointer) -> str:
            if operand.row not in values:
                return self.operands.at(text, places, operand, begin)
            within = text.mul(text.sub(begin, row), self.block.bytes_of(operand.row) // self.block.rows)
            return text.at(text.at(self.memory, values[operand.row] + operand.offset_bytes), within)

        self.stages.fill(text, at, text.at(self.memory, self.stages.scratch[at]), place)
