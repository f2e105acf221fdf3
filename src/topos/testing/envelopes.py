"""How far from the defining numbers a backend within an envelope may be: a bound for each place of a result."""

from __future__ import annotations

from typing import Any

import numpy as np

from topos.backend import Formula, Task
from topos.element import Element, bf16, f32, f64
from topos.element.element import Array
from topos.op import Fold, Scatter, Sum, SumAlong
from topos.tensor import Tensor
from topos.tensor.evaluate import kernel_of

HALF_ULP: dict[Element, float] = {f32: 2.0**-24, f64: 2.0**-53, bf16: 2.0**-8}
"""Half an ulp of one: how far one rounding moves a number, as a share of it."""
TINY: dict[Element, float] = {f32: 2.0**-149, f64: 2.0**-1074, bf16: 2.0**-133}
"""The least number: how far one rounding moves what is nearly zero."""
MAP_ULP = 4


def envelope(task: Task, reference: Array) -> Array:
    """The largest distance from the reference, place by place, that `Fidelity.ENVELOPE` allows.

    Sums and products of n terms: `2 (n + 2) u` times the same sum of the terms' magnitudes, since both orders are
    within half of that of the true sum. Maps: 4 ulp. Normalisers: `2 (n + 16) u` times one more than the largest
    magnitude. All else moves numbers: nothing.
    """
    u, tiny = HALF_ULP[task.element], TINY[task.element]
    wide = np.abs(reference.astype(np.float64))
    if task.formula is Formula.MAP:
        return MAP_ULP * np.maximum(2 * u * wide, tiny)
    terms = _terms(task)
    if terms is None:
        return np.zeros(reference.shape)
    if task.formula is Formula.REDUCE:
        (x,) = task.arrays()
        largest = np.max(np.abs(x.astype(np.float64)), initial=0.0)
        return np.full(reference.shape, 2 * (terms + 16) * u * (1 + largest + np.max(wide, initial=0.0)))
    return 2 * (terms + 2) * (u * _magnitudes(task) + tiny) + 2 * u * wide


def _terms(task: Task) -> int | None:
    """How many numbers are added up at a place, at most; `None` where none are."""
    opcode, first = task.opcode, task.operands[0].shape
    if task.formula is Formula.GEMM:
        return first[-1]
    if isinstance(opcode, Sum):
        return first.volume
    if isinstance(opcode, Fold):
        return opcode.size
    if isinstance(opcode, Scatter):
        return first[0]
    normalises = task.formula is Formula.REDUCE and opcode.name != "MaxAlong"
    return first[opcode.axis] if normalises or isinstance(opcode, SumAlong) else None  # type: ignore[attr-defined]


def _magnitudes(task: Task) -> Array:
    """The instruction over the operands' magnitudes, in f64."""
    operands: list[Any] = [
        operand if operand.element is None else Tensor(np.abs(operand.dense(task.element).astype(np.float64)), f64)
        for operand in task.operands
        if isinstance(operand, Tensor)
    ]
    return kernel_of(task.opcode)(task.opcode, f64, operands)
