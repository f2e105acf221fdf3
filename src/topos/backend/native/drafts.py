"""A kernel in the making: the rows placed in it so far, and the shape that it walks."""

from __future__ import annotations

from math import prod

from topos.backend.native.views import View
from topos.graph.spec import Spec
from topos.records import NamedTuple
from topos.shape import Shape

MOST_ROWS = 128
"""Rows in one loop: longer chains are cut, so that equal stretches of them print equal kernels."""
WHOLE = -1
"""In place of an axis: all of them together, in row-major order."""
SMALL = 1 << 13
"""Elements that one thread sums by itself, so that their sum can be read in the same kernel."""
LONG = 8
"""Places of a row from which on what is done once per row takes no time."""


class Prologue(NamedTuple):
    """The rows of an operand, in order; the last is the operand, but for movement. `leaves` are what they read.

    Each leaf has the view that the product has of it: moved as the operand is.
    """

    rows: list[int]
    leaves: dict[int, View]


class Draft:
    """A kernel in the making; `why` says why its first row began it.

    `latest` is how far the spec had been read when its last row was placed.
    """

    __slots__ = ("axis", "is_loop", "is_product", "latest", "prologues", "row_shape", "rows", "shape", "why")

    def __init__(
        self, shape: Shape, is_loop: bool, why: str, axis: int | None = None, is_product: bool = False
    ) -> None:
        self.shape = shape
        self.is_loop = is_loop
        self.is_product = is_product
        self.why = why
        self.rows: list[int] = []
        self.latest = 0
        self.prologues: dict[int, Prologue] = {}
        self.axis: int | None = None
        self.row_shape: Shape | None = None
        if axis is not None:
            self.walk(axis)

    def operands(self, spec: Spec) -> list[int]:
        """What its rows and prologues read, each other's values among them."""
        found: list[int] = []
        for at, row in enumerate(self.rows):
            own = enumerate(spec.rows[row].operands)
            found += [operand for position, operand in own if at or position not in self.prologues]
            if at == 0:
                found += [operand for prologue in self.prologues.values() for operand in prologue.leaves]
        return found

    def walk(self, axis: int) -> None:
        """From now on the loop goes along an axis."""
        self.axis = axis
        self.row_shape = Shape() if axis == WHOLE else self.shape.without_axis(axis)

    def is_columns(self) -> bool:
        """Whether memory is walked along its lines by the lanes, and not by the loop."""
        return self.axis is not None and self.axis != WHOLE and prod(self.shape[self.axis + 1 :]) > 1

    def is_long(self) -> bool:
        """Whether one more number per row is little beside what is done at each place of the row."""
        return self.axis != WHOLE and self.axis is not None and self.shape[self.axis] >= LONG

    def has_room(self) -> bool:
        """Whether it is a loop that takes one more row of what it holds."""
        return self.is_loop and len(self.rows) < MOST_ROWS

    def has_rows(self) -> bool:
        """Whether what stands for each row is at hand while the rows are walked again."""
        return self.axis != WHOLE or self.shape.volume <= SMALL
