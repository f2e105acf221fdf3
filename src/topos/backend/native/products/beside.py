"""Few results of many products: some products beside one another, a lane or a chain for each."""

from __future__ import annotations

from collections.abc import Sequence

from topos.backend.native.products.frame import Work, frame
from topos.backend.native.products.fused import fused
from topos.backend.native.products.kind import Kind
from topos.backend.native.products.lanes import Lanes, Results, prefetch
from topos.backend.native.products.text import Text
from topos.backend.native.target import Target
from topos.reference.products import BLOCK
from topos.tensor.memory import LINE


def side(kind: Kind, chains: int) -> int:
    """How many products run beside one another, where so many chains are enough."""
    task, results = kind.choice.task, kind.choice.task.rows * kind.choice.task.columns
    if len(task.batch) != 1 or kind.epilogue is not None or results > chains // 2:
        return 1
    return min(kind.lanes.width if _in_lanes(kind) else chains // results, task.batches)


def _in_lanes(kind: Kind) -> bool:
    """Whether both operands are transposed in registers: where few results make up for that."""
    task = kind.choice.task
    consecutive = task.left[1] == task.right[0] == 1
    enough = task.terms >= kind.lanes.width and 2 * task.batches >= kind.lanes.width
    return consecutive and enough and task.rows * task.columns <= 2 and kind.lanes.has_fma


def beside(kind: Kind, target: Target, count: int) -> str:
    """The text for `count` products at a time; the last ones of a tile may be computed more than once."""
    return frame(kind, None, lambda text, work: _Beside(kind, text, work, target, count).run(), count)


class _Beside:
    def __init__(self, kind: Kind, text: Text, work: Work, target: Target, count: int) -> None:
        self.kind, self.text, self.work = kind, text, work
        self.lanes, self.task = kind.lanes, kind.choice.task
        self.one = Lanes(self.task.element, target, 1)
        self.places = [(row, column) for row in range(self.task.rows) for column in range(self.task.columns)]
        (axis,), sizes = self.task.batch, (kind.left.item_bytes, kind.right.item_bytes, kind.lanes.item_bytes)
        steps = [stride * size for stride, size in zip(axis[1:], sizes, strict=True)]
        bases = (work.left, work.right, work.out)
        numbers = ["0", *(text.least(str(product), work.others) for product in range(1, count))]
        self.lefts, self.rights, self.outs = (
            [text.at(base, text.mul(number, step)) for number in numbers]
            for base, step in zip(bases, steps, strict=True)
        )

    def run(self) -> None:
        """Every block of terms, then the store."""
        text, chains = self.text, self.in_lanes if _in_lanes(self.kind) else self.in_turn
        whole, rest = divmod(self.task.terms, BLOCK)
        is_vector = _in_lanes(self.kind)
        kind = self.lanes.vector if is_vector else self.lanes.scalar
        count = len(self.places) * (1 if is_vector else len(self.outs))
        totals = ["zeroinitializer" if is_vector else "0.0"] * count

        def add(start: str, terms: int, values: Sequence[str]) -> list[str]:
            sums = chains(start, terms)
            return [text.let(f"fadd {kind} {one}, {two}") for one, two in zip(values, sums, strict=True)]

        if whole:
            carried = [(kind, total) for total in totals]
            totals = text.loop("0", whole, 1, lambda block, values: add(text.mul(block, BLOCK), BLOCK, values), carried)
        if rest:
            totals = add(str(whole * BLOCK), rest, totals)
        self.store(totals, is_vector)

    def in_lanes(self, start: str, terms: int) -> list[str]:
        """A vector for each result, a lane for each product."""
        text, lanes = self.text, self.lanes

        def step(term: str, values: Sequence[str], is_square: bool) -> list[str]:
            ones, twos = self.operands(text.add(start, term), is_square)
            after = []
            for (row, column), value in zip(self.places, values, strict=True):
                for one, two in zip(ones[row], twos[column], strict=True):
                    value = lanes.fma(text, one, two, value)
                after.append(value)
            return after

        sums = ["zeroinitializer"] * len(self.places)
        whole = terms - terms % lanes.width
        if whole:
            carried = [(lanes.vector, value) for value in sums]
            sums = text.loop("0", whole, lanes.width, lambda term, values: step(term, values, True), carried)
        if whole < terms:
            carried = [(lanes.vector, value) for value in sums]
            sums = text.loop(whole, terms, 1, lambda term, values: step(term, values, False), carried)
        return sums

    def operands(self, term: str, is_square: bool) -> tuple[list[list[str]], list[list[str]]]:
        """Of every row and of every column, one term or as many as lanes from a term on: each in a vector."""
        task, (axis,) = self.task, self.task.batch
        left = self.kind.left, self.lefts, axis.left
        right = self.kind.right, self.rights, axis.right
        return (
            [self.vectors(*left, row * task.left[0], term, is_square) for row in range(task.rows)],
            [self.vectors(*right, column * task.right[1], term, is_square) for column in range(task.columns)],
        )

    def vectors(self, stored: Lanes, bases: list[str], step: int, line: int, term: str, is_square: bool) -> list[str]:
        """Of one line of every product; `step` numbers lie from one product to the next."""
        text, size = self.text, stored.item_bytes
        offset = text.mul(term, size)
        places = [text.at(text.at(base, line * size), offset) for base in bases]
        if not is_square:
            return [stored.beside(text, places)]
        if self.kind.choice.is_far:  # as much as is read here of the products that come next, from end to end
            ahead = text.at(text.at(bases[0], len(places) * step * size), text.mul(term, len(places) * size))
            for start in range(0, len(places) * self.lanes.width * size, LINE):
                prefetch(text, text.at(ahead, start), write=False, locality=2)
        return stored.turned(text, places, stored.width)

    def in_turn(self, start: str, terms: int) -> list[str]:
        """A number for each product and result."""
        text, task, lanes = self.text, self.task, self.lanes

        def numbers(stored: Lanes, base: str, term: str, along: int, down: int, count: int) -> list[str]:
            here = text.at(base, text.mul(text.add(start, term), along * stored.item_bytes))
            return [stored.number(text, text.at(here, at * down * stored.item_bytes)) for at in range(count)]

        def step(term: str, values: Sequence[str]) -> list[str]:
            after: list[str] = []
            for left, right in zip(self.lefts, self.rights, strict=True):
                ones = numbers(self.kind.left, left, term, task.left[1], task.left[0], task.rows)
                twos = numbers(self.kind.right, right, term, task.right[0], task.right[1], task.columns)
                for row, column in self.places:
                    value = values[len(after)]
                    after.append(fused(text, lanes.scalar, 0, ones[row], twos[column], value, lanes.has_fma))
            return after

        carried = [(lanes.scalar, "0.0")] * (len(self.outs) * len(self.places))
        return text.loop("0", terms, 1, step, carried)

    def store(self, totals: Sequence[str], is_vector: bool) -> None:
        """The results of each product to their places."""
        text, task, scalar = self.text, self.task, self.lanes.scalar
        for product, out in enumerate(self.outs):
            for place, (row, column) in enumerate(self.places):
                if is_vector:
                    total = text.let(f"extractelement {self.lanes.vector} {totals[place]}, i32 {product}")
                else:
                    total = totals[product * len(self.places) + place]
                value = text.let(f"insertelement {self.one.vector} poison, {scalar} {total}, i32 0")
                offset = (row * task.out[0] + column * task.out[1]) * self.one.item_bytes
                results = Results(value, self.work.product, str(row), str(column), 1)
                self.kind.finish(text, results, text.at(out, offset), self.one)
