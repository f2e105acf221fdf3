"""The kernels of a cascade of few matrices: threads share its rows, round by round, and then what is summed over them.

What every block of rows reads is packed first. A round is some blocks of rows of every matrix, or all of them where no
product sums over rows. Its rows run, each part of them whoever's it is; what products sum over them is left where all
see it. When all of them are done, those products go on by as many terms, each tile of results whoever's it is. So every
chain takes its terms in ascending order, and what is kept between the two is a round's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod

from topos.backend.native.cascade_block import FEWEST_ROWS, Block, block_rows, even_rows, most_rows
from topos.backend.native.cascade_places import Places
from topos.backend.native.cascade_reach import Looking, Reach, reach_of
from topos.backend.native.cascade_stages import Stages, tile
from topos.backend.native.contractions import contracted
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.kernel import Kernel, head
from topos.backend.native.products import resumed
from topos.backend.native.products import stage as product_stage
from topos.backend.native.products.frame import argument, digit
from topos.backend.native.products.regions import base
from topos.backend.native.products.text import Text
from topos.backend.native.products.tiles import WORTH_A_TILE
from topos.backend.native.program import Call, Pointer
from topos.backend.native.registers import INT64, Operand
from topos.backend.native.target import Target
from topos.op import MatMul
from topos.reference.products import BLOCK
from topos.tensor.memory import LINE, whole_lines

ROUND_ROWS, MOST_ROUNDS = 64, 128
"""Rows of a matrix in a round: chains that wait are read and written once for so many terms. Very many rows make longer
rounds, up to a block of 512 terms, for each round is some kernels to be started."""
FEWEST_TILES, MOST_TILES = 8, 16
"""Parts of a round, and tiles of what is summed over it: where the work allows, as many."""

Writer = Callable[[Lowering, Group, Target], Call | None]


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
            ends = "" if reach is None else "columns" if stage is block.groups[0] else "terms"
            calls.append(contracted(block, stage, target, partial(product_stage, reach=ends, workers=parts)))
        else:
            calls.append(write(block, stage, target))
    written = [call for call in (*calls, *sums) if call is not None]
    if len(written) < len(group.stages):
        return None
    return _Rounds(block, wide, parts, written[: len(calls)], written[len(calls) :], reach).call()


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


class _Rounds:
    """The kernels in the making.

    In the scratch come how many rows are done, then for each matrix the packed operands of the stages, what products
    sum over and their chains, then what each worker has for itself.
    """

    def __init__(
        self, block: Block, wide: Block, parts: int, calls: Sequence[Call], sums: Sequence[Call], reach: Reach | None
    ) -> None:
        self.block, self.wide, self.parts, self.sums, self.reach = block, wide, parts, sums, reach
        self.every, self.matrices = block.all_rows, prod(block.leading)
        self.rounds = -(-self.every // wide.rows)
        self.begins_last = (self.rounds - 1) * wide.rows
        interiors = block.interiors()
        summed = {operand.row for call in sums for operand in call.operands}
        self.apart = [at for at, call in enumerate(calls) if len(call.kernels) > 1]
        self.packing = [calls[at]._replace(kernels=calls[at].kernels[:-1]) for at in self.apart]
        own = [call._replace(kernels=call.kernels[-1:]) for call in calls]
        alone = {row: block.bytes_of(row) for row in interiors if row not in summed}
        self.stages = Stages(own, alone, ["%reach"] * len(own), self.apart)
        self.operands = Places(block, (*calls, *sums), interiors, [] if reach is None else [reach.mask])
        self._lay([row for row in interiors if row in summed])

    def _lay(self, between: Sequence[int]) -> None:
        """Where the parts of the scratch are."""
        # The last block of all is moved back onto rows that may be those of the round before.
        ahead = max(0, self.begins_last - (self.every - self.block.rows))
        self.packed: dict[int, int] = {}
        self.between: dict[int, tuple[int, int]] = {}
        self.chains: list[int] = []
        size = 0
        for at, call in zip(self.apart, self.packing, strict=True):
            self.packed[at], size = size, size + whole_lines(call.scratch_bytes)
        for row in between:
            row_bytes = self.block.bytes_of(row) // self.block.rows
            self.between[row] = size + ahead * row_bytes, row_bytes
            size += whole_lines((ahead + self.wide.rows) * row_bytes)
        for call in self.sums:
            self.chains.append(size)
            size += whole_lines(call.scratch_bytes)
        self.matrix_bytes = size
        self.scratch_bytes = 2 * LINE + self.matrices * (size + self.parts * self.stages.bytes)

    def call(self) -> Call:
        """The kernels in the order in which they run, and their operands."""
        packing = Stages(self.packing, {}, ["%unused"] * len(self.packing))
        begin = self._written(packing, "begin", self.matrices * max(1, len(self.packing)), self._begin)
        rows = self._written(self.stages, "cascade", self.matrices * self.parts, self._rows)
        kernels = [rows]
        if self.sums:
            crossing = Stages(self.sums, {}, ["%begun"] * len(self.sums))
            tiles = sum(call.kernels[-1].tiles for call in self.sums)
            kernels.append(self._written(crossing, "sums", self.matrices * tiles, self._sums))
        if self.rounds > 1:
            kernels.append(self._written(Stages([], {}, []), "following", 1, self._following))
            kernels = [*kernels * (self.rounds - 1), *kernels[:-1]]
        has_begin = bool(self.packing) or self.rounds > 1
        return Call((*[begin] * has_begin, *kernels), list(self.operands.pointers))

    def _written(self, stages: Stages, stem: str, tiles: int, write: Callable[[Text, Stages], None]) -> Kernel:
        def text(name: str, helpers: dict[str, str]) -> str:
            own = Text(helpers)
            write(own, stages)
            return own.function(head(name))

        return stages.kernel(stem, tiles, self.scratch_bytes, text)

    # text
    def _memory(self, text: Text) -> str:
        return base(text, argument(text, len(self.operands.pointers)))

    def _matrix(self, text: Text, memory: str, matrix: str) -> str:
        """Where the part of a matrix begins."""
        return text.at(text.at(memory, LINE), text.mul(matrix, self.matrix_bytes))

    def _begun(self, text: Text, memory: str) -> str:
        """How many rows are done."""
        return text.let(f"load i64, ptr {memory}, align 8") if self.rounds > 1 else "0"

    def _begin(self, text: Text, stages: Stages) -> None:
        """What every block of a matrix reads is packed; no rows are done."""
        arguments, memory = stages.tables(text, len(self.operands.pointers)), self._memory(text)
        if self.rounds > 1:
            is_first = text.let("icmp eq i64 %tile, 0")
            text.when(is_first, lambda: text.do(f"store i64 0, ptr {memory}, align 8"))
        piece, matrix = digit(text, "%tile", max(1, len(stages.calls)))
        places, own = self.operands.of(text, arguments, matrix), self._matrix(text, memory, matrix)

        def place(operand: Pointer) -> str:
            return self.operands.at(text, places, operand, "0") if operand.row in places else "null"

        def packed(at: int, _: str) -> None:
            stages.fill(text, at, text.at(own, self.packed[self.apart[at]]), place)
            for kernel in stages.calls[at].kernels:
                stages.run(text, at, kernel, "poison")

        _each(text, piece, [1] * len(stages.calls), packed)

    def _rows(self, text: Text, stages: Stages) -> None:
        """A part of the blocks of a round; the last two blocks of all, which may share rows, are one part's."""
        arguments, memory = stages.tables(text, len(self.operands.pointers)), self._memory(text)
        part, matrix = digit(text, "%tile", self.parts)
        begun = self._begun(text, memory)
        last = -(-(self.every - self.begins_last) // self.block.rows)
        apart = max(1, last - bool(self.every % self.block.rows))
        blocks, units = str(last), str(apart)
        if self.rounds > 1:
            is_last = text.let(f"icmp eq i64 {begun}, {self.begins_last}")
            usual = self.wide.rows // self.block.rows
            blocks, units = (text.let(f"select i1 {is_last}, i64 {count}, i64 {usual}") for count in (last, apart))
        first, end = (
            text.let(f"udiv i64 {text.let(f'mul i64 {at}, {units}')}, {self.parts}") for at in (part, text.add(part, 1))
        )
        places, own = self.operands.of(text, arguments, matrix), self._matrix(text, memory, matrix)
        worker = text.at(memory, LINE + self.matrices * self.matrix_bytes)
        worker = text.at(worker, text.mul("%worker", stages.bytes))

        def some() -> None:
            looking = Looking(self.block, self.reach, text) if self.reach else None
            finite = looking.finite(places[looking.reach.right]) if looking else ""
            is_end = text.let(f"icmp eq i64 {end}, {units}")
            until = text.let(f"select i1 {is_end}, i64 {blocks}, i64 {end}")

            def one(block: str) -> None:
                row = self.block.first(text, text.add(begun, text.mul(block, self.block.rows)))
                reach = "poison"
                if looking is not None:
                    down = text.mul(row, self.operands.sources[looking.reach.mask].down)
                    reach = looking.columns_of(text.at(places[looking.reach.mask], down), finite)
                self._block(text, stages, (places, own, worker), (row, begun, part, reach))

            text.loop(first, until, 1, lambda block, _: one(block))

        text.when(text.less(first, end), some)

    def _block(
        self,
        text: Text,
        stages: Stages,
        where: tuple[Mapping[int, str], str, str],
        what: tuple[str, str, str, str],
    ) -> None:
        """The stages of a block from a row on."""
        (places, own, worker), (row, begun, part, reach) = where, what

        def place(operand: Pointer) -> str:
            if operand.row in places:
                return self.operands.at(text, places, operand, row)
            if operand.row in self.between:
                return self._between(text, own, operand, text.less_by(row, begun))
            return text.at(worker, stages.values[operand.row] + operand.offset_bytes)

        for at, call in enumerate(stages.calls):
            is_apart = at in self.packed
            scratch = text.at(own, self.packed[at]) if is_apart else text.at(worker, stages.scratch[at])
            stages.fill(text, at, scratch, place)
            stages.run(text, at, call.kernels[0], reach, part if is_apart else "0")

    def _sums(self, text: Text, stages: Stages) -> None:
        """A tile of results goes on by the terms of a round."""
        arguments, memory = stages.tables(text, len(self.operands.pointers)), self._memory(text)
        counts = [call.kernels[0].tiles for call in self.sums]
        index, matrix = digit(text, "%tile", sum(counts))
        begun = self._begun(text, memory)
        places, own = self.operands.of(text, arguments, matrix), self._matrix(text, memory, matrix)

        def place(operand: Pointer) -> str:
            if operand.row in places:
                return self.operands.at(text, places, operand, begun)
            return self._between(text, own, operand, "0")

        def run(at: int, index: str) -> None:
            stages.fill(text, at, text.at(own, self.chains[at]), place)
            tile(text, at, stages.calls[at].kernels[0], index, "0", begun)

        _each(text, index, counts, run)

    def _between(self, text: Text, own: str, operand: Pointer, row: str) -> str:
        """Where what products sum over is, from a row of the round on."""
        start, row_bytes = self.between[operand.row]
        return text.at(text.at(own, start + operand.offset_bytes), text.mul(row, row_bytes))

    def _following(self, text: Text, _: Stages) -> None:
        """So many more rows are done."""
        memory = self._memory(text)
        text.do(f"store i64 {text.add(self._begun(text, memory), self.wide.rows)}, ptr {memory}, align 8")


def _each(text: Text, index: str, counts: Sequence[int], body: Callable[[int, str], None], at: int = 0) -> None:
    """The body of the count within which an index falls, and how far behind its beginning that is."""
    if at + 1 >= len(counts):
        return body(at, index) if counts else None
    within = text.less(index, counts[at])
    text.when(
        within,
        lambda: body(at, index),
        lambda: _each(text, text.add(index, -counts[at]), counts, body, at + 1),
    )
    return None
