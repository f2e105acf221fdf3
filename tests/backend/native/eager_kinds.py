"""Every piece of work offered to native kernels, however small; and tensors of every layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from topos import Tensor
from topos.backend.native import eager
from topos.element import Element
from topos.op import Opcode
from topos.tensor import offer, services
from topos.tensor import tensor as tensors
from topos.tensor.evaluate import kernel_of

Array = np.ndarray[Any, np.dtype[Any]]


def offer_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is too small, and no kernel too dear; nothing is known from before."""
    for limit in ("LEAST_NS", "LOADED_NS", "PASS_NS", "RULE_NS", "LEAST_PLACES", "LEAST_PRODUCTS"):
        monkeypatch.setattr(offer, limit, 0)
    monkeypatch.setattr(tensors, "LEAST_PLACES", 0)
    for cost in ("PROGRAM_NS", "STEP_NS", "PRODUCT_NS"):
        monkeypatch.setattr(eager, cost, 0.0)
    eager._kinds.clear()


@contextmanager
def native_steps(count: int | None = None) -> Iterator[None]:
    """Holds that so many instructions run natively inside; any number above none where it is not given."""
    with services.tallied() as tally:
        yield
    served = tally.count(backend="SIMD") + tally.count(backend="FUSED")
    assert served == count if count is not None else served


def by_definition(opcode: Opcode, element: Element, *operands: Tensor) -> Array:
    """What the kernels that define the bits answer."""
    with np.errstate(all="ignore"):
        return np.asarray(kernel_of(opcode)(opcode, element, operands))


def _like(array: Array, made: Array) -> Array:
    made[...] = array
    return made


def _misaligned(array: Array) -> Array:
    memory = np.zeros(array.nbytes + 1, np.uint8)
    return _like(array, memory[1:].view(array.dtype).reshape(array.shape))


def _reversed(array: Array) -> Array:
    return np.ascontiguousarray(array[..., ::-1])[..., ::-1]


def _apart(array: Array) -> Array:
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1] + 3), array.dtype)
    return _like(array, wide[..., 2:-1:2])


def _inside(array: Array) -> Array:
    wide = np.zeros(tuple(extent + 3 for extent in array.shape), array.dtype)
    return _like(array, wide[tuple(slice(1, 1 + extent) for extent in array.shape)])


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "dense": lambda array: array,
    "transposed": lambda array: np.asfortranarray(array),
    "inner axes swapped": lambda array: np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2),
    "inside another": _inside,
    "every second": _apart,
    "backwards": _reversed,
    "misaligned": _misaligned,
    "rows repeated": lambda array: np.broadcast_to(array[:1], array.shape),
    "columns repeated": lambda array: np.broadcast_to(array[..., :1], array.shape),
    "one number": lambda array: np.broadcast_to(array.reshape(-1)[0], array.shape),
}
"""How the same numbers, or some of them again and again, may lie in memory."""


def laid(array: Array, layout: str, element: Element) -> Tensor:
    """A tensor whose array lies so."""
    return Tensor.of(LAYOUTS[layout](array), element)
