"""The elementary functions of one operand: each a `Map`, printed under its own name."""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar

from topos.op.elementwise import Elementwise
from topos.op.opcode import Cotangents


class MapOperation(Enum):
    """Which elementary function a `Map` is; the value is the element's method."""

    EXP = "exp"
    LN = "ln"
    SQRT = "sqrt"
    TANH = "tanh"
    SIN = "sin"
    COS = "cos"
    LOG1P = "log1p"
    EXPM1 = "expm1"
    ERF = "erf"
    ERF_DERIVATIVE = "erf_derivative"


class Map(Elementwise):
    """An elementary function, element by element."""

    __slots__ = ()
    operation: ClassVar[MapOperation]
    roles = ("operand",)

    def body(self, m: Any, x: Any) -> Any:
        return getattr(m, self.operation.value)(x)


class Exp(Map):
    """`e ** x`."""

    __slots__ = ()
    operation = MapOperation.EXP
    reads_output = True

    def derivative(self, seed: Any, y: Any, x: Any) -> Cotangents:
        return (seed * y,)


class Ln(Map):
    """The natural logarithm."""

    __slots__ = ()
    operation = MapOperation.LN
    reads = (0,)

    def derivative(self, seed: Any, y: Any, x: Any) -> Cotangents:
        return (seed / x,)


class Sqrt(Map):
    """The square root."""

    __slots__ = ()
    operation = MapOperation.SQRT
    reads_output = True

    def derivative(self, seed: Any, y: Any, x: Any) -> Cotangents:
        return (seed / (y + y),)


class Tanh(Map):
    """The hyperbolic tangent."""

    __slots__ = ()
    operation = MapOperation.TANH
    reads_output = True

    def derivative(self, seed: Any, y: Any, x: Any) -> Cotangents:
        return (seed * (y.one_like() - y * y),)


class Sin(Map):
    """The sine of `x` radians."""

    __slots__ = ()
    operation = MapOperation.SIN
    reads = (0,)

    def derivative(self, seed: Any, y: Any, x: Any) -> Cotangents:
        return (seed * x.cos(),)


class Cos(Map):
    """The cosine of `x` radians."""

    __slots__ = ()
    operation = MapOperation.COS
    reads = (0,)

    def derivative(self, seed: Any, y: Any, x: Any) -> Cotangents:
        return (-(seed * x.sin()),)


class Log1p(Map):
    """`ln(1 + x)`."""

    __slots__ = ()
    operation = MapOperation.LOG1P
    reads = (0,)

    def derivative(self, seed: Any, y: Any, x: Any) -> Cotangents:
        return (seed / (x.one_like() + x),)


class Expm1(Map):
    """`e ** x - 1`. The derivative takes the exponential again: `y + 1` has lost every digit at `x = -20`."""

    __slots__ = ()
    operation = MapOperation.EXPM1
    reads = (0,)

    def derivative(self, seed: Any, y: Any, x: Any) -> Cotangents:
        return (seed * x.exp(),)


class Erf(Map):
    """The error function."""

    __slots__ = ()
    operation = MapOperation.ERF
    reads = (0,)

    def derivative(self, seed: Any, y: Any, x: Any) -> Cotangents:
        return (seed * x.erf_derivative(),)


class ErfDerivative(Map):
    """`2 / sqrt(pi) * exp(-x * x)`. Its derivative is 0 where it has vanished, so that infinity times 0 never forms."""

    __slots__ = ()
    operation = MapOperation.ERF_DERIVATIVE
    reads = (0,)
    reads_output = True

    def derivative(self, seed: Any, y: Any, x: Any) -> Cotangents:
        return (seed * y.select(-(x + x) * y, y.zero_like()),)


MAPS: dict[MapOperation, Map] = {
    opcode.operation: opcode
    for opcode in (Exp(), Ln(), Sqrt(), Tanh(), Sin(), Cos(), Log1p(), Expm1(), Erf(), ErfDerivative())
}
