"""Instructions that only say where a number is read: each is a view of its operand, or a place in its result."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from topos.element.element import Array
from topos.errors import ElementError, ShapeError
from topos.op.opcode import Cotangents, Opcode
from topos.shape import Shape


def whole(number: Any, rule: str, what: str, least: int = 0) -> int:
    """An integer of at least `least`, or a `ShapeError` that names the rule and what was wanted."""
    try:
        value = operator.index(number)
    except TypeError:
        raise ShapeError(f"{rule}: {what} must be an integer, got {number!r}") from None
    if value < least:
        raise ShapeError(f"{rule}: {what} must be at least {least}, got {value}")
    return value


def along(array: Array, axis: int, start: int, length: int) -> Array:
    """`length` places of one axis of an array, from `start`."""
    index: Any = (*(slice(None),) * axis, slice(start, start + length), ...)
    view: Array = array[index]
    return view


class Movement(Opcode):
    """The result holds the operand's own bits; `view(array)` is where each of them is read.

    `view` takes an array of the operand's shape (of any strides) and answers one of the result's shape over the same
    memory, except for a reshape whose strides do not merge, which copies.
    """

    __slots__ = ()
    roles = ("operand",)

    def view(self, array: Array) -> Array:
        """The operand as the result sees it."""
        raise NotImplementedError(self.name)


class Broadcast(Movement):
    """A scalar at every place of `shape`."""

    __slots__ = ("shape",)
    attributes: ClassVar[tuple[str, ...]] = ("shape",)
    shape: Shape

    def __init__(self, shape: Iterable[int]) -> None:
        self._freeze(Shape(shape))

    def result_shape(self, shapes: Sequence[Shape]) -> Shape:
        """`shape`, of an operand of rank 0."""
        if shapes[0]:
            raise ShapeError(f"broadcast: the operand must have rank 0, got {shapes[0]}; see broadcast_to")
        return self.shape

    def view(self, array: Array) -> Array:
        return np.broadcast_to(array, self.shape)

    def derivative(self, seed: Any, output: Any, x: Any) -> Cotangents:
        return (seed.sum(),)


class BroadcastAlong(Movement):
    """The operand repeated `extent` times along a new axis at `axis`."""

    __slots__ = ("axis", "extent")
    attributes: ClassVar[tuple[str, ...]] = ("axis", "extent")
    axis: int
    extent: int

    def __init__(self, axis: int, extent: int) -> None:
        self._freeze(whole(axis, "broadcast_along", "axis"), whole(extent, "broadcast_along", "extent"))

    def result_shape(self, shapes: Sequence[Shape]) -> Shape:
        """The operand's shape with one more axis."""
        (shape,) = shapes
        if self.axis > shape.rank:
            raise ShapeError(f"broadcast_along: no place for a new axis {self.axis} in {shape}")
        return shape.with_axis(self.axis, self.extent)

    def view(self, array: Array) -> Array:
        shape = (*array.shape[: self.axis], self.extent, *array.shape[self.axis :])
        return np.broadcast_to(np.expand_dims(array, self.axis), shape)

    def derivative(self, seed: Any, output: Any, x: Any) -> Cotangents:
        return (seed.sum_along(self.axis),)


class Reshape(Movement):
    """The operand's elements, in row-major order, under another shape of the same volume."""

    __slots__ = ("shape",)
    attributes: ClassVar[tuple[str, ...]] = ("shape",)
    shape: Shape

    def __init__(self, shape: Iterable[int]) -> None:
        self._freeze(Shape(shape))

    def result_shape(self, shapes: Sequence[Shape]) -> Shape:
        """`shape`, of the operand's volume."""
        (shape,) = shapes
        if shape.volume != self.shape.volume:
            raise ShapeError(
                f"reshape: volumes must be equal, got {shape.volume} in {shape} and {self.shape.volume} in {self.shape}"
            )
        return self.shape

    def view(self, array: Array) -> Array:
        return array.reshape(self.shape)

    def derivative(self, seed: Any, output: Any, x: Any) -> Cotangents:
        return (seed.reshape(x.shape),)


class Permute(Movement):
    """Axis `i` of the result is axis `order[i]` of the operand."""

    __slots__ = ("order",)
    attributes: ClassVar[tuple[str, ...]] = ("order",)
    order: Shape

    def __init__(self, order: Iterable[int]) -> None:
        self._freeze(Shape(order))

    def result_shape(self, shapes: Sequence[Shape]) -> Shape:
        """The operand's extents in `order`."""
        (shape,) = shapes
        if sorted(self.order) != list(shape.axes):
            raise ShapeError(f"permute: order must name each axis of {shape} once, got {self.order}")
        return Shape([shape[axis] for axis in self.order])

    def view(self, array: Array) -> Array:
        return array.transpose(self.order)

    def derivative(self, seed: Any, output: Any, x: Any) -> Cotangents:
        return (seed.permute([self.order.index(axis) for axis in self.order.axes]),)


class Narrow(Movement):
    """`length` places of an axis, from `start`."""

    __slots__ = ("axis", "start", "length")
    attributes: ClassVar[tuple[str, ...]] = ("axis", "start", "length")
    axis: int
    start: int
    length: int

    def __init__(self, axis: int, start: int, length: int) -> None:
        self._freeze(whole(axis, "narrow", "axis"), whole(start, "narrow", "start"), whole(length, "narrow", "length"))

    def result_shape(self, shapes: Sequence[Shape]) -> Shape:
        """The operand's shape with `length` at `axis`."""
        (shape,) = shapes
        extent = shape[shape.axis(self.axis, "narrow")]
        if self.start + self.length > extent:
            raise ShapeError(
                f"narrow: {self.start} to {self.start + self.length} is not inside axis {self.axis} "
                f"of extent {extent} in {shape}"
            )
        return Shape((*shape[: self.axis], self.length, *shape[self.axis + 1 :]))

    def view(self, array: Array) -> Array:
        return along(array, self.axis, self.start, self.length)

    def derivative(self, seed: Any, output: Any, x: Any) -> Cotangents:
        return (seed.pad(self.axis, self.start, x.shape[self.axis]),)


class Unfold(Movement):
    """Windows of an axis: it becomes `(count, size)`, window `w` holding places `w * step + o * dilation`.

    `count = (extent - span) // step + 1` with `span = dilation * (size - 1) + 1`, which must fit.
    """

    __slots__ = ("axis", "size", "step", "dilation")
    attributes: ClassVar[tuple[str, ...]] = ("axis", "size", "step", "dilation")
    axis: int
    size: int
    step: int
    dilation: int

    def __init__(self, axis: int, size: int, step: int = 1, dilation: int = 1) -> None:
        self._freeze(whole(axis, "unfold", "axis"), *window_facts("unfold", size, step, dilation))

    def result_shape(self, shapes: Sequence[Shape]) -> Shape:
        """`(count, size)` in the place of the axis."""
        (shape,) = shapes
        extent = shape[shape.axis(self.axis, "unfold")]
        count = window_count("unfold", extent, self.size, self.step, self.dilation)
        return Shape((*shape[: self.axis], count, self.size, *shape[self.axis + 1 :]))

    def view(self, array: Array) -> Array:
        axis, stride = self.axis, array.strides[self.axis]
        count = window_count("unfold", array.shape[axis], self.size, self.step, self.dilation)
        # An axis of extent 1 is never walked along: its step may be of any size.
        steps = stride * self.step if count > 1 else 0, stride * self.dilation if self.size > 1 else 0
        return np.lib.stride_tricks.as_strided(
            array,
            (*array.shape[:axis], count, self.size, *array.shape[axis + 1 :]),
            (*array.strides[:axis], *steps, *array.strides[axis + 1 :]),
            writeable=False,
        )

    def derivative(self, seed: Any, output: Any, x: Any) -> Cotangents:
        return (seed.fold(self.axis, self.size, self.step, self.dilation, x.shape[self.axis]),)


class Pad(Opcode):
    """The operand at `start` of an axis of `full_extent`, with `fill` before and after it.

    `place(array)` is where the operand stands in an array of the result's shape. The derivative narrows to it.
    """

    __slots__ = ("axis", "start", "full_extent", "fill")
    roles = ("operand",)
    attributes: ClassVar[tuple[str, ...]] = ("axis", "start", "full_extent", "fill")
    axis: int
    start: int
    full_extent: int
    fill: float

    def __init__(self, axis: int, start: int, full_extent: int, fill: float = 0.0) -> None:
        if isinstance(fill, bool) or not isinstance(fill, int | float | np.integer | np.floating):
            raise ShapeError(f"pad: fill must be a number, got {fill!r}")
        extents = whole(start, "pad", "start"), whole(full_extent, "pad", "full_extent")
        self._freeze(whole(axis, "pad", "axis"), *extents, _fill(fill))

    @property
    def fills_zero(self) -> bool:
        """Whether the fill is `+0.0`, which every element has."""
        return repr(self.fill) == "0.0"

    def facts(self) -> tuple[tuple[str, Any], ...]:
        """The attributes; the fill only where it is not `+0.0`."""
        return super().facts()[: 3 if self.fills_zero else 4]

    def __eq__(self, other: object) -> bool:  # the fill by its spelling: -0.0 is not 0.0, and nan is nan
        return isinstance(other, Pad) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def result_shape(self, shapes: Sequence[Shape]) -> Shape:
        """The operand's shape with `full_extent` at `axis`."""
        (shape,) = shapes
        extent = shape[shape.axis(self.axis, "pad")]
        if self.start + extent > self.full_extent:
            raise ShapeError(
                f"pad: {extent} places from {self.start} do not fit in a full extent of {self.full_extent}, "
                f"axis {self.axis} of {shape}"
            )
        return Shape((*shape[: self.axis], self.full_extent, *shape[self.axis + 1 :]))

    def place(self, result: Array, extent: int) -> Array:
        """The part of an array of the result's shape where the operand, of that extent, stands."""
        return along(result, self.axis, self.start, extent)

    def derivative(self, seed: Any, output: Any, x: Any) -> Cotangents:
        return (seed.narrow(self.axis, self.start, x.shape[self.axis]),)


def _fill(number: Any) -> float:
    """A fill as the attribute holds it. Raises `ElementError` for an integer that is not exact in it."""
    if isinstance(number, float | np.floating):
        return float(number)
    exact = int(number)
    if abs(exact) >= 1 << 1024 or int(float(exact)) != exact:
        raise ElementError(f"pad: cannot hold the fill {exact} exactly; write it as a float")
    return float(exact)


def window_facts(rule: str, size: int, step: int, dilation: int) -> tuple[int, int, int]:
    """A window's size, step and dilation, each at least 1."""
    return whole(size, rule, "size", 1), whole(step, rule, "step", 1), whole(dilation, rule, "dilation", 1)


def window_count(rule: str, extent: int, size: int, step: int, dilation: int) -> int:
    """How many windows an axis holds; at least one must fit."""
    span = dilation * (size - 1) + 1
    if span > extent:
        raise ShapeError(f"{rule}: a window of size {size} and dilation {dilation} spans {span}, more than {extent}")
    return (extent - span) // step + 1
