"""Equality of results by their bits: shape, dtype and every bit, but that any NaN equals any NaN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import Any, TypeGuard

import numpy as np

from topos.element.element import Array
from topos.testing.bits import distance, has_bits, is_nan, native, patterns, shown


def same_bits(a: object, b: object) -> bool:
    """Whether two results have the same shape, dtype and bits; any NaN equals any NaN, `-0.0` is not `0.0`.

    Takes arrays of any strides, NumPy and Python numbers, whatever has a `.numpy()` (a Tensor) or a `.payloads()` (a
    table), and sequences and mappings of these, which must have the same structure. A structured array is compared
    field by field, whatever lies between the fields. `None`, an absent slot, equals `None`.

    Raises `TypeError` for what has no bits to compare: objects, text, complex and extended floats.
    """
    return _difference(a, b, "") is None


def assert_same_bits(actual: object, expected: object) -> None:
    """`same_bits`, or an `AssertionError` that says how many places differ and shows the first of them.

    The first place comes with its index, both values, their bit patterns and their distance in ulp.
    """
    __tracebackhide__ = True
    difference = _difference(actual, expected, "")
    if difference is not None:
        raise AssertionError(difference)


def _difference(actual: object, expected: object, path: str) -> str | None:
    """What differs first, in words, or None; `path` leads from the outermost result to these two."""
    actual, expected = _opened(actual), _opened(expected)
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        return _mapping_difference(actual, expected, path)
    if _is_sequence(actual) and _is_sequence(expected):
        return _sequence_difference(actual, expected, path)
    if isinstance(actual, np.ndarray) and isinstance(expected, np.ndarray):
        return _array_difference(actual, expected, path)
    if actual is None and expected is None:
        return None
    return _facts(path, "structure", _kind(actual), _kind(expected))


def _opened(result: object) -> Any:
    """A result as what it holds: an array, a sequence, a mapping or None."""
    for reading in ("numpy", "payloads"):
        read = getattr(result, reading, None)
        if callable(read):
            return _opened(read())
    if result is None or isinstance(result, Mapping) or _is_sequence(result):
        return result
    return np.asarray(result)


def _is_sequence(result: object) -> TypeGuard[Sequence[object]]:
    return isinstance(result, Sequence) and not isinstance(result, str | bytes)


def _kind(result: object) -> str:
    if isinstance(result, np.ndarray):
        return f"{result.dtype} {list(result.shape)}"
    return f"{type(result).__name__} of {len(result)}" if isinstance(result, Sized) else "None"


def _mapping_difference(actual: Mapping[Any, object], expected: Mapping[Any, object], path: str) -> str | None:
    if actual.keys() != expected.keys():
        return _facts(path, "keys", list(actual), list(expected))
    return next(filter(None, (_difference(actual[key], expected[key], f"{path}[{key!r}]") for key in expected)), None)


def _sequence_difference(actual: Sequence[object], expected: Sequence[object], path: str) -> str | None:
    if len(actual) != len(expected):
        return _facts(path, "length", len(actual), len(expected))
    pairs = enumerate(zip(actual, expected, strict=True))
    return next(filter(None, (_difference(*pair, f"{path}[{position}]") for position, pair in pairs)), None)


def _array_difference(actual: Array, expected: Array, path: str) -> str | None:
    if actual.shape != expected.shape:
        return _facts(path, "shape", list(actual.shape), list(expected.shape))
    if actual.dtype != expected.dtype:
        return _facts(path, "dtype", actual.dtype, expected.dtype)
    return _field_difference(actual, expected, path)


def _field_difference(actual: Array, expected: Array, path: str) -> str | None:
    """The first difference of arrays of one dtype: of the fields in turn where it is structured."""
    names = actual.dtype.names
    if names is None:
        return _bits_difference(native(actual), native(expected), path)
    fields = (_field_difference(actual[name], expected[name], f"{path}[{name!r}]") for name in names)
    return next(filter(None, fields), None)


def _bits_difference(actual: Array, expected: Array, path: str) -> str | None:
    if not has_bits(actual.dtype):
        raise TypeError(f"same_bits: cannot compare the bits of dtype {actual.dtype}")
    differs = (patterns(actual) != patterns(expected)) & ~(is_nan(actual) & is_nan(expected))
    count = np.count_nonzero(differs)
    if count == 0:
        return None
    index = tuple(int(axis[0]) for axis in np.nonzero(differs)) if differs.ndim else ()
    left, right = np.asarray(actual[index]), np.asarray(expected[index])
    first = f"bits: {count} of {differs.size} differ, the first at {list(index)}"
    return f"{_facts(path, first, shown(left), shown(right))}\n  distance  {distance(left, right)}"


def _facts(path: str, rule: str, actual: object, expected: object) -> str:
    place = f" in {path}" if path else ""
    return f"{rule}{place}\n  actual    {actual}\n  expected  {expected}"
