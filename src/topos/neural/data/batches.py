"""Batches of rows in a seeded order."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from topos.element import bf16
from topos.errors import SettingError, ShapeError
from topos.neural.stream import Stream


def batches(arrays: Any, size: int, seed: int, *, epoch: int = 0, keep: bool = False, pad: Any = None) -> Iterator[Any]:
    """The rows of one epoch, `size` at a time: a nesting like `arrays` with the same rows of each.

    `arrays` is an array, or a tuple, list or dict of such, each with a row along its first axis for every example. The
    order is that of the seed and the epoch alone: `Stream(seed, epoch)` gives a draw, which is the seed of the stream
    that orders the rows (`Stream.order`), so that a training that is taken up again goes on with the same batches.

    What is left after the last whole batch is dropped; with `keep` it comes as a shorter batch; with `pad` it is filled
    up to `size` with rows of that number (an absent id, a zero), one for all arrays or a nesting of one for each, and
    every batch has the same shapes. Raises `ShapeError` for arrays of different lengths, `SettingError` for a size
    below 1, for one that would drop every row, and for a `pad` that is unlike the arrays.

    >>> for rows, labels in batches((np.array([[1.0], [2.0], [3.0]]), np.array([0, 1, 0])), 2, seed=7, pad=(0, -1)):
    ...     print(rows.tolist(), labels.tolist())
    [[1.0], [2.0]] [0, 1]
    [[3.0], [0.0]] [0, -1]
    """
    size, epoch = _whole("size", size, 1), _whole("epoch", epoch, 0)
    count = _length(arrays)
    if pad is not None:
        _mapped(_checked, arrays, pad)
    elif count < size and not keep:
        raise SettingError(f"batches: {count} rows make no batch of {size}; keep=True takes fewer, pad fills them up")
    order = Stream(int(Stream(seed, epoch).integers(1)[0])).order(count)
    return _taken(arrays, order, size, keep, pad)


def _taken(arrays: Any, order: np.ndarray[Any, Any], size: int, keep: bool, pad: Any) -> Iterator[Any]:
    whole = len(order) // size * size
    for start in range(0, whole, size):
        rows = order[start : start + size]
        yield _mapped(lambda array, _: array[rows], arrays, None)  # noqa: B023 - called at once
    rest = order[whole:]
    if len(rest) and pad is not None:
        yield _mapped(lambda array, number: _filled(array[rest], size, number), arrays, pad)
    elif len(rest) and keep:
        yield _mapped(lambda array, _: array[rest], arrays, None)


def _checked(array: np.ndarray[Any, Any], number: Any) -> None:
    """Raises `SettingError` for a number that the array would hold as another one, rounding apart."""
    try:
        with np.errstate(all="ignore"):
            held = np.array(number, array.dtype).reshape(())
            fits = _fits(held, number, array.dtype)
    except (OverflowError, ValueError, TypeError):
        fits = False
    if not fits:
        raise SettingError(f"batches: pad {number!r} is no number of an array of {array.dtype}")


def _fits(held: np.ndarray[Any, Any], number: Any, dtype: np.dtype[Any]) -> bool:
    if number is None or (isinstance(number, str) and dtype.kind not in "UTO"):
        return False
    return bool(np.isinf(held) <= np.isinf(number)) if _is_real(dtype) else bool(held == number)


def _is_real(dtype: np.dtype[Any]) -> bool:
    """Whether numbers are rounded to it: then any finite one is near one that it has."""
    return dtype.kind in "fc" or dtype == bf16.dtype


def _whole(name: str, number: Any, least: int) -> int:
    try:
        whole = operator.index(number) if not isinstance(number, bool) else least - 1
    except TypeError:
        whole = least - 1
    if whole < least:
        raise SettingError(f"batches: {name} must be a whole number of {least} or more, got {number!r}")
    return whole


def _filled(rows: np.ndarray[Any, Any], size: int, number: Any) -> np.ndarray[Any, Any]:
    result = np.full((size, *rows.shape[1:]), number, rows.dtype)
    result[: len(rows)] = rows
    return result


def _mapped(function: Callable[[Any, Any], Any], arrays: Any, beside: Any) -> Any:
    """The function over each array of a nesting and what stands beside it: one for all, or a nesting like it."""
    if isinstance(arrays, dict):
        numbers = beside if isinstance(beside, dict) else dict.fromkeys(arrays, beside)
        if arrays.keys() != numbers.keys():
            _agree(list(arrays), list(numbers))
        return {key: _mapped(function, part, numbers[key]) for key, part in arrays.items()}
    if isinstance(arrays, list | tuple):
        others = beside if isinstance(beside, list | tuple) else [beside] * len(arrays)
        _agree(len(arrays), len(others))
        parts = [_mapped(function, part, other) for part, other in zip(arrays, others, strict=True)]
        return type(arrays)(*parts) if hasattr(arrays, "_fields") else type(arrays)(parts)
    return function(np.asarray(arrays), beside)


def _agree(arrays: Any, beside: Any) -> None:
    if arrays != beside:
        raise SettingError(f"batches: pad is unlike the arrays: {beside} beside {arrays}")


def _length(arrays: Any) -> int:
    """The extent of the first axis, which all arrays share."""
    lengths: list[int] = []

    def noted(array: Any, _: Any) -> None:
        if not array.ndim:
            raise ShapeError("batches: wants arrays of rank 1 or more, got a number")
        lengths.append(len(array))

    _mapped(noted, arrays, None)
    if len(set(lengths)) != 1:
        raise ShapeError(f"batches: arrays must have the same number of rows, got {lengths}")
    return lengths[0]
