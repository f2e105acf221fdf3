"""Rows picked by the ids of a selection, and added back by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topos.errors import ShapeError
from topos.op.opcode import Cotangents, Opcode
from topos.shape import Shape


class Indexing(Opcode):
    """The second operand is a selection source, `[count, vocab]`, of which only the ids are used."""

    __slots__ = ()


class Gather(Indexing):
    """Row `ids[i]` of the table at row `i`, copied; a zero row where the selection selects nothing."""

    __slots__ = ()
    roles = ("table", "selection")
    reads = (1,)

    def result_shape(self, shapes: Sequence[Shape]) -> Shape:
        """`[count, ...]` of a table `[vocab, ...]` and a selection `[count, vocab]`."""
        table, selection = shapes
        if table.rank < 1 or selection.rank != 2 or table[0] != selection[1]:
            raise ShapeError(
                f"gather: wants a table [vocab, ...] and a selection [count, vocab], got {table} and {selection}"
            )
        return Shape((selection[0], *table[1:]))

    def derivative(self, seed: Any, output: Any, table: Any, selection: Any) -> Cotangents:
        return seed.scatter(selection), None


class Scatter(Indexing):
    """Rows added onto row `ids[i]` of a zero table, in the selection's order: the adjoint of `Gather`."""

    __slots__ = ()
    roles = ("rows", "selection")
    reads = (1,)

    def result_shape(self, shapes: Sequence[Shape]) -> Shape:
        """`[vocab, ...]` of rows `[count, ...]` and a selection `[count, vocab]`."""
        rows, selection = shapes
        if rows.rank < 1 or selection.rank != 2 or rows[0] != selection[0]:
            raise ShapeError(
                f"scatter: wants rows [count, ...] and a selection [count, vocab], got {rows} and {selection}"
            )
        return Shape((selection[1], *rows[1:]))

    def derivative(self, seed: Any, output: Any, rows: Any, selection: Any) -> Cotangents:
        return seed.gather(selection), None


GATHER, SCATTER = Gather(), Scatter()
