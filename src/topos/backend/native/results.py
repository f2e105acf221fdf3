"""Memory for what a run answers: each result owns its own, and large ones are used again when nobody holds them."""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from topos.element import Element
from topos.element.element import Array
from topos.records import NamedTuple
from topos.shape import Shape
from topos.tensor import Tensor
from topos.tensor.memory import LINE, address_of, whole_lines

SMALL_BYTES = 1 << 10
"""Up to here a result is written to memory that stays, and copied out of it when it is read."""
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
    blocks: deque[Array]


class Small(NamedTuple):
    """A small result: where it is among the numbers of all small ones, and what it is."""

    start: int
    end: int
    extents: tuple[int, ...]
    dtype: np.dtype[Any]
    element: Element
    shape: Shape


class Answer(dict[int, Tensor]):
    """The results of a run by row; one that is small or known becomes one of its items when it is first read.

    `numbers` are the bytes of all small ones, set when the run has ended, and `results` what they are.
    """

    __slots__ = ("numbers", "results")
    numbers: bytes
    results: Results

    def __missing__(self, row: int) -> Tensor:
        small = self.results.small.get(row)
        if small is None:
            return self.results.known[row]
        start, end, extents, dtype, element, shape = small
        own: Any = bytearray(self.numbers[start:end])  # writable: of others the address takes long to find
        return self.setdefault(row, Tensor.held(np.ndarray(extents, dtype, own), element, shape))


class Series(dict[int, Tensor]):
    """The results of many steps by row, with one place per step along a leading axis.

    A result out of `arrays` becomes one of its items when it is first read.
    """

    __slots__ = ("arrays",)
    arrays: dict[int, tuple[Array, Element]]

    def __missing__(self, row: int) -> Tensor:
        return self.setdefault(row, Tensor.of(*self.arrays[row]))


class Results:
    """The results of a program. `known` are those that no kernel writes."""

    def __init__(self, facts: Iterable[tuple[int, int, Shape, Element]], known: Mapping[int, Tensor]) -> None:
        self.known = known
        self.small: dict[int, Small] = {}
        self._results = [
            Result(row, slot, shape, element, size, deque())
            for row, slot, shape, element in facts
            if (size := shape.volume * element.dtype.itemsize)
        ]
        self.large = [result for result in self._results if result.bytes > SMALL_BYTES]
        self._small_bytes = 0
        for row, _, shape, element, size, _ in self._results:
            if size <= SMALL_BYTES:
                start, self._small_bytes = self._small_bytes, self._small_bytes + whole_lines(size)
                self.small[row] = Small(start, start + size, tuple(shape), element.dtype, element, shape)

    def memory(self) -> ctypes.Array[ctypes.c_char]:
        """Memory for the small results of one run after another."""
        return (ctypes.c_char * self._small_bytes)()

    def place(self, words: ctypes.Array[ctypes.c_uint64], memory: ctypes.Array[ctypes.c_char]) -> None:
        """Writes the addresses of the small results in that memory to a table."""
        for result in self._results:
            if result.row in self.small:
                words[result.slot] = ctypes.addressof(memory) + self.small[result.row].start

    def hold(self, values: Answer, words: ctypes.Array[ctypes.c_uint64], keeps: bool) -> None:
        """A tensor for each large result, its address in the table; the numbers are not yet set."""
        for result in self.large:
            array, address = _large(result, keeps)
            tensor = values[result.row] = Tensor.held(array, result.element, result.shape)
            tensor.address = words[result.slot] = address  # a later call need not look for it

    def series(self, words: ctypes.Array[ctypes.c_uint64], to_stride: int, steps: int) -> Series:
        """Memory for each result of each step, its addresses in the table."""
        values = Series()
        values.arrays = {}
        for row, slot, shape, element, size, _ in self._results:
            array: Array = np.empty((steps, *shape), element.dtype)
            words[slot] = address_of(array)
            words[slot + to_stride] = size
            values.arrays[row] = array, element
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
