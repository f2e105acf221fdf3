"""The kernel of a cascade: for each block of rows all its stages, over memory that the worker keeps for itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import NamedTuple

from topos.backend.native.cascade_block import Block, Source
from topos.backend.native.cascade_crossing import even_rows
from topos.backend.native.cascade_folds import images_of
from topos.backend.native.cascade_reach import Looking, Reach, reach_of
from topos.backend.native.contractions import contracted
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.kernel import Kernel, head, named
from topos.backend.native.products import stage as product_stage
from topos.backend.native.products.frame import argument, digit
from topos.backend.native.products.regions import base
from topos.backend.native.products.text import Text
from topos.backend.native.program import Call, Pointer
from topos.backend.native.registers import INT64, Operand
from topos.backend.native.target import Target
from topos.op import Fold, MatMul
from topos.tensor.memory import LINE, whole_lines

BLOCK_BYTES = 1 << 15
"""What one value of a block takes at most, so that the nearest cache holds it, beside a line of it at least."""
FEWEST_ROWS, MOST_ROWS = 16, 128
MOST_TILES = 16
"""Tiles of work; each worker has memory of its own."""

Writer = Callable[[Lowering, Group, Target], Call | None]


def cascade(lowering: Lowering, group: Group, target: Target, write: Writer) -> Call | None:
    """The kernel that runs the stages of a group; `None` where one of them has none."""
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


class _Room(NamedTuple):
    """What a tile keeps: where each value between stages and each stage's scratch begins, and the size of it all."""

    values: dict[int, int]
    scratch: list[int]
    bytes: int


class _Cascade:
    """A kernel in the making."""

    def __init__(self, block: Block, calls: Sequence[Call], reach: Reach | None) -> None:
        self.block, self.calls, self.reach = block, calls, reach
        self.room = self._room()
        interiors = set(self.room.values)
        looked = [] if reach is None else [reach.mask]
        operands = [*(at.row for call in calls for at in call.operands), *looked]
        rows = dict.fromkeys(row for row in operands if row not in interiors)
        self.sources: dict[int, Source] = {row: block.source(row) for row in rows}
        self.pointers = list(dict.fromkeys(source.pointer for source in self.sources.values()))
        self.blocks = -(-block.all_rows // block.rows)
        self.matrices = prod(block.leading)
        self.crosses = [stage.crosses for stage in block.groups]
        self.parts = 1 if any(self.crosses) else self._parts()
        self.tiles = min(MOST_TILES, self.matrices * self.parts)

    def _parts(self) -> int:
        """Into how many parts the blocks of a matrix fall."""
        if self.block.all_rows % self.block.rows == 0:
            return min(-(-MOST_TILES // self.matrices), self.blocks)
        # A part has two blocks at least: the last block of all is moved back onto rows of the one before it.
        return max(1, min(-(-MOST_TILES // self.matrices) // 2, self.blocks // 2))

    def _room(self) -> _Room:
        values, scratch, size = {}, [], 0
        for row in self.block.interiors():
            values[row], size = size, size + whole_lines(self.block.bytes_of(row))
        for call in self.calls:
            scratch.append(size)
            size += whole_lines(call.scratch_bytes)
        return _Room(values, scratch, size)

    def call(self) -> Call:
        """The kernel and its operands."""
        helpers: dict[str, None] = {}
        stages: dict[str, str] = {}
        for at, kernel in ((at, kernel) for at, call in enumerate(self.calls) for kernel in call.kernels):
            helpers.update(dict.fromkeys(kernel.helpers))
            stages[kernel.name] = kernel.internal("%begun" if self.crosses[at] else "%reach")
        own: dict[str, str] = {}

        def text(name: str) -> str:
            return "\n".join([self._text(name, own), *stages.values()])

        size = self.tiles * self.room.bytes + LINE if self.room.bytes else 0
        kernel = named("cascade", text, self.tiles, size)
        return Call((kernel._replace(helpers=tuple({**helpers, **dict.fromkeys(own.values())})),), list(self.pointers))

    # text
    def _text(self, name: str, helpers: dict[str, str]) -> str:
        self.text = text = Text(helpers)
        for at, call in enumerate(self.calls):
            text.do(f"%table_{at} = alloca [{len(call.operands) + 1} x ptr], align 16")
        self.arguments = [argument(text, place) for place in range(len(self.pointers))]
        self.scratch = "poison"
        if self.room.bytes:
            self.scratch = base(text, argument(text, len(self.pointers)))
            self.scratch = text.at(self.scratch, text.mul("%worker", self.room.bytes))
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
                self._run(at, kernel, "poison")
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
                    self._run(at, kernel, row if self.crosses[at] else reach)

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
        text, call = self.text, self.calls[at]
        pointers = [self._place(operand, places, row) for operand in call.operands]
        if call.scratch_bytes:
            pointers.append(text.at(self.scratch, self.room.scratch[at]))
        for index, pointer in enumerate(pointers):
            text.do(f"store ptr {pointer}, ptr {text.at(f'%table_{at}', 8 * index)}, align 8")

    def _place(self, operand: Pointer, places: dict[int, str], row: str) -> str:
        text = self.text
        if operand.row in self.room.values:
            return text.at(self.scratch, self.room.values[operand.row] + operand.offset_bytes)
        down = text.mul(row, self.sources[operand.row].down)
        return text.at(text.at(places[operand.row], down), operand.offset_bytes)

    def _run(self, at: int, kernel: Kernel, reach: str) -> None:
        def tile(index: str) -> None:
            self.text.do(f"call void @{kernel.name}(ptr %table_{at}, i64 {index}, i64 0, i64 {reach})")

        if kernel.tiles == 1:
            tile("0")
        else:
            self.text.loop("0", str(kernel.tiles), 1, lambda index, _: tile(index))
