"""A matrix product with every extent and stride known, and the equal forms of it."""

from __future__ import annotations

import math
from collections.abc import Callable

from topos.backend.native.products.epilogue import Definition
from topos.backend.native.views import Axes
from topos.records import NamedTuple

ITEM_BYTES = {"bf16": 2, "f32": 4, "f64": 8}


class Batch(NamedTuple):
    """One leading axis: its extent and its stride, in elements, in the left and right operand and in the result."""

    extent: int
    left: int
    right: int
    out: int


class Line(NamedTuple):
    """The function that a computed operand writes: `void @name(parameters)`.

    It puts `%count` neighbouring numbers of the operand, as accumulators, from `%to` on, and may write the rest of a
    vector of `lanes` behind them. They are those of a product of the batch, from (`%row`, `%column`) of the operand on,
    along the axis in which its lines run. `%arguments` are the kernel's.
    """

    name: str
    lanes: int
    parameters: str = "ptr %arguments, ptr %to, i64 %batch, i64 %row, i64 %column, i64 %count"


class Computed(NamedTuple):
    """An operand that lies nowhere: `define` writes what works out a line of it.

    The strides of such an operand are those of the room that it is worked out in. `is_turned` says that its rows and
    columns are exchanged in the form to compute.
    """

    define: Callable[[Line], Definition]
    is_turned: bool = False


class Grid(NamedTuple):
    """Where a left operand lies whose rows and terms step through several axes: the windows of an image, say.

    The terms of product `i` of the batch begin at term `first + i * step` of these axes.
    """

    rows: Axes
    terms: Axes
    first: int = 0
    step: int = 0


class ProductTask(NamedTuple):
    """`out[..., i, j] = sum over k of left[..., i, k] * right[..., k, j]`, in the reference's order.

    `element` is `f32`, `f64` or `bf16`. An operand may be stored as a narrower element of its own (bf16 under f32,
    either under f64): it is widened as it is read, which is exact, so the product is that of the cast operand. Strides
    count elements and may be 0 (broadcast) or negative, but the results must not overlap; element `[0, ..., 0]` of each
    operand lies at its pointer. `left` strides over (rows, terms), `right` over (terms, columns), `out` over (rows,
    columns). A `left_grid` says where the left operand lies instead of strides; the form to compute is then the given.
    """

    element: str
    rows: int
    terms: int
    columns: int
    left: tuple[int, int]
    right: tuple[int, int]
    out: tuple[int, int]
    batch: tuple[Batch, ...] = ()
    left_element: str = ""
    right_element: str = ""
    left_grid: Grid | None = None
    left_value: Computed | None = None
    right_value: Computed | None = None
    pointers: int = 0
    """Further arguments, those of computed operands, behind those of an epilogue."""

    @property
    def is_computed(self) -> bool:
        """Whether an operand is worked out as it is packed."""
        return self.left_value is not None or self.right_value is not None

    @property
    def batches(self) -> int:
        """How many products of matrices there are."""
        return math.prod(axis.extent for axis in self.batch)

    @property
    def work(self) -> int:
        """Multiply-adds."""
        return self.batches * self.rows * self.terms * self.columns

    @property
    def left_bytes(self) -> int:
        """Bytes of one stored number of the left operand."""
        return ITEM_BYTES[self.left_element or self.element]

    @property
    def right_bytes(self) -> int:
        """Bytes of one stored number of the right operand."""
        return ITEM_BYTES[self.right_element or self.element]

    @property
    def read_bytes(self) -> int:
        """What both operands take, each product's own counted."""
        return self.batches * self.terms * (self.rows * self.left_bytes + self.columns * self.right_bytes)

    @property
    def wide_bytes(self) -> int:
        """Bytes of one number in the accumulator's type."""
        return 8 if self.element == "f64" else 4


def turned(task: ProductTask) -> ProductTask:
    """The product of the transposes: `a * b` commutes, so its bits are the transposed bits."""
    return task._replace(
        rows=task.columns,
        columns=task.rows,
        left=task.right[::-1],
        right=task.left[::-1],
        out=task.out[::-1],
        batch=tuple(Batch(axis.extent, axis.right, axis.left, axis.out) for axis in task.batch),
        left_element=task.right_element,
        right_element=task.left_element,
        left_value=_exchanged(task.right_value),
        right_value=_exchanged(task.left_value),
    )


def _exchanged(value: Computed | None) -> Computed | None:
    return value and value._replace(is_turned=not value.is_turned)


def folded(task: ProductTask) -> ProductTask:
    """Leading axes that only repeat one operand become rows or columns of the other; the rest merge where they can."""
    rows = _rows_folded(task)
    columns = turned(_rows_folded(turned(rows)))
    axes: list[Batch] = []
    for axis in columns.batch:
        outer = axes[-1] if axes else None
        if outer is not None and outer[1:] == tuple(stride * axis.extent for stride in axis[1:]):
            axes[-1] = axis._replace(extent=outer.extent * axis.extent)
        elif axis.extent != 1:
            axes.append(axis)
    return columns._replace(batch=tuple(axes))


def _rows_folded(task: ProductTask) -> ProductTask:
    """Every leading axis, innermost first, that walks on where the rows end while `right` stays."""
    rest: list[Batch] = []
    for axis in reversed(task.batch):
        walks_on = (axis.left, axis.out) == (task.rows * task.left[0], task.rows * task.out[0])
        if axis.right or rest or not (task.rows == 1 or walks_on):
            rest.insert(0, axis)
        elif task.rows == 1:
            task = task._replace(rows=axis.extent, left=(axis.left, task.left[1]), out=(axis.out, task.out[1]))
        else:
            task = task._replace(rows=task.rows * axis.extent)
    return task._replace(batch=tuple(rest))
