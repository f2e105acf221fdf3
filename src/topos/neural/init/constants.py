"""Initialisers without a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from topos.element import Element
from topos.errors import SettingError
from topos.neural.init.seeded import made
from topos.neural.limits import is_number
from topos.shape import Shape
from topos.tensor import Tensor


def constant(number: float) -> Callable[[Iterable[int], Element], Tensor]:
    """One number at every place, rounded once and stored once."""
    if not is_number(number):
        raise SettingError(f"init.constant: wants a number, got {number!r}")

    def filled(shape: Iterable[int], element: Element) -> Tensor:
        return Tensor.filled(Shape(shape), made("constant", np.array(float(number)), element), element)

    return filled


def zeros(shape: Iterable[int], element: Element) -> Tensor:
    """Zero at every place; itself an initialiser."""
    return constant(0.0)(shape, element)


def ones(shape: Iterable[int], element: Element) -> Tensor:
    """One at every place; itself an initialiser."""
    return constant(1.0)(shape, element)
