"""Calling compiled code: one pointer to a table that was prepared beforehand, and memory that vectors like."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from topos.backend.native.compiler import Library

ALIGNMENT_BYTES = 64

_TakesPointer = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def function(library: Library, name: str) -> Callable[[int], None]:
    """A compiled `void name(ptr)` to be called with an address, without the interpreter's lock. It keeps its library.

    A call costs about 150 ns; each further argument would cost as much again, so there is one, the address of a table.
    """
    called = _TakesPointer(library.addresses[name])
    called.library = library  # type: ignore[attr-defined]
    return called


def aligned(shape: int | Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A new C-contiguous array that begins on a multiple of 64 bytes; its numbers are not set."""
    dtype = np.dtype(dtype)
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    size = math.prod(extents) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT_BYTES, np.uint8)
    start = -address_of(memory) % ALIGNMENT_BYTES
    return memory[start : start + size].view(dtype).reshape(extents)


def address_of(array: npt.NDArray[Any]) -> int:
    """Where an array's first number lies; keep it, and the array, rather than ask again."""
    return int(array.__array_interface__["data"][0])


class Table:
    """The pointers that a compiled function is given: words in memory at a fixed address.

    `table[i] = address` costs some tens of nanoseconds; `table.hold(i, array)` also keeps the array.
    """

    __slots__ = ("_held", "address", "words")

    def __init__(self, count: int) -> None:
        self.words = (ctypes.c_uint64 * count)()
        self.address = ctypes.addressof(self.words)
        self._held: dict[int, npt.NDArray[Any]] = {}

    def __len__(self) -> int:
        return len(self.words)

    def __setitem__(self, place: int, address: int) -> None:
        self.words[place] = address

    def __getitem__(self, place: int) -> int:
        return self.words[place]

    def hold(self, place: int, array: npt.NDArray[Any]) -> None:
        """Puts an array's address there, and keeps the array for as long as it stands there."""
        self.words[place] = address_of(array)
        self._held[place] = array
