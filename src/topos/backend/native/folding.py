"""Products that a fold alone reads: their columns are computed in another order, channels next to one another.

The gradient of a convolution's patches is such a product, and so it is folded along whole vectors. No number changes:
a column of a product is the same chain wherever it stands.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod

from topos.backend.native.drafts import Draft
from topos.backend.native.placement import Placement
from topos.backend.native.rearranging import Rearranging
from topos.backend.native.views import View, dense, dense_strides
from topos.graph.spec import Spec
from topos.op import Fold, MatMul, Movement
from topos.op.elementwise import ADD
from topos.op.movement import Permute, Reshape
from topos.records import NamedTuple

FEWEST_CHANNELS = 8
"""Next to one another; fewer leave most of a vector empty."""


class Reader(NamedTuple):
    """The fold that alone reads a value, and whether it reads it in the value's own axes."""

    fold: int
    is_plain: bool


def folded_alone(spec: Spec, scheduled: Sequence[int], kept: Collection[int]) -> dict[int, Reader]:
    """For each product and fold that one fold alone reads, that fold; movements and added zeros may stand between."""
    readers: dict[int, list[int]] = {}
    for row in scheduled:
        for operand in dict.fromkeys(spec.rows[row].operands):
            readers.setdefault(operand, []).append(row)
    rows = (row for row in scheduled if isinstance(spec.rows[row].opcode, MatMul | Fold))
    found = ((row, _reader(spec, readers, kept, row)) for row in rows)
    return {row: reader for row, reader in found if reader is not None}


def _reader(spec: Spec, readers: Mapping[int, list[int]], kept: Collection[int], row: int) -> Reader | None:
    is_plain = True
    while row not in kept and len(readers.get(row, ())) == 1:
        (row,) = readers[row]
        opcode = spec.rows[row].opcode
        if isinstance(opcode, Fold):
            return Reader(row, is_plain)
        if isinstance(opcode, Movement):
            is_plain = False
        elif opcode != ADD:
            return None
    return None


class Columns(NamedTuple):
    """How the view of a product's buffer splits it: axes of its rows, and of its columns, as they lie there.

    `wanted` are the axes of the columns as they had better lie, the longest last.
    """

    rows: list[int]
    own: list[int]
    wanted: list[int]


def columns_of(view: View, width: int, offsets: Sequence[int]) -> Columns | None:
    """The columns of a product, `width` of them, seen by a fold, with the axes of its offsets in front.

    `None` where they lie so already, or where few would be next to one another.
    """
    axes = in_memory(view)
    if axes is None:
        return None
    rows = [axis for axis in axes if view.strides[axis] >= width]
    own = [axis for axis in axes if view.strides[axis] < width]
    last = sorted((axis for axis in own if axis not in offsets), key=lambda axis: view.shape[axis])
    if prod(view.shape[axis] for axis in own) != width or any(offset - 1 in own for offset in offsets):
        return None
    wanted = [*(axis for axis in offsets if axis in own), *last]
    few = not last or view.shape[last[-1]] < FEWEST_CHANNELS
    return None if few or wanted == own else Columns(rows, own, wanted)


def in_memory(view: View) -> list[int] | None:
    """The axes of a view longer than 1, the farthest steps first; `None` where they are not its whole buffer.

    An axis of no places is neither: where there are no numbers, there is no order to keep.
    """
    if view.offset or view.guards or view.grid is not None or not view.shape.volume:
        return None
    axes = sorted((axis for axis, extent in enumerate(view.shape) if extent > 1), key=lambda axis: -view.strides[axis])
    steps = dense_strides([view.shape[axis] for axis in axes])
    return axes if tuple(view.strides[axis] for axis in axes) == steps else None


def fold_order(view: View, axis: int) -> list[int] | None:
    """The axes in the order of memory, offsets behind their windows; `None` where that brings no long lines.

    Axes of one place stand in front, or where the windows are that follow them.
    """
    axes = in_memory(view)
    if not axes or axes[-1] in (axis, axis + 1) or view.shape[axes[-1]] < FEWEST_CHANNELS:
        return None
    order = [other for other in view.shape.axes if other < axis and view.shape[other] == 1]
    order += [other for other in axes if other != axis + 1]
    for other in view.shape.axes:
        if other not in order and other != axis + 1:
            order.insert(-1, other)
    order.insert(order.index(axis) + 1, axis + 1)
    return order


class Folding:
    """Chooses for each fold; adds to what it is given. A fold that is kept is then a copy of the one beside it."""

    def __init__(
        self,
        spec: Spec,
        views: dict[int, View],
        placement: Placement,
        rearranging: Rearranging,
        alone: Mapping[int, Reader],
        kept: Collection[int],
    ) -> None:
        self._spec, self._views, self._placement, self._rearranging = spec, views, placement, rearranging
        self._alone, self._kept = alone, kept
        self._products = {
            reader.fold: row for row, reader in alone.items() if isinstance(spec.rows[row].opcode, MatMul)
        }
        self.products = set(self._products.values())
        """Those that a fold alone reads, and those beside them."""

    def instead(self, row: int) -> int:
        """The row that computes a fold: itself, or one beside the spec's, in the order of memory."""
        (operand,) = self._spec.rows[row].operands
        if operand not in self._views or self._spec.is_selection(self._views[operand].row):
            return row
        opcode = self._spec.rows[row].opcode
        assert isinstance(opcode, Fold)
        regrouped = self._regrouped(row, operand)
        order = fold_order(self._views[regrouped], opcode.axis)
        if order is None or (order == sorted(order) and regrouped == operand):
            return row
        moved = self._rearranging.moved(regrouped, [Permute(order)])
        fold = Fold(order.index(opcode.axis), opcode.size, opcode.step, opcode.dilation, opcode.extent)
        shape = fold.result_shape([self._views[moved].shape])
        added = self._rearranging.added(row, fold, [moved], shape)
        order.remove(opcode.axis + 1)
        back = Permute([order.index(axis) for axis in sorted(order)])
        view = self._rearranging.seen(dense(added, shape), [back])
        assert view is not None
        if row in self._kept:
            self._placement.alone(added, "Fold has a kernel of its own")
            self._views[added] = dense(added, shape)
            self._spec.rows[row] = self._spec.rows[row]._replace(opcode=back, operands=(added,))
            return row
        self._views[row] = view
        return added

    def _regrouped(self, row: int, operand: int) -> int:
        """What a fold reads: where that is a product of its own, over columns in a better order."""
        product, view = self._products.get(row), self._views[operand]
        if product is None or view.row != product or not self._is_free(product):
            return operand
        found = columns_of(view, self._spec.rows[product].shape[1], self._offsets(row))
        return operand if found is None else self._product(product, view, found)

    def _is_free(self, product: int) -> bool:
        """Whether a product is a matrix, computed for nobody else, whose right operand is in memory as it is."""
        left, right = self._spec.rows[product].operands
        view, home = self._views.get(right), self._placement.home.get(product)
        if view is None or home is None or self._spec.rows[product].shape.rank != 2 or left == right:
            return False
        if view.guards or self._spec.is_selection(view.row) or self._placement.drafts[home].rows != [product]:
            return False
        return self._spec.element_of(view.row) == self._spec.element_of(right)

    def _offsets(self, row: int) -> list[int]:
        """The axes of a fold's operand that are offsets in windows, its own and those of the fold that follows."""
        axes = [self._axis(row) + 1]
        reader = self._alone.get(row)
        if reader is not None and reader.is_plain:
            after = self._axis(reader.fold) + 1
            axes.append(after + (after > self._axis(row)))
        return axes

    def _axis(self, row: int) -> int:
        opcode = self._spec.rows[row].opcode
        assert isinstance(opcode, Fold)
        return opcode.axis

    def _product(self, product: int, view: View, columns: Columns) -> int:
        """The same product over a copy of its right operand; answers a row that is what `view` was."""
        recorded, rearranging = self._spec.rows[product], self._rearranging
        left, right = recorded.operands
        shape = self._spec.rows[right].shape
        split = Reshape([shape[0], *(view.shape[axis] for axis in columns.own)])
        order = Permute([0, *(1 + columns.own.index(axis) for axis in columns.wanted)])
        moved = rearranging.moved(right, [split, order])
        copy = rearranging.added(right, Reshape(shape), [moved], shape)
        self._put(copy, product)
        added = rearranging.added(product, recorded.opcode, [left, copy], recorded.shape)
        self._placement.product(added)
        self.products.add(added)
        self._views[added] = dense(added, recorded.shape)
        axes = [*columns.rows, *columns.wanted]
        parts = Reshape([view.shape[axis] for axis in axes])
        back = Permute([axes.index(axis) for axis in sorted(axes)])
        return rearranging.moved(added, [parts, back, Reshape(view.shape)])

    def _put(self, copy: int, product: int) -> None:
        """A copy where a product stood that nobody needs any longer."""
        at = self._placement.home.pop(product)
        draft = Draft(self._spec.rows[copy].shape, False, "its columns go in the order in which they are folded")
        draft.rows.append(copy)
        draft.latest = self._placement.drafts[at].latest
        self._placement.drafts[at], self._placement.home[copy] = draft, at
        self._views[copy] = dense(copy, self._spec.rows[copy].shape)
