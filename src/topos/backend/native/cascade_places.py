"""Where the operands of stages lie in the memory of the plan, matrix by matrix and row by row."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from topos.backend.native.cascade_block import Block, Source
from topos.backend.native.products.frame import digit
from topos.backend.native.products.text import Text
from topos.backend.native.program import Call, Pointer


class Places:
    """The operands that are not between stages, and the pointers by which a kernel is given them."""

    def __init__(self, block: Block, calls: Iterable[Call], between: Container[int], further: Iterable[int]) -> None:
        rows = dict.fromkeys([*(at.row for call in calls for at in call.operands), *further])
        self.leading = block.leading
        self.sources: dict[int, Source] = {row: block.source(row) for row in rows if row not in between}
        self.pointers = list(dict.fromkeys(source.pointer for source in self.sources.values()))

    def of(self, text: Text, arguments: Sequence[str], matrix: str) -> dict[int, str]:
        """Where each operand's part of a matrix begins."""
        rest = matrix
        places = {row: arguments[self.pointers.index(source.pointer)] for row, source in self.sources.items()}
        for axis in reversed(range(len(self.leading))):
            index, rest = digit(text, rest, self.leading[axis]) if axis else (rest, "0")
            for row, source in self.sources.items():
                places[row] = text.at(places[row], text.mul(index, source.leading[axis]))
        return places

    def at(self, text: Text, places: Mapping[int, str], operand: Pointer, row: str) -> str:
        """Where an operand is read or written by a block that begins with a row."""
        down = text.mul(row, self.sources[operand.row].down)
        return text.at(text.at(places[operand.row], down), operand.offset_bytes)
