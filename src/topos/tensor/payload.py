"""What a caller may hand in where a payload is wanted, by one rule."""

from __future__ import annotations

import operator
from collections import UserList, deque
from functools import lru_cache
from typing import Any

import numpy as np

from topos.element import Element, bf16, f32, f64
from topos.element.built_in import BUILT_IN
from topos.element.element import Array
from topos.element.machine import check_arithmetic
from topos.errors import ElementError
from topos.shape import Shape
from topos.tensor.memory import owned


def as_array(payload: Any) -> Array:
    """A number, list, NumPy array, or anything that speaks DLPack or `__array__`, as a NumPy array; not copied.

    Raises `ElementError` for what holds no numbers.
    """
    if isinstance(payload, np.ndarray):
        if type(payload) is not np.ndarray:
            if isinstance(payload, np.ma.MaskedArray) and np.ma.is_masked(payload):
                raise ElementError("payload: a masked array has places without a number; see array.filled(number)")
            return np.asarray(payload)  # a matrix keeps two axes for ever
        return payload
    try:
        array = _imported(payload)
    except (ValueError, TypeError, BufferError, RuntimeError) as error:
        raise ElementError(f"payload: cannot read numbers from {type(payload).__name__}: {error}") from None
    if isinstance(payload, int) and array.dtype.kind == "O":
        raise ElementError(f"payload: an integer of more than 64 bits, {payload}; write it as a float")
    if array.dtype.kind == "O" or array.dtype.kind in "SUmM":
        raise ElementError(f"payload: cannot read numbers from {type(payload).__name__} {payload!r:.60}")
    return array


def _imported(payload: Any) -> Array:
    if hasattr(payload, "__dlpack__") and not isinstance(payload, np.generic):
        return np.from_dlpack(payload)
    return np.asarray(payload)


def element_of(payload: Any, array: Array) -> Element:
    """The element that a payload keeps when none is asked for: f64 and bf16 arrays their own, everything else f32."""
    if isinstance(payload, (int, float, *_LISTS)) and not isinstance(payload, np.generic):
        return f32
    if array.dtype.kind == "f" and array.dtype.itemsize == f64.dtype.itemsize:  # in either byte order
        return f64
    return bf16 if array.dtype == bf16.dtype else f32


def number_of(payload: Any, element: Element) -> Array | None:
    """A Python number in a built-in element, of rank 0, read once for many uses; `None` where it has to be read anew.

    Rules say the same few numbers at every step, and to read one costs twice what an instruction does.
    """
    if type(payload) is not float and type(payload) is not int or element not in BUILT_IN:
        return None
    return _number(payload, payload == 0 and repr(payload), element)


@lru_cache(256, typed=True)  # an int from a float
def _number(payload: float, zero: str | bool, element: Element) -> Array:
    """`zero` tells -0.0 from 0.0."""
    number = owned(rounded(payload, as_array(payload), element), False)
    number.setflags(write=False)
    return number


def count_in(element: Element, count: Any) -> Array:
    """An integer in an element, of rank 0, rounded to nearest even. Raises `ElementError` for anything else."""
    if type(count) is not int:
        try:
            count = operator.index(count)
        except TypeError:
            raise ElementError(f"counted: wants an integer, got {count!r}") from None
    return np.asarray(element.from_count(count))


def everywhere(number: Array, shape: Shape) -> Array:
    """A number of rank 0 at every place of `shape`, stored once: NumPy's `broadcast_to` in a fifth of its time."""
    if number.dtype.hasobject:
        return np.broadcast_to(number, shape)
    number.setflags(write=False)
    return np.ndarray(shape, number.dtype, number, 0, (0,) * len(shape))


def rounded(payload: Any, array: Array, element: Element) -> Array:
    """The array that a payload was read as, as the element's, each number rounded once; the same where none changes."""
    check_arithmetic()
    with np.errstate(all="ignore"):
        if array.dtype.kind == "f" and isinstance(payload, _LISTS):
            _check_integers(payload, element)
        return element.admit(array)


def digits(array: Array, before: str) -> str:
    """An array for people, behind what stands before it on its line."""
    return np.array2string(array, separator=", ", threshold=64, prefix=before)


def _check_integers(numbers: Any, element: Element) -> None:
    """Integers among floats, which NumPy turns into floats unasked: as exact as alone, or refused."""
    for number in numbers:
        if type(number) is float:
            continue
        if isinstance(number, _LISTS):
            _check_integers(number, element)
        elif isinstance(number, int | np.integer):
            if not -EXACT <= number <= EXACT:
                element.admit(as_array(number))
        elif isinstance(number, np.ndarray):
            element.admit(as_array(number))


_LISTS = (list, tuple, deque, UserList)
EXACT = 256
"""Up to here every built-in element holds every integer."""
