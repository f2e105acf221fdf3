"""Few results: a chain for each of some results and some blocks of terms, side by side, number by number."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from topos.backend.native.products.beside import beside, side
from topos.backend.native.products.frame import Work, frame
from topos.backend.native.products.fused import fused
from topos.backend.native.products.kind import Kind
from topos.backend.native.products.lanes import Lanes, Results
from topos.backend.native.products.text import Text
from topos.backend.native.target import Target
from topos.reference.products import BLOCK

CHAINS = 16
"""What hides the latency of a multiply-add: two a cycle, four cycles each, and some slack; they fit the registers."""


def dots(kind: Kind, target: Target) -> str:
    """The text: results in groups of at most 16, and where these are fewer, blocks beside one another as well."""
    count = side(kind, CHAINS)
    if count > 1:
        return beside(kind, target, count)
    return frame(kind, None, lambda text, work: _Dots(kind, text, work, target).run())


class _Dots:
    def __init__(self, kind: Kind, text: Text, work: Work, target: Target) -> None:
        self.kind, self.text, self.work = kind, text, work
        self.lanes, self.task = kind.lanes, kind.choice.task
        self.one = Lanes(self.task.element, target, 1)

    def run(self) -> None:
        """Every group of results."""
        places = iter([(row, column) for row in range(self.task.rows) for column in range(self.task.columns)])
        while group := list(islice(places, CHAINS)):
            self.group(group)

    def group(self, places: list[tuple[int, int]]) -> None:
        """The results at some (row, column): whole blocks some at a time, the blocks left over, the tail, the store."""
        text, scalar = self.text, self.lanes.scalar
        whole, rest = divmod(self.task.terms, BLOCK)
        if self.is_long(len(places), whole):
            return self.store(places, [self.long(place) for place in places])
        side = max(1, min(CHAINS // len(places), whole))
        totals = ["0.0"] * len(places)

        def some(index: str, values: Sequence[str]) -> list[str]:
            return self.blocks(places, values, text.mul(index, BLOCK), side, BLOCK)

        if whole >= side:
            totals = text.loop("0", str(whole - side + 1), side, some, [(scalar, total) for total in totals])
        if whole % side:
            totals = self.blocks(places, totals, str(whole // side * side * BLOCK), whole % side, BLOCK)
        if rest:
            totals = self.blocks(places, totals, str(whole * BLOCK), 1, rest)
        return self.store(places, totals)

    def store(self, places: list[tuple[int, int]], totals: Sequence[str]) -> None:
        """Finished results to their places."""
        text, scalar = self.text, self.lanes.scalar
        for (row, column), total in zip(places, totals, strict=True):
            value = text.let(f"insertelement {self.one.vector} poison, {scalar} {total}, i32 0")
            offset = row * self.task.out[0] + column * self.task.out[1]
            results = Results(value, self.work.product, str(row), str(column), 1)
            self.kind.finish(text, results, text.at(self.work.out, offset * self.one.item_bytes), self.one)

    def blocks(
        self, places: list[tuple[int, int]], totals: Sequence[str], start: str, side: int, terms: int
    ) -> list[str]:
        """`side` blocks of `terms` terms from term `start` on, added to the totals in order."""
        text, task, lanes = self.text, self.task, self.lanes
        ones, twos = self.kind.left, self.kind.right
        left = text.at(self.work.left, text.mul(start, task.left[1] * ones.item_bytes))
        right = text.at(self.work.right, text.mul(start, task.right[0] * twos.item_bytes))
        chains = [(block, row, column) for block in range(side) for row, column in places]

        def step(term: str, values: Sequence[str]) -> list[str]:
            here = text.at(left, text.mul(term, task.left[1] * ones.item_bytes))
            there = text.at(right, text.mul(term, task.right[0] * twos.item_bytes))
            read: dict[tuple[str, int], str] = {}

            def number(stored: Lanes, base: str, offset: int) -> str:
                if (base, offset) not in read:
                    read[base, offset] = stored.number(text, text.at(base, offset * stored.item_bytes))
                return read[base, offset]

            after = []
            for (block, row, column), value in zip(chains, values, strict=True):
                one = number(ones, here, block * BLOCK * task.left[1] + row * task.left[0])
                two = number(twos, there, block * BLOCK * task.right[0] + column * task.right[1])
                after.append(fused(text, lanes.scalar, 0, one, two, value, lanes.has_fma))
            return after

        sums = text.loop("0", str(terms), 1, step, [(lanes.scalar, "0.0")] * len(chains))
        values = list(totals)
        for (_, row, column), value in zip(chains, sums, strict=True):
            place = places.index((row, column))
            values[place] = text.let(f"fadd {lanes.scalar} {values[place]}, {value}")
        return values

    # one long chain of blocks: a lane for each block
    def is_long(self, results: int, whole: int) -> bool:
        """Whether some vectors of blocks pay for transposing both operands."""
        consecutive = self.task.left[1] == self.task.right[0] == 1
        return consecutive and results <= 2 and 2 * whole >= self.lanes.width and self.lanes.has_fma

    def long(self, place: tuple[int, int]) -> str:
        """One result: as many blocks as lanes at a time, the blocks left over in some lanes, the tail."""
        text, lanes = self.text, self.lanes
        whole, rest = divmod(self.task.terms, BLOCK)
        end = whole - whole % lanes.width
        total = "0.0"
        if end:

            def some(block: str, values: Sequence[str]) -> list[str]:
                return [self.beside(place, values[0], text.mul(block, BLOCK), lanes.width)]

            (total,) = text.loop("0", str(end), lanes.width, some, [(lanes.scalar, total)])
        if end < whole:
            total = self.beside(place, total, str(end * BLOCK), whole - end)
        if rest:
            (total,) = self.blocks([place], [total], str(whole * BLOCK), 1, rest)
        return total

    def beside(self, place: tuple[int, int], total: str, start: str, count: int) -> str:
        """`count` blocks from term `start` on, one in each lane, added to the total in order."""
        text, lanes = self.text, self.lanes
        lefts, rights = self.kind.left, self.kind.right
        left = text.at(self.work.left, place[0] * self.task.left[0] * lefts.item_bytes)
        left = text.at(left, text.mul(start, lefts.item_bytes))
        right = text.at(self.work.right, place[1] * self.task.right[1] * rights.item_bytes)
        right = text.at(right, text.mul(start, rights.item_bytes))

        def step(term: str, values: Sequence[str]) -> list[str]:
            (chain,) = values
            ones = lefts.transposed(text, text.at(left, text.mul(term, lefts.item_bytes)), BLOCK, count)
            twos = rights.transposed(text, text.at(right, text.mul(term, rights.item_bytes)), BLOCK, count)
            for one, two in zip(ones, twos, strict=True):
                chain = lanes.fma(text, one, two, chain)
            return [chain]

        (sums,) = text.loop("0", str(BLOCK), lanes.width, step, [(lanes.vector, "zeroinitializer")])
        for lane in range(count):
            block = text.let(f"extractelement {lanes.vector} {sums}, i32 {lane}")
            total = text.let(f"fadd {lanes.scalar} {total}, {block}")
        return total
