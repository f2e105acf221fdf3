"""The product of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from topos.errors import ShapeError
from topos.op.opcode import Cotangents, Opcode
from topos.shape import Shape


class MatMul(Opcode):
    """`[..., rows, inner] @ [..., inner, columns]`, with equal leading axes: one product per batch position.

    Each output element is a chain of fused multiply-adds over ascending `inner`, in blocks of 512
    (`topos.reference.matmul`).
    """

    __slots__ = ()
    rule = "matmul"
    roles = ("left", "right")
    reads = (0, 1)

    def result_shape(self, shapes: Sequence[Shape]) -> Shape:
        """`[..., rows, columns]`."""
        left, right = shapes
        if left.rank < 2 or right.rank < 2:
            raise ShapeError(f"matmul: operands must have rank 2 or more, got left {left} and right {right}")
        if left[-1] != right[-2]:
            raise ShapeError(
                f"matmul: inner axes must be equal, got {left[-1]} in left {left} and {right[-2]} in right {right}"
            )
        if left[:-2] != right[:-2]:
            raise ShapeError(
                f"matmul: leading axes must be equal, got left {left} and right {right}{_hint(left, right)}"
            )
        return Shape((*left[:-1], right[-1]))

    def derivative(self, seed: Any, output: Any, left: Any, right: Any) -> Cotangents:
        return seed.matmul(_transposed(right, seed)), _transposed(left, seed).matmul(seed)


def _hint(left: Shape, right: Shape) -> str:
    """How one matrix meets several, where one way does it."""
    if right.rank == 2:
        return f"; make one matrix of left with left.reshape({Shape([prod(left[:-1]), left[-1]])})"
    return f"; spread it with left.broadcast_along(0, {right[0]})" if (left.rank, right.rank) == (2, 3) else ""


def _transposed(x: Any, seed: Any) -> Any:
    """The operand transposed; a selection, which beside the other agreed with any element, in the product's."""
    *leading, rows, columns = x.shape.axes
    return x.permute([*leading, columns, rows]).to(seed.element)


MATMUL = MatMul()
