"""Instructions over tensors as data: what runs together, how long NumPy takes for it, and NumPy running it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from topos.element import Element, bf16, f32, f64
from topos.element.built_in import BUILT_IN
from topos.element.element import Array
from topos.op import (
    Cast,
    Elementwise,
    Gather,
    LogSoftmax,
    LogSumExp,
    Map,
    MatMul,
    Opcode,
    Powf,
    Reduction,
    Scatter,
)
from topos.op.kinds import ByKind
from topos.op.maps import Sqrt
from topos.records import NamedTuple
from topos.shape import Shape
from topos.tensor.evaluate import Operand, kernel_of


class Source(Operand, Protocol):
    """A tensor, or what stands for one."""

    @property
    def shape(self) -> Shape:
        """Its extents."""


class Step(NamedTuple):
    """One instruction; an operand at or above 0 is an earlier step, `~i` is source `i`."""

    opcode: Opcode
    element: Element
    shape: Shape
    operands: tuple[int, ...]


class Work(NamedTuple):
    """Steps in order over tensors, and which of them are wanted; every step is wanted or read by a later one."""

    sources: Sequence[Source]
    steps: list[Step]
    wanted: tuple[int, ...]

    @property
    def reference_ns(self) -> float:
        """How long NumPy takes for it, roughly."""
        return sum(step_ns(step.opcode, step.element, self._shapes(step), step.shape) for step in self.steps)

    def by_numpy(self) -> list[Array]:
        """What is wanted, by the kernels that define the bits, one step after another."""
        last = {operand: at for at, step in enumerate(self.steps) for operand in step.operands}
        values: dict[int, Any] = {~at: source for at, source in enumerate(self.sources)}
        with np.errstate(all="ignore"):
            for at, (opcode, element, _, operands) in enumerate(self.steps):
                array = kernel_of(opcode)(opcode, element, [values[operand] for operand in operands])
                values[at] = _Dense(element, np.asarray(array))
                for operand in operands:
                    if last[operand] == at and operand not in self.wanted:
                        values.pop(operand, None)
        return [values[at].array for at in self.wanted]

    def _shapes(self, step: Step) -> list[Shape]:
        return [self.steps[o].shape if o >= 0 else self.sources[~o].shape for o in step.operands]


class _Dense(NamedTuple):
    """A step's numbers as the operand of a kernel."""

    element: Element | None
    array: Array
    ids: Array | None = None
    vocab: int = 0

    def dense(self, element: Element) -> Array:
        return self.array


# Nanoseconds that NumPy takes a place, measured on one machine (benchmarks/eager.py prints them): f32, f64, bf16. They
# only say when a kernel is worth its compilation, so a factor of two does not matter.
_PLAIN, _DEAR, _ADDED, _PRODUCT = (0.5, 1.0, 4.0), (15.0, 30.0, 15.0), (1.0, 1.5, 1.5), (2.0, 12.0, 2.0)


def step_ns(opcode: Opcode, element: Element, shapes: Sequence[Shape], shape: Shape) -> float:
    """How long NumPy takes for one instruction over operands of these shapes; 0 for what only moves numbers."""
    if element not in BUILT_IN:
        return 0.0
    rates, places = _ESTIMATES[type(opcode)]
    return rates[_COLUMN[element]] * places(shapes, shape)


Estimate = tuple[tuple[float, float, float], Callable[[Sequence[Shape], Shape], int]]
_COLUMN = {f32: 0, f64: 1, bf16: 2}


def _read(shapes: Sequence[Shape], shape: Shape) -> int:
    return prod(shapes[0])


def _written(shapes: Sequence[Shape], shape: Shape) -> int:
    return prod(shape)


def _multiplied(shapes: Sequence[Shape], shape: Shape) -> int:
    return prod(shape) * shapes[0][-1]


def _none(shapes: Sequence[Shape], shape: Shape) -> int:
    return 0


_ESTIMATES = ByKind[Estimate](
    {
        Opcode: (_PLAIN, _none),
        Elementwise: (_PLAIN, _written),
        Cast: (_PLAIN, _written),
        Map: (_DEAR, _written),
        Sqrt: (_PLAIN, _written),
        Powf: (_DEAR, _written),
        Gather: (_PLAIN, _written),
        Scatter: (_ADDED, _read),
        Reduction: (_ADDED, _read),
        LogSumExp: (_DEAR, _read),
        LogSoftmax: (_DEAR, _read),
        MatMul: (_PRODUCT, _multiplied),
    }
)
