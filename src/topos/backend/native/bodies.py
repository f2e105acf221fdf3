"""The arithmetic of a user's element over lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from topos.backend.native.arithmetic import Arithmetic, lanes
from topos.backend.native.registers import Operand
from topos.backend.native.vocabulary import AS_INTEGER, Lanes, NativeReading
from topos.element import Element, Native
from topos.element.native import OPERATIONS


class ByBodies(Arithmetic):
    """The arithmetic of a user's element by its `Native` contract: every operation is the body that NumPy reads."""

    def __init__(self, reading: NativeReading, element: Element, native: Native) -> None:
        self.element, self.native = element, native
        self.item, self.stored, self.bytes = native.registers, native.stored, element.dtype.itemsize
        super().__init__(reading)

    def opened(self, stored: Operand) -> Lanes:
        if self.native.opened is None:
            return super().opened(stored)
        wide = AS_INTEGER[self.item]
        pattern = stored if stored.type.item == wide else self.reading.convert("zext", stored, wide)
        return lanes(self.native.opened(self.reading, self.reading.lanes_of(pattern)))

    def closed(self, value: Lanes) -> Operand:
        if self.native.closed is None:
            return value
        pattern = lanes(self.native.closed(self.reading, value))
        return pattern if pattern.type.item == self.stored else self.reading.convert("trunc", pattern, self.stored)

    def constant(self, number: Any) -> Lanes:
        """A number as it lies in memory, or a plain Python number that the element holds, in every lane."""
        if isinstance(number, np.generic) and number.dtype == self.element.dtype:
            number = self.native.widened(np.asarray(number)).item()
        return super().constant(number)

    def rounded(self, value: Lanes) -> Lanes:
        """A result of the registers' arithmetic as a number of the element."""
        return lanes(self.native.to_element(self.reading, value))


def _by_body(name: str) -> Callable[..., Lanes]:
    def operation(self: ByBodies, *operands: Lanes) -> Lanes:
        return lanes(self.native.operation(name)(self.reading, *operands))

    operation.__doc__ = f"The body of `{name}`."
    return operation


for _name in OPERATIONS:
    setattr(ByBodies, _name, _by_body(_name))
