"""One lowering per kind of instruction: what each computes over tensors, by the kernels that define the bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from topos import reference
from topos.element import Element
from topos.element.element import Array
from topos.op import Cast, Elementwise, Gather, MatMul, Movement, Opcode, Pad, Reduction, Scatter, Select
from topos.op.kinds import ByKind


class Operand(Protocol):
    """What a kernel needs of a tensor."""

    @property
    def element(self) -> Element | None:
        """The number that fills it; `None` of a selection."""

    @property
    def ids(self) -> Array | None:
        """A selection's ids."""

    @property
    def vocab(self) -> int:
        """How many columns a selection has."""

    def dense(self, element: Element) -> Array:
        """Its numbers as an array, a selection as its one-hot in `element`."""


Kernel = Callable[[Any, Element, Sequence[Operand]], Array]


def kernel_of(opcode: Opcode) -> Kernel:
    """The kernel for an instruction: `kernel(opcode, element, operands)` answers the result's array.

    The caller has checked shapes and elements, and holds `np.errstate(all="ignore")`.
    """
    return _KERNELS[type(opcode)]


def _elementwise(opcode: Elementwise, element: Element, operands: Sequence[Operand]) -> Array:
    result: Array = opcode.body(element, *[operand.dense(element) for operand in operands])
    return result


def _select(opcode: Select, element: Element, operands: Sequence[Operand]) -> Array:
    mask, chosen, other = operands
    if mask.ids is None:
        return _elementwise(opcode, element, operands)
    result = np.array(other.dense(element))
    rows = np.flatnonzero(mask.ids >= 0)
    result[rows, mask.ids[rows]] = chosen.dense(element)[rows, mask.ids[rows]]
    return result


def _cast(opcode: Cast, element: Element, operands: Sequence[Operand]) -> Array:
    source = operands[0].element
    return element.cast(operands[0].dense(source or element), source or element)


def _movement(opcode: Movement, element: Element, operands: Sequence[Operand]) -> Array:
    return opcode.view(operands[0].dense(element))


def _pad(opcode: Pad, element: Element, operands: Sequence[Operand]) -> Array:
    array = operands[0].dense(element)
    shape = (*array.shape[: opcode.axis], opcode.full_extent, *array.shape[opcode.axis + 1 :])
    fill = element.zero if opcode.fills_zero else element.round(np.array(opcode.fill))
    result = np.full(shape, fill, element.dtype)
    opcode.place(result, array.shape[opcode.axis])[...] = array
    return result


def _reduction(opcode: Reduction, element: Element, operands: Sequence[Operand]) -> Array:
    result: Array = opcode.reduce(reference, element, operands[0].dense(element))
    return result


def _matmul(opcode: MatMul, element: Element, operands: Sequence[Operand]) -> Array:
    left, right = operands
    return reference.matmul(element, left.dense(element), right.dense(element))


def _gather(opcode: Gather, element: Element, operands: Sequence[Operand]) -> Array:
    table, selection = operands
    return reference.gather(element, table.dense(element), _ids(selection))


def _scatter(opcode: Scatter, element: Element, operands: Sequence[Operand]) -> Array:
    rows, selection = operands
    return reference.scatter(element, rows.dense(element), _ids(selection), selection.vocab)


def _ids(selection: Operand) -> Array:
    assert selection.ids is not None  # the recording line checked it
    return selection.ids


_KERNELS = ByKind[Kernel](
    {
        Elementwise: _elementwise,
        Select: _select,
        Cast: _cast,
        Movement: _movement,
        Pad: _pad,
        Reduction: _reduction,
        MatMul: _matmul,
        Gather: _gather,
        Scatter: _scatter,
    }
)
