"""Everything that is spelled in the instructions: one mixin that every payload shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from math import pi, sqrt
from typing import Any, NoReturn, Self, TypeVar, cast

import numpy as np

from topos.errors import RecordedError, ShapeError
from topos.op.elementwise import POWF
from topos.op.indices import indexed
from topos.op.recordable import Recordable
from topos.shape import Shape

Method = TypeVar("Method", bound=Callable[..., Any])


def whole_or_nothing(method: Method) -> Method:
    """A composition that leaves a recording as it was when one of its instructions is refused."""

    @wraps(method)
    def call(self: Recordable, *arguments: Any, **options: Any) -> Any:
        mark = self.mark()
        try:
            return method(self, *arguments, **options)
        except BaseException:
            self.reset(mark)
            raise

    function: Any = call
    # a node's place tells which function of topos the user called, and reads that off the code
    function.__code__ = function.__code__.replace(co_name=method.__name__)
    return cast("Method", function)


def _negated(x: Composites, other: Any) -> Any:
    """The negative of an operand beside `x`; an integer 0 becomes -0.0, which no integer holds."""
    if isinstance(other, Recordable):
        return -other
    if isinstance(other, int | np.integer | np.bool_):
        return -int(other) or -0.0
    if isinstance(other, float | np.floating):
        return -other
    return -x.zero_like() - other  # -0.0 - y is -y in every bit, for whatever may stand as an operand


class Composites(Recordable):
    """The compositions over `Recordable`; constants are spelled by `zero_like`, `one_like` and `counted`."""

    __slots__ = ()

    # arithmetic
    def __pow__(self, exponent: Any) -> Self:
        square = isinstance(exponent, int | float | np.integer | np.floating) and exponent == 2
        return self * self if square else self.powf(exponent)

    def __rpow__(self, base: Any) -> Self:
        return self.apply(POWF, (base, self))

    @whole_or_nothing
    def minimum(self, other: Any) -> Self:
        """`-maximum(-x, -other)`: NaN propagates, ties go left."""
        return -((-self).maximum(_negated(self, other)))

    @whole_or_nothing
    def clip(self, low: Any, high: Any) -> Self:
        """Held between the limits; the gradient passes on the limits themselves, NaN stays."""
        return self.maximum(low).minimum(high)

    @whole_or_nothing
    def abs(self) -> Self:
        """`select(step(x, 0), x + 0.0, -x)`: the slope at 0 is 1, and `abs(-0.0)` is `+0.0`."""
        return self.step(self.zero_like()).select(self + self.zero_like(), -self)

    def __abs__(self) -> Self:
        return self.abs()

    # activations
    @whole_or_nothing
    def relu(self) -> Self:
        """`maximum(0, x)`: ties go left, so the slope at 0 is 0."""
        return self.zero_like().maximum(self)

    @whole_or_nothing
    def sigmoid(self) -> Self:
        """`1 / (1 + exp(-x))`, by `exp(-|x|)`, so that neither it nor its gradient over- or underflows early."""
        positive = self.step(self.zero_like())
        decay = positive.select(-self, self).exp()
        return positive.select(self.one_like(), decay) / (self.one_like() + decay)

    @whole_or_nothing
    def silu(self) -> Self:
        """`x * sigmoid(x)`."""
        return self * self.sigmoid()

    @whole_or_nothing
    def softplus(self) -> Self:
        """`ln(1 + exp(x))` as `max(x, 0) + log1p(exp(-|x|))`."""
        positive = self.step(self.zero_like())
        return positive.select(self, self.zero_like()) + positive.select(-self, self).exp().log1p()

    @whole_or_nothing
    def gelu(self) -> Self:
        """`x * (1 + erf(x / sqrt(2))) / 2`. Far left (below about -5.5 in f32) `1 + erf` has no digit left: 0."""
        return self * (self.one_like() + (self / self.counted(2).sqrt()).erf()) / self.counted(2)

    @whole_or_nothing
    def gelu_tanh(self) -> Self:
        """`x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))) / 2`: the tanh form (Hendrycks and Gimpel 2016)."""
        inner = (self + self * self * self * 0.044715) * sqrt(2 / pi)
        return self * (inner.tanh() + 1.0) * 0.5

    # means and normalisers
    @whole_or_nothing
    def mean(self) -> Self:
        """The sum of all elements divided by their number."""
        total = self.sum()
        return total / total.counted(self.shape.volume)

    @whole_or_nothing
    def mean_along(self, axis: int) -> Self:
        """The sum along an axis divided by its extent."""
        total = self.sum_along(axis)
        return total / total.counted(self.shape[axis])

    @whole_or_nothing
    def softmax(self, axis: int) -> Self:
        """`e / sum(e)` along an axis with `e = exp(x - stop(max(x)))`: one exponential."""
        axis = self.shape.axis(axis, "softmax")
        extent = self.shape[axis]
        powers = (self - self.max_along(axis).stop().broadcast_along(axis, extent)).exp()
        return powers / powers.sum_along(axis).broadcast_along(axis, extent)

    # shape
    def transpose(self) -> Self:
        """The last two axes swapped."""
        if self.shape.rank < 2:
            raise ShapeError(f"transpose: wants rank 2 or more, got {self.shape}")
        return self.swap(-2, -1)

    def swap(self, a: int, b: int) -> Self:
        """Two axes swapped."""
        a, b = self.shape.axis(a, "swap"), self.shape.axis(b, "swap")
        order = list(self.shape.axes)
        order[a], order[b] = b, a
        return self.permute(order)

    def squeeze(self, axis: int) -> Self:
        """Without an axis of extent 1."""
        axis = self.shape.axis(axis, "squeeze")
        if self.shape[axis] != 1:
            raise ShapeError(f"squeeze: axis {axis} of {self.shape} must have extent 1, got {self.shape[axis]}")
        return self.reshape(self.shape.without_axis(axis))

    def unsqueeze(self, axis: int) -> Self:
        """With a new axis of extent 1, which is axis `axis` of the result."""
        position = self.shape.gap(axis, "unsqueeze")
        return self.reshape(self.shape.with_axis(position, 1))

    @whole_or_nothing
    def broadcast_to(self, shape: Iterable[int]) -> Self:
        """Spread to `shape`, aligned at the last axis: axes of extent 1 and missing leading axes are repeated."""
        target = Shape(shape)
        missing = target.rank - self.shape.rank
        if missing < 0 or any(own not in (1, extent) for own, extent in zip(self.shape, target[missing:], strict=True)):
            raise ShapeError(f"broadcast_to: {self.shape} does not spread to {target}")
        if not self.shape:
            return self.broadcast(target) if target else self
        kept = [axis for axis in target.axes if axis >= missing and self.shape[axis - missing] == target[axis]]
        result = self.reshape([target[axis] for axis in kept]) if len(kept) < self.shape.rank else self
        for axis in target.axes:
            if axis not in kept:
                result = result.broadcast_along(axis, target[axis])
        return result

    @whole_or_nothing
    def __getitem__(self, index: Any) -> Self:
        narrows, shape = indexed(self.shape, index)
        result = self
        for axis, start, length in narrows:
            result = result.narrow(axis, start, length)
        return result if shape == result.shape else result.reshape(shape)

    # questions only a computed value answers
    def __iter__(self) -> NoReturn:
        raise RecordedError(
            "iteration: a value is not iterated; take parts with x[i], or read the numbers: run.of(symbol).numpy()"
        )

    def __bool__(self) -> NoReturn:
        raise RecordedError(
            "bool: a value has no one truth; choose with where(mask, a, b) and .step(threshold), or read the number: "
            "float(run.of(symbol))"
        )

    def _compared(self, other: Any) -> NoReturn:
        raise RecordedError(
            "comparison: values are not ordered; x.step(threshold) is 1 where x >= threshold, and where(mask, a, b) "
            "chooses; or compare the numbers: float(run.of(symbol))"
        )

    __lt__ = __le__ = __gt__ = __ge__ = _compared
