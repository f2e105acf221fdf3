"""Instructions that work element by element: a body over the element's arithmetic, which each backend reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from topos.element import Element
from topos.errors import ElementError, ShapeError
from topos.op.opcode import Cotangents, Opcode
from topos.shape import Shape


class Elementwise(Opcode):
    """All operands have one shape, which is the result's; `body(m, *operands)` is the value at each place.

    `m` is an element's arithmetic (`topos.element.Element`): over NumPy arrays it is the definition.
    """

    __slots__ = ()

    def body(self, m: Any, *operands: Any) -> Any:
        """The value at each place, in the arithmetic of `m`."""
        raise NotImplementedError(self.name)

    def result_shape(self, shapes: Sequence[Shape]) -> Shape:
        """Equal shapes, which are the result's."""
        first = shapes[0]
        for shape in shapes:
            if shape is not first and not tuple.__eq__(shape, first):
                raise ShapeError(f"{self.rule}: shapes must be equal, got {_listed(shapes)}{self._hint(shapes)}")
        return first

    def _hint(self, shapes: Sequence[Shape]) -> str:
        """How to spread one operand to the other, where exactly one way does it."""
        if len(shapes) != 2:
            return ""
        for role, small, large in zip(self.roles, shapes, reversed(shapes), strict=True):
            if not small and large:
                return f"; spread it with {role}.broadcast({large})"
            axes = [axis for axis in large.axes if large.without_axis(axis) == small]
            if small.rank == large.rank and all(own in (1, extent) for own, extent in zip(small, large, strict=True)):
                return f"; spread it with {role}.broadcast_to({large})"
            if len(axes) == 1:
                return f"; spread it with {role}.broadcast_along({axes[0]}, {large[axes[0]]})"
        return ""


def _listed(shapes: Sequence[Shape]) -> str:
    return ", ".join(map(str, shapes[:-1])) + f" and {shapes[-1]}"


class Add(Elementwise):
    """`left + right`."""

    __slots__ = ()
    roles = ("left", "right")

    def body(self, m: Any, left: Any, right: Any) -> Any:
        return m.add(left, right)

    def derivative(self, seed: Any, output: Any, left: Any, right: Any) -> Cotangents:
        return seed, seed


class Sub(Elementwise):
    """`left - right`."""

    __slots__ = ()
    roles = ("left", "right")

    def body(self, m: Any, left: Any, right: Any) -> Any:
        return m.sub(left, right)

    def derivative(self, seed: Any, output: Any, left: Any, right: Any) -> Cotangents:
        return seed, -seed


class Mul(Elementwise):
    """`left * right`."""

    __slots__ = ()
    roles = ("left", "right")
    reads = (0, 1)

    def body(self, m: Any, left: Any, right: Any) -> Any:
        return m.mul(left, right)

    def derivative(self, seed: Any, output: Any, left: Any, right: Any) -> Cotangents:
        return seed * right, seed * left


class Div(Elementwise):
    """`left / right`."""

    __slots__ = ()
    roles = ("left", "right")
    reads = (1,)
    reads_output = True

    def body(self, m: Any, left: Any, right: Any) -> Any:
        return m.div(left, right)

    def derivative(self, seed: Any, output: Any, left: Any, right: Any) -> Cotangents:
        quotient = seed / right
        return quotient, -(quotient * output)


class Neg(Elementwise):
    """`-operand`."""

    __slots__ = ()
    roles = ("operand",)

    def body(self, m: Any, x: Any) -> Any:
        return m.neg(x)

    def derivative(self, seed: Any, output: Any, x: Any) -> Cotangents:
        return (-seed,)


class Powf(Elementwise):
    """`base` to the power `exponent`: IEEE `pow`, every special case.

    The derivative guards the inputs of its factors, not its results, so that every order of it is finite where the
    true derivative is.
    """

    __slots__ = ()
    roles = ("base", "exponent")
    reads = (0, 1)
    reads_output = True

    def body(self, m: Any, base: Any, exponent: Any) -> Any:
        return m.powf(base, exponent)

    def derivative(self, seed: Any, output: Any, base: Any, exponent: Any) -> Cotangents:
        # Constants like the output: an operand may be a selection, which has no element of its own.
        lowered = exponent.select(exponent - output.one_like(), output.zero_like())
        by_base = seed * (exponent * base.powf(lowered))
        positive = exponent.step(output.zero_like())
        at_zero = base.select(base, positive.select(output.one_like(), base))
        guarded = output.select(at_zero, output.one_like())
        return by_base, seed * (output * guarded.ln())


class Maximum(Elementwise):
    """`left` where it is NaN or `left >= right`, else `right`: NaN propagates, ties go left."""

    __slots__ = ()
    roles = ("left", "right")
    reads = (0, 1)

    def body(self, m: Any, left: Any, right: Any) -> Any:
        return m.maximum(left, right)

    def derivative(self, seed: Any, output: Any, left: Any, right: Any) -> Cotangents:
        chosen = left.step(right)
        return chosen.select(seed, seed.zero_like()), chosen.select(seed.zero_like(), seed)


class Step(Elementwise):
    """One where `operand >= threshold`, else zero (zero with NaN). Flat: no cotangents."""

    __slots__ = ()
    roles = ("operand", "threshold")

    def body(self, m: Any, x: Any, threshold: Any) -> Any:
        return m.step(x, threshold)

    def derivative(self, seed: Any, output: Any, x: Any, threshold: Any) -> Cotangents:
        return None, None


class Select(Elementwise):
    """`chosen` where the mask is nonzero (NaN is), else `other`; the branch not taken is never mixed in."""

    __slots__ = ()
    roles = ("mask", "chosen", "other")
    reads = (0,)

    def body(self, m: Any, mask: Any, chosen: Any, other: Any) -> Any:
        return m.select(mask, chosen, other)

    def derivative(self, seed: Any, output: Any, mask: Any, chosen: Any, other: Any) -> Cotangents:
        return None, mask.select(seed, seed.zero_like()), mask.select(seed.zero_like(), seed)


class Stop(Elementwise):
    """A copy that passes no cotangent."""

    __slots__ = ()
    roles = ("operand",)

    def body(self, m: Any, x: Any) -> Any:
        return x

    def derivative(self, seed: Any, output: Any, x: Any) -> Cotangents:
        return (None,)


class Cast(Opcode):
    """The operand in another element, rounded once; its cotangent is cast back."""

    __slots__ = ("element",)
    rule = "to"
    roles = ("operand",)
    attributes: ClassVar[tuple[str, ...]] = ("element",)
    element: Element

    def __init__(self, element: Element) -> None:
        if not isinstance(element, Element):
            raise ElementError(f"to: wants an element such as f32, got {element!r}")
        self._freeze(element)

    def result_shape(self, shapes: Sequence[Shape]) -> Shape:
        """The operand's shape."""
        return shapes[0]

    def result_element(self, elements: Sequence[Element | None]) -> Element | None:
        """The element asked for."""
        return self.element

    def derivative(self, seed: Any, output: Any, x: Any) -> Cotangents:
        return (seed.to(x.element or seed.element),)


ADD, SUB, MUL, DIV, NEG = Add(), Sub(), Mul(), Div(), Neg()
POWF, MAXIMUM, STEP, SELECT, STOP = Powf(), Maximum(), Step(), Select(), Stop()
