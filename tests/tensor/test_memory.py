"""Memory for numbers: arrays that begin on a cache line, and where they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from topos.tensor.memory import LINE, address_of, aligned, owned, whole_lines


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [(7, np.float32), ((3, 5), np.float64), ((0, 4), np.int8), ((), np.float32), ([2, 2], "u2"), (3, "f4,f8")],
)
def test_aligned_arrays(shape: Any, dtype: Any) -> None:
    array = aligned(shape, dtype)
    assert array.shape == np.empty(shape).shape
    assert array.dtype == np.dtype(dtype)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert address_of(array) % LINE == 0


def test_the_address_of_any_array() -> None:
    array = np.arange(12.0).reshape(3, 4)
    read_only = array.view()
    read_only.flags.writeable = False
    for view in (array, array[1:], array.T, array[:, 2], read_only, array[:0], array.astype("f4,f8")):
        assert address_of(view) == view.ctypes.data


@pytest.mark.parametrize(("size", "lines"), [(0, 0), (1, 1), (64, 1), (65, 2)])
def test_whole_lines(size: int, lines: int) -> None:
    assert whole_lines(size) == lines * LINE


@pytest.mark.parametrize("shared", [False, True])
def test_owned_arrays_of_some_size_begin_on_a_line(shared: bool) -> None:
    numbers = np.arange(3 * 2000, dtype=np.float32)[1:]
    for array in (numbers[::3], numbers[:4000].reshape(50, 80).T, numbers[:2048]):
        taken = owned(array, shared)
        assert address_of(taken) % LINE == 0
        assert taken.flags.c_contiguous
        assert not np.may_share_memory(taken, array)
        np.testing.assert_array_equal(taken, array)


def test_what_is_owned_and_aligned_or_small_stays() -> None:
    for array in (aligned((64, 64), np.float64), np.zeros(3), np.array([None] * 5000)):
        assert owned(array, shared=False) is array
        assert not np.may_share_memory(owned(array, shared=True), array)
