"""Which instructions have a native reading over which elements."""

from __future__ import annotations

from collections.abc import Sequence

from topos.element import Element, f32, f64
from topos.element.built_in import BUILT_IN
from topos.op import Cast, MatMul, MaxAlong, Opcode, Reduction, Scatter


def has_arithmetic(element: Element) -> bool:
    """Whether an element has a native reading."""
    return element in BUILT_IN or element.native is not None


def has_reading(opcode: Opcode, element: Element, operands: Sequence[Element]) -> bool:
    """Whether kernels may be written for an instruction that answers `element` over operands of these elements.

    Over a user's element, casts and products have none, maxima along an axis neither; what else accumulates has one
    where it does so in `f32` or `f64`.
    """
    elements = {element, *operands}
    if not all(has_arithmetic(one) for one in elements):
        return False
    if elements <= BUILT_IN:
        return True
    if isinstance(opcode, Cast | MatMul | MaxAlong):
        return False
    if element.native is None or not isinstance(opcode, Reduction | Scatter):
        return True
    return element.accumulator is {"float": f32, "double": f64}[element.native.registers]
