"""Weights packed once: panels beside the immutable tensor that they were made of, for the products of plans.

From the second run over the same tensor on, a product of few rows finds its right operand packed. Panels belong to the
tensor and go with it. They are made of memory that topos allocated itself: what `Tensor.frozen` shares may change
behind the back of whoever shares it, and is packed anew by every run.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from topos.backend.native.compiler import Library, compiled
from topos.backend.native.manifest import Packable
from topos.backend.native.pool import pool
from topos.backend.native.table import Table
from topos.backend.native.target import current
from topos.records import NamedTuple
from topos.tensor import Tensor
from topos.tensor.beside import beside
from topos.tensor.memory import address_of, aligned

if TYPE_CHECKING:
    from topos.backend.native.kernel import Kernel
    from topos.backend.native.making import Making, Packing

MOST_BYTES = 1 << 29
"""Panels in a process, all together; a tensor beyond is packed by every run."""


class Panels:
    """A packed operand. Whoever runs over it holds it; else its tensor alone does."""

    __slots__ = ("__weakref__", "address", "memory")

    def __init__(self, size: int) -> None:
        self.memory = aligned(size, np.uint8)
        self.address = address_of(self.memory)


class _Kernels(NamedTuple):
    """What packs and multiplies, loaded."""

    library: Library
    packing: Packing

    def address(self, kernel: Kernel) -> int:
        return self.library.addresses[kernel.name]


class Weights:
    """The packable operands of a program's calls, in order. Any number of threads may use it at once.

    `making` answers how the program was lowered, which is done again where it came from the cache: once a weight is to
    be packed.
    """

    def __init__(
        self, packable: Sequence[Packable], leaves: Mapping[int, Tensor], making: Callable[[], Making]
    ) -> None:
        self._packable = packable
        self._leaves = leaves
        self._making = making
        self._kernels: dict[int, _Kernels] = {}

    def __bool__(self) -> bool:
        return bool(self._packable)

    def point(self, table: Table, sources: Mapping[int, Tensor]) -> bool:
        """Lets a table's calls run over panels, where there are any; answers whether no more would be found again.

        `sources` are the payloads that nobody writes to any more.
        """
        is_settled = True
        for at, (weight, place) in enumerate(zip(self._packable, table.weighted, strict=True)):
            tensor = self._leaves[weight.row] if weight.row in self._leaves else sources.get(weight.row)
            panels, may_come = (None, False) if tensor is None else self._found(at, weight, tensor)
            is_settled &= not may_come
            if panels is None:
                table.restore(place)
                continue
            kernels = self._kernels_of(at)
            multiplying = kernels.packing.multiplying
            table.replace(place, kernels.address(multiplying), multiplying.tiles, panels.address)
        return is_settled

    def _found(self, at: int, weight: Packable, tensor: Tensor) -> tuple[Panels | None, bool]:
        """The panels of a tensor, packed now where it was seen before; and whether the next run may find some."""
        kept, key = beside(tensor), (weight.offset_bytes, weight.layout)
        if kept is None:
            return None, False
        if key not in kept:
            kept[key] = None
            return None, True
        found: Panels | None = kept[key]
        if found is None and held_bytes() + weight.panel_bytes <= MOST_BYTES:
            with suppress(MemoryError):  # the product packs it itself
                packed = self._packed(at, weight, tensor)
                with _counting:  # of two threads that pack the same, one is before the other
                    found = kept[key] = kept[key] or packed
        return found, False

    def _packed(self, at: int, weight: Packable, tensor: Tensor) -> Panels:
        panels, kernels = Panels(weight.panel_bytes), self._kernels_of(at)
        arguments = (ctypes.c_uint64 * (kernels.packing.operands + 2))()
        arguments[1] = tensor.address + weight.offset_bytes
        arguments[-1] = panels.address
        kernel = kernels.packing.kernel
        pool().run(kernels.address(kernel), ctypes.addressof(arguments), kernel.tiles)
        with _counting:
            _alive.add(panels)
        return panels

    def _kernels_of(self, at: int) -> _Kernels:
        if at not in self._kernels:
            packing = self._making().packing(at)
            self._kernels[at] = _Kernels(compiled(packing.texts(), current()), packing)
        return self._kernels[at]


def held_bytes() -> int:
    """What all panels of this process take."""
    with _counting:
        return sum(panels.memory.nbytes for panels in _alive)


_alive: weakref.WeakSet[Panels] = weakref.WeakSet()
_counting = threading.RLock()


def _in_child() -> None:
    """After a fork: whoever was counting is in the parent."""
    global _counting
    _counting = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
