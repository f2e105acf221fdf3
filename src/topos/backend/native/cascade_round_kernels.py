"""The text of the kernels of a cascade whose threads share its rows, round by round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from topos.backend.native.cascade_block import Block
from topos.backend.native.cascade_places import Places
from topos.backend.native.cascade_reach import Looking, Reach
from topos.backend.native.cascade_round_memory import RoundMemory
from topos.backend.native.cascade_stages import Stages, tile
from topos.backend.native.kernel import Kernel, head
from topos.backend.native.products.frame import digit
from topos.backend.native.products.text import Text
from topos.backend.native.program import Call, Pointer
from topos.records import NamedTuple


class RoundKernels:
    """The kernels of some stages in the making: `calls` for a block, `sums` over the rows of a round.

    `wide` is a round of a matrix as one block, which threads run in so many `parts`.
    """

    def __init__(
        self, block: Block, wide: Block, parts: int, calls: Sequence[Call], sums: Sequence[Call], reach: Reach | None
    ) -> None:
        self.block, self.wide, self.parts, self.sums, self.reach = block, wide, parts, sums, reach
        self.matrices = prod(block.leading)
        interiors = block.interiors()
        summed = {operand.row for call in sums for operand in call.operands}
        self.apart = [at for at, call in enumerate(calls) if len(call.kernels) > 1]
        self.packing = [calls[at]._replace(kernels=calls[at].kernels[:-1]) for at in self.apart]
        own = [call._replace(kernels=call.kernels[-1:]) for call in calls]
        alone = {row: block.bytes_of(row) for row in interiors if row not in summed}
        self.stages = Stages(own, alone, ["%reach"] * len(own), self.apart)
        self.operands = Places(block, (*calls, *sums), interiors, [] if reach is None else [reach.mask])
        self.memory = RoundMemory(
            block,
            wide,
            {at: calls[at].scratch_bytes for at in self.apart},
            [row for row in interiors if row in summed],
            [call.scratch_bytes for call in sums],
            self.stages.bytes,
        )

    def call(self) -> Call:
        """The kernels in the order in which they run, and their operands."""
        rounds = self.memory.rounds
        packing = Stages(self.packing, {}, ["%unused"] * len(self.packing))
        begin = self._written(packing, "begin", self.matrices * max(1, len(self.packing)), self._begin)
        rows = self._written(self.stages, "cascade", self.matrices * self.parts, self._rows)
        kernels = [rows]
        if self.sums:
            crossing = Stages(self.sums, {}, ["%begun"] * len(self.sums))
            tiles = sum(call.kernels[-1].tiles for call in self.sums)
            kernels.append(self._written(crossing, "sums", self.matrices * tiles, self._sums))
        if rounds > 1:
            kernels.append(self._written(Stages([], {}, []), "following", 1, self._following))
            kernels = [*kernels * (rounds - 1), *kernels[:-1]]
        has_begin = bool(self.packing) or rounds > 1
        return Call((*[begin] * has_begin, *kernels), list(self.operands.pointers))

    def _written(self, stages: Stages, stem: str, tiles: int, write: Callable[[Text, Stages], None]) -> Kernel:
        def text(name: str, helpers: dict[str, str]) -> str:
            own = Text(helpers)
            write(own, stages)
            return own.function(head(name))

        return stages.kernel(stem, tiles, self.memory.bytes(self.matrices, self.matrices * self.parts), text)

    # text
    def _begin(self, text: Text, stages: Stages) -> None:
        """What every block of a matrix reads is packed; no rows are done."""
        arguments, start = self._given(text, stages)
        if self.memory.rounds > 1:
            is_first = text.let("icmp eq i64 %tile, 0")
            text.when(is_first, lambda: self.memory.begin(text, start, "0"))
        piece, matrix = digit(text, "%tile", max(1, len(stages.calls)))
        places, own = self.operands.of(text, arguments, matrix), self.memory.matrix(text, start, matrix)

        def place(operand: Pointer) -> str:
            return self.operands.at(text, places, operand, "0") if operand.row in places else "null"

        def packed(at: int, _: str) -> None:
            stages.fill(text, at, text.at(own, self.memory.packed[self.apart[at]]), place)
            for kernel in stages.calls[at].kernels:
                stages.run(text, at, kernel, "poison")

        _within(text, piece, [1] * len(stages.calls), packed)

    def _given(self, text: Text, stages: Stages) -> tuple[list[str], str]:
        """The kernel's arguments, and where its scratch begins."""
        count = len(self.operands.pointers)
        return stages.tables(text, count), self.memory.start(text, count)

    def _rows(self, text: Text, stages: Stages) -> None:
        """A part of the blocks of a round."""
        arguments, start = self._given(text, stages)
        part, matrix = digit(text, "%tile", self.parts)
        begun = self.memory.begun(text, start)
        share = self._share(text, begun, part)
        places, own = self.operands.of(text, arguments, matrix), self.memory.matrix(text, start, matrix)
        here = _Here(places, own, self.memory.worker(text, start, self.matrices), begun, part)

        def some() -> None:
            looking = Looking(self.block, self.reach, text) if self.reach else None
            finite = looking.finite(places[looking.reach.right]) if looking else ""

            def one(block: str) -> None:
                row = self.block.first(text, text.add(begun, text.mul(block, self.block.rows)))
                reach = "poison"
                if looking is not None:
                    mask = self.operands.at(text, places, Pointer(looking.reach.mask, 0), row)
                    reach = looking.columns_of(mask, finite)
                self._block(text, stages, here, row, reach)

            text.loop(share.first, share.until(text), 1, lambda block, _: one(block))

        text.when(text.less(share.first, share.end), some)

    def _share(self, text: Text, begun: str, part: str) -> _Share:
        """The blocks of a part; the last two of all, which may share rows, are one part's."""
        block = self.block
        last = -(-(block.all_rows - self.memory.begins_last) // block.rows)
        apart = max(1, last - bool(block.all_rows % block.rows))
        blocks, units = str(last), str(apart)
        if self.memory.rounds > 1:
            is_last = text.let(f"icmp eq i64 {begun}, {self.memory.begins_last}")
            usual = self.wide.rows // block.rows
            blocks, units = (text.let(f"select i1 {is_last}, i64 {count}, i64 {usual}") for count in (last, apart))
        first, end = (
            text.let(f"udiv i64 {text.let(f'mul i64 {at}, {units}')}, {self.parts}") for at in (part, text.add(part, 1))
        )
        return _Share(first, end, units, blocks)

    def _block(self, text: Text, stages: Stages, here: _Here, row: str, reach: str) -> None:
        """The stages of a block from a row on."""

        def place(operand: Pointer) -> str:
            if operand.row in here.places:
                return self.operands.at(text, here.places, operand, row)
            if operand.row in self.memory.between:
                return self.memory.between_at(text, here.matrix, operand, text.sub(row, here.begun))
            return text.at(here.worker, stages.values[operand.row] + operand.offset_bytes)

        packed = self.memory.packed
        for at, call in enumerate(stages.calls):
            scratch = text.at(here.matrix, packed[at]) if at in packed else text.at(here.worker, stages.scratch[at])
            stages.fill(text, at, scratch, place)
            stages.run(text, at, call.kernels[0], reach, here.part if at in packed else "0")

    def _sums(self, text: Text, stages: Stages) -> None:
        """A tile of results goes on by the terms of a round."""
        arguments, start = self._given(text, stages)
        counts = [call.kernels[-1].tiles for call in self.sums]
        index, matrix = digit(text, "%tile", sum(counts))
        begun = self.memory.begun(text, start)
        places, own = self.operands.of(text, arguments, matrix), self.memory.matrix(text, start, matrix)

        def place(operand: Pointer) -> str:
            if operand.row in places:
                return self.operands.at(text, places, operand, begun)
            return self.memory.between_at(text, own, operand, "0")

        def run(at: int, index: str) -> None:
            stages.fill(text, at, text.at(own, self.memory.chains[at]), place)
            *packing, summing = stages.calls[at].kernels
            for kernel in packing:  # of what has one tile
                stages.run(text, at, kernel, begun)
            tile(text, at, summing, index, "0", begun)

        _within(text, index, counts, run)

    def _following(self, text: Text, _: Stages) -> None:
        """So many more rows are done."""
        start = self.memory.start(text, len(self.operands.pointers))
        self.memory.begin(text, start, text.add(self.memory.begun(text, start), self.wide.rows))


class _Here(NamedTuple):
    """What a worker has for a part of a matrix: where its operands are, its memory and the worker's, what is done."""

    places: Mapping[int, str]
    matrix: str
    worker: str
    begun: str
    part: str


class _Share(NamedTuple):
    """Blocks from `first` below `end`; where that is the end of all `units`, below the end of all `blocks`."""

    first: str
    end: str
    units: str
    blocks: str

    def until(self, text: Text) -> str:
        """The end of the blocks."""
        is_end = text.let(f"icmp eq i64 {self.end}, {self.units}")
        return text.let(f"select i1 {is_end}, i64 {self.blocks}, i64 {self.end}")


def _within(text: Text, index: str, counts: Sequence[int], body: Callable[[int, str], None], at: int = 0) -> None:
    """The body of the count within which an index falls, and how far behind its beginning that is."""
    if at + 1 >= len(counts):
        return body(at, index) if counts else None
    text.when(
        text.less(index, counts[at]),
        lambda: body(at, index),
        lambda: _within(text, text.add(index, -counts[at]), counts, body, at + 1),
    )
    return None
