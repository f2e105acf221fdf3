"""How far the rows of a block reach: columns that a mask turns into zeros of a softmax need not be computed.

A softmax of scores that are `-inf` wherever the mask is zero is exactly `+0.0` there, or its whole row is NaN. Beyond
the last column that the mask leaves to any row of a block, no score changes a maximum or a sum, and no term of the last
product changes its sum, where the right operand is finite: that is looked at in each run.
"""

from __future__ import annotations

from collections.abc import Sequence

from topos.backend.native.cascade_block import Block
from topos.backend.native.contractions import product_task
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.products import reaches_terms
from topos.backend.native.products.text import Text
from topos.backend.native.target import Target
from topos.op import Div, MaxAlong, Select, Sub, SumAlong
from topos.op.maps import Exp
from topos.records import NamedTuple
from topos.reference.sums import LANES

_WORDS = {2: ("i16", 0x7F80), 4: ("i32", 0x7F800000), 8: ("i64", 0x7FF0000000000000)}
"""The word of a number of so many bytes, and its exponent."""


class Reach(NamedTuple):
    """The operand whose zeros mask the scores, and the one that has to be finite."""

    mask: int
    right: int


def reach_of(block: Block, group: Group, target: Target) -> Reach | None:
    """What the reach of a group's blocks depends on; `None` where they are computed to the end."""
    if len(group.stages) != 3 or group.stages[1].shape[-1] % LANES or group.stages[1].shape[-1] <= LANES:
        return None
    scores, rows, last = group.stages
    mask = _mask(block, scores)
    if mask is None or not _is_softmax(block, rows, scores.writes) or len(last.rows) != 1:
        return None
    left, right = block.spec.rows[last.rows[0]].operands
    stored = [row for row in group.writes if row in (*scores.rows, *rows.rows) and not block.is_across(row)]
    if not reaches_terms(product_task(block, last.rows[0]), target):
        return None
    if stored or block.views[left].row != rows.rows[-1] or not block.views[left].is_dense():
        return None
    read = [block.views[mask], block.views[right]]
    return Reach(mask, right) if all(view.strides[-1] == 1 for view in read) else None


def end_of(reach: Reach | None, is_first: bool) -> str:
    """What of a product ends where a block's reach does: the `columns` of the first stage, the `terms` of the last."""
    if reach is None:
        return ""
    return "columns" if is_first else "terms"


def _mask(block: Lowering, scores: Group) -> int | None:
    """What the scores of a product are selected by, if the others are `-inf` and nothing else is stored."""
    recorded = block.spec.rows[scores.rows[-1]]
    if not isinstance(recorded.opcode, Select) or scores.writes != [scores.rows[-1]]:
        return None
    mask, _, fill = recorded.operands
    is_filled = fill in block.constants and block.constants[fill].scalar() == float("-inf")
    return mask if is_filled and mask not in block.constants and block.views[mask].row not in scores.rows else None


def _is_softmax(block: Lowering, group: Group, scores: list[int]) -> bool:
    """Whether a group is the softmax of some scores along its axis and nothing else."""
    kinds = (MaxAlong, Sub, Exp, SumAlong, Div)
    recorded = [block.spec.rows[row] for row in group.rows]
    if len(recorded) != len(kinds):
        return False
    if not all(isinstance(row.opcode, kind) for row, kind in zip(recorded, kinds, strict=True)):
        return False
    largest, below, powers, total, _ = group.rows
    wanted = [scores, [*scores, largest], [below], [powers], [powers, total]]
    return all(
        [block.views[operand].row if operand in block.views else None for operand in row.operands] == bases
        for row, bases in zip(recorded, wanted, strict=True)
    )


class Looking:
    """The text that finds a reach."""

    def __init__(self, block: Block, reach: Reach, text: Text) -> None:
        self.block, self.reach, self.text = block, reach, text
        self.columns = block.spec.rows[reach.mask].shape[-1]

    def _word(self, row: int) -> tuple[str, int, int]:
        size = self.block.spec.element_of(self.block.views[row].row).dtype.itemsize
        return (*_WORDS[size], size)

    def finite(self, pointer: str) -> str:
        """Whether all numbers of the right operand are finite, `i1`."""
        text, row = self.text, self.reach.right
        word, exponent, size = self._word(row)
        rows, columns = self.block.spec.rows[row].shape
        width = 64 // size
        vector = f"<{width} x {word}>"
        step = self.block.views[row].strides[0] * size
        whole = columns // width

        def largest(number: str, value: str, kind: str) -> str:
            name = f"@llvm.umax.{f'v{width}' if kind != word else ''}{word}"
            text.need(f"declare {kind} {name}({kind}, {kind})")
            return text.let(f"call {kind} {name}({kind} {number}, {kind} {value})")

        def line(index: str, held: Sequence[str]) -> list[str]:
            start = text.at(pointer, text.mul(index, step))
            vectors, rest = held
            for at in range(whole):
                loaded = text.let(f"load {vector}, ptr {text.at(start, 64 * at)}, align {size}")
                masked = text.let(f"and {vector} {loaded}, splat ({word} {exponent})")
                vectors = largest(vectors, masked, vector)
            for at in range(whole * width, columns):
                loaded = text.let(f"load {word}, ptr {text.at(start, size * at)}, align {size}")
                rest = largest(rest, text.let(f"and {word} {loaded}, {exponent}"), word)
            return [vectors, rest]

        vectors, rest = text.loop("0", str(rows), 1, line, [(vector, "zeroinitializer"), (word, "0")])
        name = f"@llvm.vector.reduce.umax.v{width}{word}"
        text.need(f"declare {word} {name}({vector})")
        found = largest(text.let(f"call {word} {name}({vector} {vectors})"), rest, word)
        return text.let(f"icmp ne {word} {found}, {exponent}")

    def columns_of(self, mask: str, finite: str) -> str:
        """How many columns the rows of a block reach, whole registers of them, from where its mask begins."""
        text, row = self.text, self.reach.mask
        word, _, size = self._word(row)
        rows, step = self.block.spec.rows[row].shape[0], self.block.views[row].strides[0] * size
        rows = rows if step else 1
        vector = f"<{LANES} x {word}>"

        def chunk(start: str, held: Sequence[str]) -> list[str]:
            first = text.at(mask, text.mul(start, size))

            def line(index: str, found: Sequence[str]) -> list[str]:
                place = text.at(first, text.mul(index, step))
                loaded = text.let(f"load {vector}, ptr {place}, align {size}")
                return [text.let(f"or {vector} {found[0]}, {loaded}")]

            (found,) = text.loop("0", str(rows), 1, line, [(vector, "zeroinitializer")])
            # The sign goes: both zeros are none, everything else is one.
            shifted = text.let(f"shl {vector} {found}, splat ({word} 1)")
            name = f"@llvm.vector.reduce.or.v{LANES}{word}"
            text.need(f"declare {word} {name}({vector})")
            every = text.let(f"call {word} {name}({vector} {shifted})")
            any_ = text.let(f"icmp ne {word} {every}, 0")
            return [text.let(f"select i1 {any_}, i64 {text.add(start, LANES)}, i64 {held[0]}")]

        (reached,) = text.loop(str(LANES), str(self.columns), LANES, chunk, [("i64", str(LANES))])
        return text.let(f"select i1 {finite}, i64 {reached}, i64 {self.columns}")
