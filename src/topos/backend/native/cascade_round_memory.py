"""The scratch of a cascade whose threads share its rows, round by round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from topos.backend.native.cascade_block import Block
from topos.backend.native.products.frame import argument
from topos.backend.native.products.regions import base
from topos.backend.native.products.text import Text
from topos.backend.native.program import Pointer
from topos.tensor.memory import LINE, whole_lines


class RoundMemory:
    """How many rows are done, then for each matrix what its threads share, then what each worker has for itself.

    They share the packed operands of stages, of so many bytes each by `packed_bytes`; the rows `between`, which
    products sum over; and the chains of those products, of `chains_bytes`. A worker has `worker_bytes`. `wide` is a
    round of a matrix as one block.
    """

    def __init__(
        self,
        block: Block,
        wide: Block,
        packed_bytes: Mapping[int, int],
        between: Iterable[int],
        chains_bytes: Sequence[int],
        worker_bytes: int,
    ) -> None:
        self.rounds = -(-block.all_rows // wide.rows)
        self.begins_last = (self.rounds - 1) * wide.rows
        self.worker_bytes = worker_bytes
        self.packed: dict[int, int] = {}
        self.between: dict[int, tuple[int, int]] = {}
        self.chains: list[int] = []
        # The last block of all is moved back onto rows that may be those of the round before.
        ahead = max(0, self.begins_last - (block.all_rows - block.rows))
        size = 0
        for at, needed in packed_bytes.items():
            self.packed[at], size = size, size + whole_lines(needed)
        for row in between:
            row_bytes = block.bytes_of(row) // block.rows
            self.between[row] = size + ahead * row_bytes, row_bytes
            size += whole_lines((ahead + wide.rows) * row_bytes)
        for needed in chains_bytes:
            self.chains.append(size)
            size += whole_lines(needed)
        self.matrix_bytes = size

    def bytes(self, matrices: int, workers: int) -> int:
        """The size for so many matrices, and so many workers at a time."""
        return 2 * LINE + matrices * self.matrix_bytes + workers * self.worker_bytes

    # text
    def start(self, text: Text, place: int) -> str:
        """Where it begins: it stands at that place among the arguments."""
        return base(text, argument(text, place))

    def begun(self, text: Text, start: str) -> str:
        """How many rows are done."""
        return text.let(f"load i64, ptr {start}, align 8") if self.rounds > 1 else "0"

    def begin(self, text: Text, start: str, rows: str) -> None:
        """From now on so many rows are done."""
        text.do(f"store i64 {rows}, ptr {start}, align 8")

    def matrix(self, text: Text, start: str, matrix: str) -> str:
        """Where the part of a matrix begins."""
        return text.at(text.at(start, LINE), text.mul(matrix, self.matrix_bytes))

    def worker(self, text: Text, start: str, matrices: int) -> str:
        """Where the part of the worker begins, behind those of all matrices."""
        return text.at(text.at(start, LINE + matrices * self.matrix_bytes), text.mul("%worker", self.worker_bytes))

    def between_at(self, text: Text, matrix: str, operand: Pointer, row: str) -> str:
        """Where a value that products sum over is, from a row of the round on, in the part of a matrix."""
        start, row_bytes = self.between[operand.row]
        return text.at(text.at(matrix, start + operand.offset_bytes), text.mul(row, row_bytes))
