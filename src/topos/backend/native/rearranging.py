"""Rows beside the spec's, which compute what a row is in another order of its places."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from topos.backend.native.arrangement import Arrangement, arrangement
from topos.backend.native.placement import Placement
from topos.backend.native.views import View, dense, dense_strides, moved
from topos.element.built_in import BUILT_IN
from topos.engine.liveness import volume
from topos.graph.spec import Row, Spec
from topos.op import LEAF, Cast, Elementwise, Fold, LogSoftmax, Movement, Opcode, Pad
from topos.op.elementwise import ADD
from topos.op.movement import Narrow, Reshape
from topos.op.reduction import AlongAxis
from topos.records import NamedTuple
from topos.shape import Shape
from topos.tensor import Tensor


class _Option(NamedTuple):
    """A way to compute a row: over a buffer of a shape, its operands read so."""

    cost: int
    buffer: Shape
    found: Arrangement | None
    views: list[View | None]


def settled_rows(spec: Spec, scheduled: Sequence[int], kept: Collection[int]) -> set[int]:
    """What is kept, and the elementwise rows of its shape that only lead there: they stay as they were recorded."""
    settled = set(kept)
    read: set[int] = set()
    free: set[int] = set()
    for row in reversed(scheduled):
        recorded = spec.rows[row]
        if row in read and row not in free and isinstance(recorded.opcode, Elementwise | Cast):
            settled.add(row)
        read.update(recorded.operands)
        leads = row in settled and isinstance(recorded.opcode, Elementwise | Cast)
        free.update(o for o in recorded.operands if not leads or spec.rows[o].shape != recorded.shape)
    return settled


def cut_rows(spec: Spec, scheduled: Sequence[int]) -> set[int]:
    """The folds of which only some places are read, and the folds that those add up."""
    found: set[int] = set()
    for row in reversed(scheduled):
        opcode = spec.rows[row].opcode
        if isinstance(opcode, Narrow) or (row in found and (isinstance(opcode, Fold) or opcode == ADD)):
            found.update(spec.rows[row].operands)
    return found


class Rearranging:
    """Chooses for each row that is not settled; `spec` is added to, `views` and `constants` with it."""

    def __init__(
        self,
        spec: Spec,
        views: dict[int, View],
        constants: dict[int, Tensor],
        placement: Placement,
        settled: Collection[int],
        cut: Collection[int],
    ) -> None:
        self._spec, self._views, self._constants, self._placement = spec, views, constants, placement
        self._settled, self._cut = settled, cut

    def instead(self, row: int) -> int:
        """The row that computes a row: itself, or one beside the spec's."""
        opcode = self._spec.rows[row].opcode
        if row in self._settled:
            return row
        if isinstance(opcode, Elementwise | Cast):
            return self._elementwise(row)
        if isinstance(opcode, AlongAxis):
            return self._reduction(row, opcode)
        return self._pad(row, opcode) if isinstance(opcode, Pad) else row

    def _elementwise(self, row: int) -> int:
        """An elementwise row over the buffer of an operand."""
        recorded = self._spec.rows[row]
        if any(self._is_one_hot(operand) for operand in recorded.operands):
            return row
        options = [self._option(row, recorded.shape, None), *self._options(row)]
        best = min((option for option in options if option is not None), key=lambda option: option.cost)
        if best.found is None:
            return row
        operands = [
            operand if view is None else self.moved(operand, best.found.back(best.buffer))
            for operand, view in zip(recorded.operands, best.views, strict=True)
        ]
        return self._instead(row, recorded.opcode, operands, best.buffer, best.found)

    def _reduction(self, row: int, opcode: AlongAxis) -> int:
        """A reduction along that axis of memory."""
        (operand,) = self._spec.rows[row].operands
        place = self._place(operand, opcode.axis)
        if place is None:
            return row
        found, gone, buffer, axis = place
        moved = self.moved(operand, found.back(buffer))
        if isinstance(opcode, LogSoftmax):
            return self._instead(row, LogSoftmax(axis), [moved], buffer, found)
        return self._instead(
            row, type(opcode)(axis), [moved], buffer.without_axis(axis), found.without(opcode.axis, gone)
        )

    def _pad(self, row: int, opcode: Pad) -> int:
        """A pad along that axis of memory."""
        (operand,) = self._spec.rows[row].operands
        place = self._place(operand, opcode.axis)
        if place is None:
            return row
        found, part, buffer, axis = place
        full = opcode.full_extent
        pad = Pad(axis, opcode.start, full, opcode.fill)
        moved = self.moved(operand, found.back(buffer))
        shape = Shape((*buffer[:axis], full, *buffer[axis + 1 :]))
        return self._instead(row, pad, [moved], shape, found.extended(opcode.axis, part, full))

    def _place(self, operand: int, axis: int) -> tuple[Arrangement, int, Shape, int] | None:
        """How an operand is arranged, which part one of its axes is, a buffer where that is an axis, and which."""
        found = None if operand in self._constants or self._is_one_hot(operand) else self._arrangement(operand)
        part = None if found is None else found.part(axis)
        if found is None or part is None:
            return None
        base = self._spec.rows[self._views[operand].row].shape
        wanted = dense_strides(found.parts)[part], found.parts[part]
        for at, place in enumerate(zip(dense_strides(base), base, strict=True)):
            if place == wanted:
                return found, part, base, at
        return found, part, Shape(found.parts), part

    def apart(self, row: int) -> list[int] | None:
        """Rows, each of the one before, for a fold whose windows neither meet nor leave gaps: it only adds `+0.0`.

        They are the operand reshaped, a zero, and their sum. One that is cut afterwards had better be a fold, which
        works out the places that are left.
        """
        opcode, shape = self._spec.rows[row].opcode, self._spec.rows[row].shape
        if not isinstance(opcode, Fold) or row in self._settled or row in self._cut:
            return None
        if self._spec.element_of(row) not in BUILT_IN:
            return None
        (operand,) = self._spec.rows[row].operands
        windows = self._spec.rows[operand].shape[opcode.axis]
        meets = opcode.dilation != 1 or opcode.step != opcode.size or opcode.extent != windows * opcode.size
        if meets or operand in self._constants or self._is_one_hot(operand):
            return None
        reshape = Reshape(shape)
        if self._views[operand].guards or self.seen(self._views[operand], [reshape]) is None:
            return None
        reshaped = self.added(row, reshape, [operand], shape)
        zero = self.added(row, LEAF, [], shape)
        self._spec.payloads[zero] = Tensor.filled(shape, 0.0, self._spec.element_of(row))
        return [reshaped, zero, self.added(row, ADD, [zero, reshaped], shape)]

    # ways to compute a row
    def _options(self, row: int) -> Iterator[_Option | None]:
        seen = set()
        for operand in self._spec.rows[row].operands:
            found = None if operand in self._constants else self._arrangement(operand)
            if found is None:
                continue
            for buffer in (self._spec.rows[self._views[operand].row].shape, Shape(found.parts)):
                if (buffer, found) not in seen:
                    seen.add((buffer, found))
                    yield self._option(row, buffer, found)

    def _option(self, row: int, buffer: Shape, found: Arrangement | None) -> _Option | None:
        cost = 0
        views: list[View | None] = []
        for operand in self._spec.rows[row].operands:
            view = None if operand in self._constants else self._views[operand]
            if view is not None and found is not None:
                view = None if view.guards else self.seen(view, found.back(buffer))
                if view is None:
                    return None
            views.append(view)
            cost += 0 if view is None else self._cost(view, buffer)
        return _Option(cost, buffer, found, views)

    def _cost(self, view: View, buffer: Shape) -> int:
        """What reading an operand takes: little in registers, much where neighbours lie apart."""
        home = self._placement.home.get(view.row)
        if home is not None and view.is_dense() and self._spec.rows[view.row].shape == buffer:
            draft = self._placement.drafts[home]
            if draft.is_loop or draft.is_product:
                return 0
        lane = next((step for extent, step in zip(view.shape[::-1], view.strides[::-1], strict=True) if extent > 1), 1)
        return 1 if lane in (0, 1) else 3

    def _arrangement(self, operand: int) -> Arrangement | None:
        view = self._views[operand]
        if view.row not in self._placement.home:
            return None
        return arrangement(view, self._spec.rows[view.row].shape)

    def _is_one_hot(self, operand: int) -> bool:
        view = self._views.get(operand)
        return view is not None and self._spec.is_selection(view.row)

    # rows beside the spec's
    def seen(self, view: View, movements: Sequence[Movement]) -> View | None:
        """A view after movements, or `None` where they are no addresses."""
        found: View | None = view
        for movement in movements:
            found = None if found is None else moved(found, movement, volume(self._spec, view.row))
        return found

    def moved(self, operand: int, movements: Sequence[Movement]) -> int:
        """An operand after movements that are all addresses."""
        for movement in movements:
            view = self.seen(self._views[operand], [movement])
            assert view is not None
            operand = self.added(operand, movement, [operand], view.shape)
            self._views[operand] = view
        return operand

    def _instead(self, row: int, opcode: Opcode, operands: Sequence[int], shape: Shape, found: Arrangement) -> int:
        """A row that computes another one in its own order."""
        added = self.added(row, opcode, operands, shape)
        view = self.seen(dense(added, shape), found.there(shape))
        assert view is not None
        self._views[row] = view
        return added

    def added(self, row: int, opcode: Opcode, operands: Sequence[int], shape: Shape) -> int:
        """A row at the end of the spec, of the element and the origin of another one."""
        rows = self._spec.rows
        rows.append(Row(opcode, tuple(operands), shape, rows[row].element, rows[row].place, row))
        return len(rows) - 1
