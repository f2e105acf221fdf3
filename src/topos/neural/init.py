"""Initialisers: closures from a shape and an element to a payload, the same bits on every machine."""

from __future__ import annotations

from topos.element import Element
from topos.shape import Shape
from topos.tensor import Tensor

__all__ = ["zeros"]


def zeros(shape: Shape, element: Element) -> Tensor:
    """All zero."""
    return Tensor.filled(shape, 0, element)
