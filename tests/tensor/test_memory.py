"""Memory for numbers: arrays that begin on a cache line, and where they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from topos.tensor.memory import LINE, address_of, aligned, whole_lines


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
