"""Memory for what a run answers: each result owns its own, and large ones are used again when nobody holds them."""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import numpy as np

from topos.element import Element
from topos.element.element import Array
from topos.shape import Shape
from topos.tensor import Tensor
from topos.tensor.memory import LINE, address_of

SMALL_BYTES = 1 << 10
"""Up to here a result is cheapest as a ctypes array, whose address is at hand."""
LARGE_BYTES = 1 << 17
"""From here the system would hand out fresh pages for every result, and touching those costs more than computing."""
KEPT = 2
"""Blocks kept of a large result: while a caller holds the last answer, the next one is written to the other."""


class Result(NamedTuple):
    """One result: its row, its pointer's word in the table, and what is there."""

    row: int
    slot: int
    shape: Shape
    element: Element
    bytes: int
    small: type[ctypes.Array[ctypes.c_char]]
    blocks: deque[Array]


class Results:
    """The computed results of a program."""

    def __init__(self, facts: Iterable[tuple[int, int, Shape, Element]]) -> None:
        self._results = [
            Result(row, slot, shape, element, size, ctypes.c_char * min(size, SMALL_BYTES), deque())
            for row, slot, shape, element in facts
            if (size := shape.volume * element.dtype.itemsize)
        ]

    def rows(self) -> frozenset[int]:
        """The rows that are computed."""
        return frozenset(result.row for result in self._results)

    def fresh(self, words: ctypes.Array[ctypes.c_uint64], keeps: bool) -> dict[int, Tensor]:
        """A tensor for each result, its address in the table; the numbers are not yet set."""
        values = {}
        for result in self._results:
            row, slot, shape, element, size, small, _ = result
            if size <= SMALL_BYTES:
                block = small()
                array: Array = np.ndarray(shape, element.dtype, cast(Any, block))
                words[slot] = ctypes.addressof(block)
            else:
                array, words[slot] = _large(result, keeps)
            values[row] = Tensor.held(array, element, shape)
        return values

    def stacked(self, words: ctypes.Array[ctypes.c_uint64], to_stride: int, steps: int) -> dict[int, Tensor]:
        """A tensor for each result with one place per step along a new leading axis."""
        values = {}
        for result in self._results:
            shape = Shape((steps, *result.shape))
            array = np.empty(shape, result.element.dtype)
            words[result.slot] = address_of(array)
            words[result.slot + to_stride] = result.bytes
            values[result.row] = Tensor.held(array, result.element, shape)
        return values


def _large(result: Result, keeps: bool) -> tuple[Array, int]:
    memory = _free(result.blocks) if result.bytes >= LARGE_BYTES else None
    if memory is None:
        memory = np.empty(result.bytes + LINE, np.uint8)
    address = address_of(memory)
    start = -address % LINE
    array: Array = np.ndarray(result.shape, result.element.dtype, memory, start)
    if keeps and result.bytes >= LARGE_BYTES and len(result.blocks) < KEPT:
        result.blocks.append(memory)
    return array, address + start


def _free(blocks: deque[Array]) -> Array | None:
    """A block that no tensor and no view of one holds; taken out, so that no other thread takes it too."""
    for _ in range(len(blocks)):
        try:
            memory = blocks.popleft()
        except IndexError:
            return None
        if sys.getrefcount(memory) == _ALONE:
            return memory
        blocks.append(memory)
    return None


def _alone() -> int:
    memory = np.empty(0, np.uint8)
    return sys.getrefcount(memory)


_ALONE = _alone()
