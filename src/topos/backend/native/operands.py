"""What a product reads: numbers where they lie, widened as they are read, or rows worked out as they are packed."""

from __future__ import annotations

from collections.abc import Sequence

from topos.backend.native.drafts import Prologue
from topos.backend.native.evaluator import Evaluator
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.nest import Frame
from topos.backend.native.products import Computed, Definition, Line
from topos.backend.native.products.computed import ROOM_LINE
from topos.backend.native.program import Pointer
from topos.backend.native.reads import Place
from topos.backend.native.registers import INT64, POINTER, Integer, Operand
from topos.backend.native.target import Target
from topos.backend.native.text import Function
from topos.backend.native.vocabulary import Lanes


class WorkedOut:
    """An operand of a product that is rows over leaves in memory. `before` are the arguments ahead of its leaves."""

    def __init__(self, lowering: Lowering, group: Group, position: int, target: Target, before: list[Pointer]) -> None:
        self._lowering, self._target = lowering, target
        self._prologue: Prologue = group.prologues[position]
        product = lowering.spec.rows[group.rows[0]]
        self._shape = lowering.spec.rows[product.operands[position]].shape
        self._element = lowering.spec.element_of(group.rows[0])
        self._before = before
        self._is_along_rows = self._along_rows()

    def strides(self) -> tuple[int, int]:
        """Those of its rows and columns in the room where it is worked out."""
        return (1, ROOM_LINE) if self._is_along_rows else (ROOM_LINE, 1)

    def pointers(self) -> list[Pointer]:
        """Its leaves, as arguments."""
        return self._frame(1, "ptr %arguments").pointers[len(self._before) :]

    def value(self) -> Computed:
        """What products are told of it."""
        return Computed(self._define)

    def _along_rows(self) -> bool:
        """Whether more numbers lie next to one another down its rows than along its columns."""
        views = self._prologue.leaves.values()
        down, along = (sum(view.strides[axis] == 1 for view in views) for axis in (-2, -1))
        return down > along

    def _frame(self, lanes: int, parameters: str) -> Frame:
        frame = Frame(self._lowering, self._target, lanes, Function(parameters))
        frame.pointers += self._before
        for row, view in self._prologue.leaves.items():
            frame.read(row, view)
        return frame

    def _define(self, line: Line) -> Definition:
        """Whole vectors, then the last one, of which the numbers that exist are read."""
        frame = self._frame(line.lanes, line.parameters)
        function, lanes = frame.function, line.lanes
        row, column, count = (Operand(INT64, name) for name in ("%row", "%column", "%count"))
        across, first = (column, row) if self._is_along_rows else (row, column)
        if self._is_along_rows:
            for map in [map for read in frame.reads.values() for map in read.maps]:
                map[-2:] = map[:-3:-1]
        outer = (*batch_indices(function, self._shape[:-2]), across)
        whole = function.let(INT64, f"and i64 {count.text}, {-lanes}")

        def vector(index: Integer, existing: Integer | None) -> None:
            self._store(frame, Place(outer, function.add(first, index), existing), index)

        function.loop(Operand(INT64, "0"), whole, lanes, lambda index: vector(index, None))
        rest = function.let(INT64, f"sub i64 {count.text}, {whole.text}")
        function.when(function.below(0, rest), lambda: vector(whole, rest))
        return Definition(function.text(line.name), tuple(function.helpers))

    def _store(self, frame: Frame, place: Place, index: Integer) -> None:
        """The operand's numbers at a place, as accumulators of the product."""
        rows = self._prologue.rows
        evaluator = Evaluator(frame, Group(self._shape, rows, [], []))
        held: dict[int, Lanes] = {}
        evaluator.evaluate(rows, held, evaluator.values(place, held))
        own, wanted = frame.arithmetic(frame.element(rows[-1])), frame.arithmetic(self._element)
        value = held[rows[-1]] if own is wanted else wanted.cast(held[rows[-1]], own)
        goal = frame.function.offset(Operand(POINTER, "%to"), value.type.of_one(), index)
        frame.function.store(value, goal, value.type.of_one().bytes)


def batch_indices(function: Function, leading: Sequence[int]) -> list[Integer]:
    """The indices of leading axes, out of `%batch`, the number of a product among them."""
    indices: list[Integer] = []
    rest = Operand(INT64, "%batch")
    for extent in reversed(leading):
        indices.insert(0, function.let(INT64, f"urem {rest}, {extent}"))
        rest = function.let(INT64, f"udiv {rest}, {extent}")
    return indices
