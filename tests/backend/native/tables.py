"""The pointers that a compiled function is given."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from topos.tensor.memory import address_of

Array = np.ndarray[Any, np.dtype[Any]]


class Table:
    """Words in memory at a fixed address; `hold` puts an array's address there, and keeps the array."""

    def __init__(self, count: int) -> None:
        self.words = (ctypes.c_uint64 * count)()
        self.address = ctypes.addressof(self.words)
        self._held: list[Array] = []

    def __setitem__(self, place: int, address: int) -> None:
        self.words[place] = address

    def hold(self, place: int, array: Array) -> None:
        self.words[place] = address_of(array)
        self._held.append(array)
