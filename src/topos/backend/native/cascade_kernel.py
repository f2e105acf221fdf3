"""The kernel of a cascade: for each block of rows all its stages, over memory that the worker keeps for itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from topos.backend.native.cascade_bands import bands_of
from topos.backend.native.cascade_block import Block, Source
from topos.backend.native.cascade_crossing import even_rows
from topos.backend.native.cascade_folds import images_of
from topos.backend.native.cascade_reach import Looking, Reach, reach_of
from topos.backend.native.cascade_rolling import banded
from topos.backend.native.cascade_stages import Stages
from topos.backend.native.contractions import contracted
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.kernel import head
from topos.backend.native.products import stage as product_stage
from topos.backend.native.products.frame import digit
from topos.backend.native.products.text import Text
from topos.backend.native.program import Call, Pointer
from topos.backend.native.registers import INT64, Operand
from topos.backend.native.target import Target
from topos.op import Fold, MatMul

BLOCK_BYTES = 1 << 15
"""What one value of a block takes at most, so that the nearest cache holds it, beside a line of it at least."""
FEWEST_ROWS, MOST_ROWS = 16, 128
MOST_TILES = 16
"""Tiles of work; each worker has memory of its own."""

Writer = Callable[[Lowering, Group, Target], Call | None]


def cascade(lowering: Lowering, group: Group, target: Target, write: Writer) -> Call | None:
    """The kernel that runs the stages of a group; `None` where one of them has none."""
    bands = bands_of(lowering, group.stages)
    if bands is not None:
        return banded(lowering, group, bands, target, write)
    block = Block(lowering, group, _rows(lowering, group))
    reach = reach_of(block, group, target)
    block.reach = Operand(INT64, "%reach") if reach else None
    calls = []
    for stage in block.groups:
        is_product = isinstance(lowering.spec.rows[stage.rows[0]].opcode, MatMul)
        ends = "" if reach is None else "columns" if stage is block.groups[0] else "terms"
        products = partial(product_stage, reach=ends, all_terms=block.all_rows if stage.crosses else 0)
        call = contracted(block, stage, target, products) if is_product else write(block, stage, target)
        if call is None:
            return None
        calls.append(call)
    return _Cascade(block, calls, reach).call()


def _rows(lowering: Lowering, group: Group) -> int:
    """The rows of a block: even shares of all rows, each value of a block as large as the cache allows."""
    if isinstance(lowering.spec.rows[group.stages[-1].rows[-1]].opcode, Fold):
        return images_of(lowering, group)
    *_, rows, columns = group.stages[0].shape
    item = lowering.spec.element_of(group.stages[0].rows[0]).dtype.itemsize
    most = max(FEWEST_ROWS, min(MOST_ROWS, BLOCK_BYTES // (columns * item)))
    if any(stage.crosses for stage in group.stages):
        return even_rows(rows, most)
    return -(-rows // -(-rows // most))


class _Cascade:
    """A kernel in the making."""

    def __init__(self, block: Block, calls: Sequence[Call], reach: Reach | None) -> None:
        self.block, self.calls, self.reach = block, calls, reach
        self.crosses = [stage.crosses for stage in block.groups]
        further = ["%begun" if crosses else "%reach" for crosses in self.crosses]
        self.stages = Stages(calls, {row: block.bytes_of(row) for row in block.interiors()}, further)
        interiors = self.stages.values
        looked = [] if reach is None else [reach.mask]
        operands = [*(at.row for call in calls for at in call.operands), *looked]
        rows = dict.fromkeys(row for row in operands if row not in interiors)
        self.sources: dict[int, Source] = {row: block.source(row) for row in rows}
        self.pointers = list(dict.fromkeys(source.pointer for source in self.sources.values()))
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
        return self.stages.call(list(self.pointers), self.tiles, self._text)

    # text
    def _text(self, name: str, helpers: dict[str, str]) -> str:
        self.text = text = Text(helpers)
        self.arguments, self.memory = self.stages.begin(text, len(self.pointers))
        units = self.matrices * self.parts
        first = text.share("%tile", self.tiles, units)
        end = text.share(text.add("%tile", 1), self.tiles, units)
        text.loop(first, end, 1, lambda unit, _: self._unit(unit))
        return text.function(head(name))

    def _unit(self, unit: str) -> None:
        """Some blocks of one matrix: what all of them read is packed first."""
        text = self.text
        part, matrix = digit(text, unit, self.parts)
        places = self._matrix(matrix)
        for at, call in enumerate(self.calls):
            self._fill(at, places, "0")
            for kernel in call.kernels[: 0 if self.crosses[at] else -1]:
                self.stages.run(text, at, kernel, "poison")
        looking = Looking(self.block, self.reach, text) if self.reach else None
        finite = looking.finite(places[looking.reach.right]) if looking else ""

        def one(block: str) -> None:
            rows = self.block.rows
            row = text.least(text.mul(block, rows), self.block.all_rows - rows) if self.blocks > 1 else "0"
            reach = "poison"
            if looking is not None:
                mask = looking.reach.mask
                reach = looking.columns_of(text.at(places[mask], text.mul(row, self.sources[mask].down)), finite)
            for at, call in enumerate(self.calls):
                self._fill(at, places, row)
                for kernel in call.kernels[0 if self.crosses[at] else -1 :]:
                    self.stages.run(text, at, kernel, row if self.crosses[at] else reach)

        first = text.share(part, self.parts, self.blocks) if self.parts > 1 else "0"
        end = text.share(text.add(part, 1), self.parts, self.blocks) if self.parts > 1 else str(self.blocks)
        text.loop(first, end, 1, lambda block, _: one(block))

    def _matrix(self, matrix: str) -> dict[int, str]:
        """Where each operand's part of a matrix begins."""
        text, rest = self.text, matrix
        places = {row: self.arguments[self.pointers.index(source.pointer)] for row, source in self.sources.items()}
        for axis in reversed(range(len(self.block.leading))):
            index, rest = digit(text, rest, self.block.leading[axis]) if axis else (rest, "0")
            for row, source in self.sources.items():
                places[row] = text.at(places[row], text.mul(index, source.leading[axis]))
        return places

    def _fill(self, at: int, places: dict[int, str], row: str) -> None:
        """The arguments of a stage at a block that begins with a row."""
        self.stages.fill(self.text, at, self.memory, lambda operand: self._place(operand, places, row))

    def _place(self, operand: Pointer, places: dict[int, str], row: str) -> str:
        text = self.text
        if operand.row in self.stages.values:
            return text.at(self.memory, self.stages.values[operand.row] + operand.offset_bytes)
        down = text.mul(row, self.sources[operand.row].down)
        return text.at(text.at(places[operand.row], down), operand.offset_bytes)
