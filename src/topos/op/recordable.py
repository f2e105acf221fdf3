"""What a derivative rule may call: every instruction, and constants of a value's own shape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from topos.errors import ShapeError
from topos.op.contraction import MATMUL
from topos.op.elementwise import ADD, DIV, MAXIMUM, MUL, NEG, POWF, SELECT, STEP, STOP, SUB, Cast
from topos.op.indexing import GATHER, SCATTER
from topos.op.maps import MAPS, MapOperation
from topos.op.movement import Broadcast, BroadcastAlong, Narrow, Pad, Permute, Reshape, Unfold, whole
from topos.op.opcode import Opcode
from topos.op.reduction import SUM, Fold, LogSoftmax, LogSumExp, MaxAlong, SumAlong
from topos.shape import Shape

if TYPE_CHECKING:
    from topos.element import Element

EXP, LN, SQRT, TANH = (
    MAPS[operation] for operation in (MapOperation.EXP, MapOperation.LN, MapOperation.SQRT, MapOperation.TANH)
)
SIN, COS, LOG1P = (MAPS[operation] for operation in (MapOperation.SIN, MapOperation.COS, MapOperation.LOG1P))
EXPM1, ERF = MAPS[MapOperation.EXPM1], MAPS[MapOperation.ERF]
ERF_DERIVATIVE = MAPS[MapOperation.ERF_DERIVATIVE]


def is_number(operand: object) -> bool:
    """Whether an operand is a bare number, which takes the shape of what it stands beside; an array keeps its own."""
    return isinstance(operand, int | float | np.generic)


class Recordable:
    """A payload that instructions run over: tensors compute, values and traces record, a dual number does both.

    A payload defines `apply(opcode, operands)`, `shape`, `element`, `zero_like`, `one_like` and `counted`; every method
    here builds its instruction and hands it to `apply`. A Python number, an array or a tensor may stand wherever an
    operand may. Negative axes count from the end.
    """

    __slots__ = ()
    __array_ufunc__ = None  # `array * value` must reach __rmul__ whole, not element by element

    # what a payload defines
    def apply(self, opcode: Opcode, operands: tuple[Any, ...]) -> Self:
        """Runs one instruction over operands of which at least one is this payload."""
        raise NotImplementedError(type(self).__name__)

    @property
    def shape(self) -> Shape:
        """The extents, outermost first."""
        raise NotImplementedError(type(self).__name__)

    @property
    def element(self) -> Element | None:
        """The number it holds; `None` for a selection, which agrees with any."""
        raise NotImplementedError(type(self).__name__)

    def zero_like(self) -> Self:
        """A constant zero of this shape and element."""
        raise NotImplementedError(type(self).__name__)

    def one_like(self) -> Self:
        """A constant one of this shape and element."""
        raise NotImplementedError(type(self).__name__)

    def counted(self, count: int) -> Self:
        """A constant of this shape and element: the integer `count`, rounded to nearest even."""
        raise NotImplementedError(type(self).__name__)

    def mark(self) -> Any:
        """Where a recording stands, for `reset`; a payload that computes has nothing to mark."""
        return None

    def reset(self, mark: Any) -> None:
        """Takes a recording back to `mark`, after a composition failed in the middle."""

    # elementwise
    def __add__(self, other: Any) -> Self:
        return self.apply(ADD, (self, other))

    def __radd__(self, other: Any) -> Self:
        return self.apply(ADD, (other, self))

    def __sub__(self, other: Any) -> Self:
        return self.apply(SUB, (self, other))

    def __rsub__(self, other: Any) -> Self:
        return self.apply(SUB, (other, self))

    def __mul__(self, other: Any) -> Self:
        return self.apply(MUL, (self, other))

    def __rmul__(self, other: Any) -> Self:
        return self.apply(MUL, (other, self))

    def __truediv__(self, other: Any) -> Self:
        return self.apply(DIV, (self, other))

    def __rtruediv__(self, other: Any) -> Self:
        return self.apply(DIV, (other, self))

    def __neg__(self) -> Self:
        return self.apply(NEG, (self,))

    def __matmul__(self, other: Any) -> Self:
        return self.apply(MATMUL, (self, other))

    def __rmatmul__(self, other: Any) -> Self:
        return self.apply(MATMUL, (other, self))

    def exp(self) -> Self:
        """`e ** x`."""
        return self.apply(EXP, (self,))

    def ln(self) -> Self:
        """The natural logarithm."""
        return self.apply(LN, (self,))

    def sqrt(self) -> Self:
        """The square root."""
        return self.apply(SQRT, (self,))

    def tanh(self) -> Self:
        """The hyperbolic tangent."""
        return self.apply(TANH, (self,))

    def sin(self) -> Self:
        """The sine of `x` radians."""
        return self.apply(SIN, (self,))

    def cos(self) -> Self:
        """The cosine of `x` radians."""
        return self.apply(COS, (self,))

    def log1p(self) -> Self:
        """`ln(1 + x)`."""
        return self.apply(LOG1P, (self,))

    def expm1(self) -> Self:
        """`e ** x - 1`."""
        return self.apply(EXPM1, (self,))

    def erf(self) -> Self:
        """The error function."""
        return self.apply(ERF, (self,))

    def erf_derivative(self) -> Self:
        """`2 / sqrt(pi) * exp(-x * x)`."""
        return self.apply(ERF_DERIVATIVE, (self,))

    def powf(self, exponent: Any) -> Self:
        """`x ** exponent`: IEEE `pow`."""
        return self.apply(POWF, (self, exponent))

    def maximum(self, other: Any) -> Self:
        """`x` where it is NaN or `x >= other`, else `other`."""
        return self.apply(MAXIMUM, (self, other))

    def step(self, threshold: Any) -> Self:
        """One where `x >= threshold`, else zero; zero with NaN."""
        return self.apply(STEP, (self, threshold))

    def select(self, chosen: Any, other: Any) -> Self:
        """`chosen` where this mask is nonzero (NaN is), else `other`."""
        return self.apply(SELECT, (self, chosen, other))

    def stop(self) -> Self:
        """A copy that passes no cotangent."""
        return self.apply(STOP, (self,))

    def to(self, element: Element) -> Self:
        """The same numbers in another element, each rounded once; itself where it already is of that element."""
        return self if element is self.element else self.apply(Cast(element), (self,))

    # contraction and indexing
    def matmul(self, right: Any) -> Self:
        """`[..., rows, inner] @ [..., inner, columns]` with equal leading axes."""
        return self.apply(MATMUL, (self, right))

    def gather(self, selection: Any) -> Self:
        """Row `ids[i]` of this table at row `i`: `[vocab, ...]` and a selection `[count, vocab]` to `[count, ...]`."""
        return self.apply(GATHER, (self, selection))

    def scatter(self, selection: Any) -> Self:
        """These rows added onto row `ids[i]`: `[count, ...]` and a selection `[count, vocab]` to `[vocab, ...]`."""
        return self.apply(SCATTER, (self, selection))

    # reduction
    def sum(self) -> Self:
        """The sum of all elements, rank 0."""
        return self.apply(SUM, (self,))

    def sum_along(self, axis: int) -> Self:
        """The sum along an axis, which goes."""
        return self.apply(SumAlong(self.shape.axis(axis, "sum_along")), (self,))

    def max_along(self, axis: int) -> Self:
        """The largest along an axis, which goes; NaN if any is."""
        return self.apply(MaxAlong(self.shape.axis(axis, "max_along")), (self,))

    def logsumexp(self, axis: int) -> Self:
        """`ln(sum(exp(x)))` along an axis, which goes."""
        return self.apply(LogSumExp(self.shape.axis(axis, "logsumexp")), (self,))

    def log_softmax(self, axis: int) -> Self:
        """`x - logsumexp(x)` along an axis."""
        return self.apply(LogSoftmax(self.shape.axis(axis, "log_softmax")), (self,))

    def fold(self, axis: int, size: int, step: int, dilation: int, extent: int) -> Self:
        """Windows `(count, size)` at `axis` added back onto an axis of `extent`: the adjoint of `unfold`."""
        axis = self.shape.axis(axis, "fold")
        return self.apply(Fold(axis, size, step, dilation, extent), (self,))

    # movement
    def broadcast(self, shape: Iterable[int]) -> Self:
        """This scalar at every place of `shape`."""
        return self.apply(Broadcast(shape), (self,))

    def broadcast_along(self, axis: int, extent: int) -> Self:
        """Repeated `extent` times along a new axis, which is axis `axis` of the result."""
        axis = whole(axis, "broadcast_along", "axis", -self.shape.rank - 1)
        return self.apply(BroadcastAlong(axis if axis >= 0 else axis + self.shape.rank + 1, extent), (self,))

    def reshape(self, shape: Iterable[int]) -> Self:
        """The same elements in row-major order under another shape of equal volume."""
        return self.apply(Reshape(shape), (self,))

    def permute(self, order: Iterable[int]) -> Self:
        """Axis `i` of the result is axis `order[i]`."""
        try:
            axes = None if isinstance(order, set | frozenset | dict | str) else tuple(order)
        except TypeError:
            axes = None
        if axes is None:
            raise ShapeError(f"permute: order must be a sequence of axes, got {order!r}")
        return self.apply(Permute([self.shape.axis(axis, "permute") for axis in axes]), (self,))

    def narrow(self, axis: int, start: int, length: int) -> Self:
        """`length` places of an axis, from `start`."""
        return self.apply(Narrow(self.shape.axis(axis, "narrow"), start, length), (self,))

    def pad(self, axis: int, start: int, full_extent: int, fill: float = 0.0) -> Self:
        """Placed at `start` of an axis of `full_extent`, with `fill` around it."""
        return self.apply(Pad(self.shape.axis(axis, "pad"), start, full_extent, fill), (self,))

    def unfold(self, axis: int, size: int, step: int = 1, dilation: int = 1) -> Self:
        """Windows of an axis: `(count, size)` in its place, window `w` holding places `w * step + o * dilation`."""
        return self.apply(Unfold(self.shape.axis(axis, "unfold"), size, step, dilation), (self,))
