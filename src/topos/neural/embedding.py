"""Rows of a table by ids."""

from __future__ import annotations

from collections.abc import Iterable

from topos.element import Element
from topos.graph import Tape, Value
from topos.neural.module import Module
from topos.neural.options import extent
from topos.neural.rows import expect_width, flat, unflat
from topos.neural.sources import Init, Sources
from topos.shape import Shape


class Embedding(Module):
    """`table[ids]`: a selection `[count, vocab]` to rows `[count, width]`, or `[*shape, width]` where a shape is given.

    `table` is `[vocab, width]` and starts as `init` says. `score(x)` is the other way, `x @ table.transpose()`: logits
    by the same table (Press and Wolf 2017, "Using the output embedding"). Raises `ShapeError` where what is given is
    not a selection of `vocab`, or its count is not the volume of `shape`.
    """

    def __init__(
        self, tape: Tape, vocab: int, width: int, init: Init, *, element: Element | None = None, name: str | None = None
    ) -> None:
        sources = Sources(tape, "Embedding", name)
        self.path = sources.path
        extents = [extent(self.refusal, "vocab", vocab, 0), extent(self.refusal, "width", width, 0)]
        self.table = sources.parameter("table", extents, init, element)

    def express(self, ids: Value, shape: Iterable[int] | None = None) -> Value:
        tape = self.tape_of(ids)
        table = tape.resolve(self.table)
        vocab, width = table.shape
        if ids.element is not None or ids.shape[1] != vocab:
            raise self.refusal(f"wants a selection of {vocab} classes, got {ids}")
        rows = table.gather(ids).to(ids.tape.element)
        if shape is None:
            return rows
        if Shape(shape).volume != rows.shape[0]:
            raise self.refusal(f"wants {Shape(shape).volume} ids for {Shape(shape)}, got {rows.shape[0]}")
        return rows.reshape([*Shape(shape), width])

    def score(self, x: Value) -> Value:
        """How much each row of the last axis is like each row of the table: `[..., width]` to `[..., vocab]`."""
        table = self.resolve(self.table, like=x)
        expect_width(self.refusal, x, table.shape[1])
        return unflat(flat(x) @ table.transpose(), like=x)
