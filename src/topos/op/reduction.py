"""Instructions that take an axis (or all of them) together, in the stated order of accumulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from topos.element.element import Array
from topos.errors import ShapeError
from topos.op.movement import whole, window_count, window_facts
from topos.op.opcode import Cotangents, Opcode
from topos.shape import Shape


class Reduction(Opcode):
    """One operand, some of its axes taken together; `reduce(kernels, element, array)` names the reference kernel.

    `kernels` is a set of reduction kernels (`topos.reference` defines the bits); orders are as NumPy arrays' logical
    order, whatever the strides.
    """

    __slots__ = ()
    roles = ("operand",)

    def reduce(self, kernels: Any, element: Any, array: Array) -> Any:
        """The result by a set of kernels, in the element's arithmetic."""
        raise NotImplementedError(self.name)


class Sum(Reduction):
    """The sum of all elements in row-major order: the lanes and blocks of `topos.reference.sum`."""

    __slots__ = ()

    def result_shape(self, shapes: Sequence[Shape]) -> Shape:
        """Rank 0."""
        return SCALAR

    def reduce(self, kernels: Any, element: Any, array: Array) -> Any:
        return kernels.sum(element, array)

    def derivative(self, seed: Any, output: Any, x: Any) -> Cotangents:
        return (seed.broadcast(x.shape),)


class AlongAxis(Reduction):
    """A reduction along one axis, counted from the front."""

    __slots__ = ("axis",)
    attributes: ClassVar[tuple[str, ...]] = ("axis",)
    axis: int

    def __init__(self, axis: int) -> None:
        self._freeze(whole(axis, self.rule, "axis"))

    def result_shape(self, shapes: Sequence[Shape]) -> Shape:
        """The operand's shape without the axis."""
        shape = shapes[0]
        return shape.without_axis(shape.axis(self.axis, self.rule))


class SumAlong(AlongAxis):
    """The sum along an axis in index order."""

    __slots__ = ()

    def reduce(self, kernels: Any, element: Any, array: Array) -> Any:
        return kernels.sum_along(element, array, self.axis)

    def derivative(self, seed: Any, output: Any, x: Any) -> Cotangents:
        return (seed.broadcast_along(self.axis, x.shape[self.axis]),)


class MaxAlong(AlongAxis):
    """The largest along an axis, NaN if any is; of nothing, the element's lowest. Ties share the cotangent evenly."""

    __slots__ = ()
    reads = (0,)
    reads_output = True

    def reduce(self, kernels: Any, element: Any, array: Array) -> Any:
        return kernels.max_along(element, array, self.axis)

    def derivative(self, seed: Any, output: Any, x: Any) -> Cotangents:
        extent = x.shape[self.axis]
        hit = x.step(output.broadcast_along(self.axis, extent))
        share = (seed / hit.sum_along(self.axis)).broadcast_along(self.axis, extent)
        return (hit.select(share, share.zero_like()),)


class LogSumExp(AlongAxis):
    """`ln(sum(exp(x)))` along an axis, shifted by the largest."""

    __slots__ = ()
    rule = "logsumexp"
    reads = (0,)
    reads_output = True

    def reduce(self, kernels: Any, element: Any, array: Array) -> Any:
        return kernels.logsumexp(element, array, self.axis)

    def derivative(self, seed: Any, output: Any, x: Any) -> Cotangents:
        extent = x.shape[self.axis]
        weights = (x - output.broadcast_along(self.axis, extent)).exp()
        return (seed.broadcast_along(self.axis, extent) * weights,)


class LogSoftmax(AlongAxis):
    """`x - logsumexp(x)` along an axis, of the operand's shape."""

    __slots__ = ()
    reads_output = True

    def result_shape(self, shapes: Sequence[Shape]) -> Shape:
        """The operand's shape."""
        shapes[0].axis(self.axis, self.rule)
        return shapes[0]

    def reduce(self, kernels: Any, element: Any, array: Array) -> Any:
        return kernels.log_softmax(element, array, self.axis)

    def derivative(self, seed: Any, output: Any, x: Any) -> Cotangents:
        extent = output.shape[self.axis]
        weights = output.exp()
        return (seed - weights * seed.sum_along(self.axis).broadcast_along(self.axis, extent),)


class Fold(Reduction):
    """Windows `(count, size)` at `axis` added back onto an axis of `extent`: the adjoint of `Unfold`."""

    __slots__ = ("axis", "size", "step", "dilation", "extent")
    attributes: ClassVar[tuple[str, ...]] = ("axis", "size", "step", "dilation", "extent")
    axis: int
    size: int
    step: int
    dilation: int
    extent: int

    def __init__(self, axis: int, size: int, step: int, dilation: int, extent: int) -> None:
        facts = window_facts("fold", size, step, dilation)
        self._freeze(whole(axis, "fold", "axis"), *facts, whole(extent, "fold", "extent"))

    @property
    def count(self) -> int:
        """How many windows there are. Raises `ShapeError` where the extent holds none."""
        return window_count("fold", self.extent, self.size, self.step, self.dilation)

    def result_shape(self, shapes: Sequence[Shape]) -> Shape:
        """`extent` in the place of `(count, size)`."""
        (shape,) = shapes
        shape.axis(self.axis, "fold")
        shape.axis(self.axis + 1, "fold")
        count = self.count
        if shape[self.axis : self.axis + 2] != (count, self.size):
            raise ShapeError(
                f"fold: axes {self.axis} and {self.axis + 1} must be [{count}, {self.size}], the windows of extent "
                f"{self.extent}, got {shape}"
            )
        return Shape((*shape[: self.axis], self.extent, *shape[self.axis + 2 :]))

    def reduce(self, kernels: Any, element: Any, array: Array) -> Any:
        return kernels.fold(element, array, self.axis, self.size, self.step, self.dilation, self.extent)

    def derivative(self, seed: Any, output: Any, x: Any) -> Cotangents:
        return (seed.unfold(self.axis, self.size, self.step, self.dilation),)


SCALAR = Shape()
SUM = Sum()
