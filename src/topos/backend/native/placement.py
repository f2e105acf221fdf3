"""Which kernel computes which row: each goes into the earliest one that can take it, or begins another.

A draft is a loop over a shape. With the first reduction that joins, it walks one axis of that shape, and holds values
of two kinds: of the whole shape, and of the rows across the axis, one number for each.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from math import prod

from topos.backend.native.costs import is_dear
from topos.backend.native.drafts import MOST_ROWS, WHOLE, Draft
from topos.backend.native.views import View, dense_strides, flat
from topos.graph.spec import Spec
from topos.op import LogSoftmax, Sum
from topos.op.reduction import AlongAxis
from topos.shape import Shape

MOST_APART = 24
"""Rows in a loop that takes others which read nothing of it: more of them would be many pointers in few registers."""
NEAR = 64
"""How many drafts of its shape a row tries."""
SOON = 64
"""Rows of a spec between a draft's last one and another that joins it, where that is large: what it computes would be
held for all that time."""
LARGE = 1 << 15
"""Numbers of a row that are not held for nothing."""
MOST_FINISHING = 12
"""Rows that join a product: each is written out for every form of its last vectors."""


class Placement:
    """The drafts so far, where each row was placed, and which rows hold one number for each row of their draft."""

    def __init__(self, spec: Spec, views: Mapping[int, View]) -> None:
        self._spec = spec
        self._views = views
        self.drafts: list[Draft] = []
        self.home: dict[int, int] = {}
        self.across: set[int] = set()
        self._reached = 0
        self._loops: dict[Shape, list[int]] = {}

    def reach(self, row: int) -> None:
        """From now on the spec has been read to a row; what is placed next is that row, or stands for it."""
        self._reached = max(self._reached, row)

    def alone(self, row: int, why: str) -> None:
        """A kernel of its own."""
        self.drafts.append(Draft(self._spec.rows[row].shape, False, why))
        self._put(row, len(self.drafts) - 1)

    def product(self, row: int) -> None:
        """A kernel that cheap elementwise rows over its result may join, where its leading axes are all its own."""
        recorded = self._spec.rows[row]
        leading = recorded.shape.rank - 2
        views = [self._views.get(operand) for operand in recorded.operands]
        own = leading == 0 or all(view is not None and all(view.strides[:leading]) for view in views)
        why = "MatMul has a kernel of its own"
        self.drafts.append(Draft(recorded.shape, False, why, is_product=own and recorded.shape.volume > 1))
        self._put(row, len(self.drafts) - 1)

    def elementwise(self, row: int) -> None:
        """Into the first loop of its shape, or of its shape's rows, that runs late enough; or a new one."""
        shape = self._spec.rows[row].shape
        earliest, why, near = self._earliest(row, shape)
        if near and self._is_over(row, self.drafts[earliest]):
            why, near = f"%{self.drafts[earliest].rows[0]} ran long before, and this is large", False
        if near and self.drafts[earliest].is_product:
            if self._finishes(row, self.drafts[earliest]):
                self._put(row, earliest)
                return
            why = f"the product %{self.drafts[earliest].rows[0]} takes only a few cheap nodes of its element"
        own = [earliest] if near and self.drafts[earliest].has_room() else []
        for at in dict.fromkeys([*own, *self._near(shape, earliest)]):
            draft = self.drafts[at]
            if self._is_over(row, draft):
                continue
            if shape == draft.shape and self._joins(row, draft, at in own):
                self._put(row, at)
                return
            if shape == draft.row_shape and (at in own or draft.is_long()):
                self._put(row, at)
                self.across.add(row)
                return
        self._put(row, self._loop(Draft(shape, True, why)))

    def _is_over(self, row: int, draft: Draft) -> bool:
        """Whether a draft ends so long before a large row that its value had better not be held all the while."""
        return self._reached - draft.latest > SOON and self._spec.rows[row].shape.volume >= LARGE

    def _joins(self, row: int, draft: Draft, near: bool) -> bool:
        """Whether a loop over its shape is the place for a row; columns are walked for what needs their sums alone."""
        if draft.axis == WHOLE:
            return self._is_flat(row)
        return near or not draft.is_columns()

    def reduction(self, row: int) -> None:
        """Into the loop of its operand, or another over the same axis; or a new one."""
        recorded = self._spec.rows[row]
        opcode, (operand,) = recorded.opcode, recorded.operands
        axis = WHOLE if isinstance(opcode, Sum) else opcode.axis if isinstance(opcode, AlongAxis) else None
        assert axis is not None
        shape = self._spec.rows[operand].shape
        at, why = self._loop_for(operand, shape, axis)
        if at is None:
            at = self._loop(Draft(shape, shape.volume > 1, why, axis))
        draft = self.drafts[at]
        if draft.axis is None:
            draft.walk(axis)
            self._find(draft.row_shape, at)
        self._put(row, at)
        if not isinstance(opcode, LogSoftmax):
            self.across.add(row)

    # where
    def _finishes(self, row: int, draft: Draft) -> bool:
        """Whether a row is cheap enough to be worked out in a product's registers, and of its element."""
        spec, elements = self._spec, {self._spec.rows[draft.rows[0]].element, None}
        operands = spec.rows[row].operands
        if is_dear(spec, row) or len(draft.rows) > MOST_FINISHING:
            return False
        filled = any(self._views[operand].guards for operand in operands if operand in self._views)
        return not filled and {spec.rows[at].element for at in (row, *operands)} <= elements

    def _loop(self, draft: Draft) -> int:
        """Begins a draft; answers where it stands."""
        self.drafts.append(draft)
        at = len(self.drafts) - 1
        if draft.is_loop:
            self._find(draft.shape, at)
            self._find(draft.row_shape, at)
        return at

    def _find(self, shape: Shape | None, at: int) -> None:
        """From now on a loop is found by this shape of what it holds."""
        if shape is not None and len(self.drafts[at].rows) < MOST_APART:
            insort(self._loops.setdefault(shape, []), at)

    def _near(self, shape: Shape, earliest: int) -> list[int]:
        """The first loops from a draft on that hold values of a shape and have room for rows of any kind."""
        found = self._loops.get(shape, [])
        start = bisect_left(found, earliest)
        return found[start : start + NEAR]

    def _put(self, row: int, at: int) -> None:
        draft = self.drafts[at]
        draft.rows.append(row)
        draft.latest = self._reached
        self.home[row] = at
        if draft.is_loop and len(draft.rows) == MOST_APART:
            for found in [self._loops.get(shape, []) for shape in {draft.shape, draft.row_shape} if shape is not None]:
                found.remove(at)

    def _earliest(self, row: int, shape: Shape) -> tuple[int, str, bool]:
        """The first draft that has a row's operands, why not an earlier one, and whether it holds one of them."""
        earliest, why, near = 0, "nothing before it has its shape", False
        for operand in self._spec.rows[row].operands:
            view = self._views.get(operand)
            if view is None or view.row not in self.home:
                continue
            at, held = self.home[view.row], True
            reason = self.refused(operand, self.home[view.row], shape)
            if reason:
                at, held = at + 1, False
            if at > earliest:
                earliest, near = at, held
            elif at == earliest:
                near = near or held
            if at == earliest:
                why = reason or f"the loop of %{view.row} is full"
        return earliest, why, near

    def refused(self, operand: int, at: int, shape: Shape) -> str:
        """Why a loop's own value cannot be had in registers by a row of that shape; empty where it can."""
        draft, view = self.drafts[at], self._views[operand]
        base = view.row
        own = self._spec.rows[base].shape
        if view.guards:
            return f"%{base} is read with a fill around it"
        if draft.is_product and shape == own and _is_same(view, own, dense_strides(own)):
            return ""
        if not draft.is_loop:
            return f"%{base} is the result of a kernel of another kind"
        if base not in self.across:
            if shape != draft.shape:
                return f"%{base} has another shape"
            return "" if _is_same(view, own, dense_strides(own)) else f"%{base} is read in another order"
        if shape == draft.row_shape and _is_same(view, own, dense_strides(own)):
            return ""
        if shape != draft.shape or not draft.has_rows():
            return f"%{base} is known when its loop has ended"
        assert draft.axis is not None
        spread = [0] * shape.rank
        if draft.axis != WHOLE:
            spread = [*dense_strides(own)[: draft.axis], 0, *dense_strides(own)[draft.axis :]]
        return "" if _is_same(view, shape, spread) else f"%{base} is spread along another axis"

    def _loop_for(self, operand: int, shape: Shape, axis: int) -> tuple[int | None, str]:
        """The loop that a reduction joins, or why there is none."""
        view = self._views.get(operand)
        earliest, why = 0, "nothing before it has its shape"
        if shape.volume <= 1 and axis == WHOLE:
            return None, why
        if view is not None and view.row in self.home:
            at = self.home[view.row]
            why = self.refused(operand, at, shape) or self._other_axis(view.row, shape, axis)
            if not why:
                return at, ""
            earliest = at + 1
        for at in self._near(shape, earliest):
            draft = self.drafts[at]
            fits = draft.shape == shape and draft.axis == axis
            if fits and (axis != WHOLE or self._flat_operand(operand)):
                return at, ""
        return None, why

    def _other_axis(self, base: int, shape: Shape, axis: int) -> str:
        """Why a loop that holds a value cannot reduce it along an axis; empty where it can."""
        draft = self.drafts[self.home[base]]
        if draft.is_product:
            return f"%{draft.rows[0]} is a product"
        if shape != draft.shape:
            return f"%{base} is one number for each row of its loop"
        if len(draft.rows) >= MOST_ROWS:
            return f"the loop of %{base} is full"
        if draft.axis is None:
            if axis != WHOLE and prod(shape[axis + 1 :]) > 1:
                return "columns are summed in a loop of their own"
            if axis == WHOLE and not all(self._is_flat(row) for row in draft.rows):
                return f"the loop of %{base} reads something in another order"
            return ""
        return "" if draft.axis == axis else f"the loop of %{base} walks another axis"

    def _is_flat(self, row: int) -> bool:
        return all(self._flat_operand(operand) for operand in self._spec.rows[row].operands)

    def _flat_operand(self, operand: int) -> bool:
        """Whether a value is read in row-major order, number after number, or is one number."""
        view = self._views.get(operand)
        return view is None or (not self._spec.is_selection(view.row) and flat(view))


def _is_same(view: View, shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a view has these strides from the start of its buffer; axes of extent 1 are never walked along."""
    if view.offset or tuple(view.shape) != tuple(shape):
        return False
    return not prod(shape) or all(
        extent == 1 or own == wanted for extent, own, wanted in zip(shape, view.strides, strides, strict=True)
    )
