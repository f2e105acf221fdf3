"""Weights packed once: panels beside the immutable tensor that they were made of, for the products of plans.

From the second run over the same tensor on, a product of few rows finds its right operand packed; a constant is packed
when its plan is prepared. Panels belong to the tensor and go with it. They are made of memory that topos allocated
itself: what `Tensor.frozen` shares may change behind the back of whoever shares it, and is packed anew by every run.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from topos.backend.native.compiler import Library, compiled
from topos.backend.native.kernel import Kernel
from topos.backend.native.pool import pool
from topos.backend.native.program import Call, Program, Weight, texts_of
from topos.backend.native.table import Table
from topos.backend.native.target import Target
from topos.tensor import Tensor
from topos.tensor.memory import address_of, aligned

MOST_BYTES = 1 << 29
"""Panels in a process, all together; a tensor beyond is packed by every run."""


class Panels:
    """A packed operand. Whoever runs over it holds it; else its tensor alone does."""

    __slots__ = ("__weakref__", "address", "memory")

    def __init__(self, size: int) -> None:
        self.memory = aligned(size, np.uint8)
        self.address = address_of(self.memory)


class _Kernels(NamedTuple):
    library: Library
    packing: Kernel
    multiplying: Kernel


class Weights:
    """The calls of a program that have a weight, in order. Any number of threads may use it at once."""

    def __init__(self, program: Program, leaves: Mapping[int, Tensor], target: Target) -> None:
        self._calls = [call for call in program.calls if call.weight]
        self._leaves = leaves
        self._target = target
        self._kernels: dict[int, _Kernels] = {}
        for at, call in enumerate(self._calls):
            if call.weight and call.weight.operand.row in leaves:
                self._found(at, call, call.weight, leaves[call.weight.operand.row], is_new=False)

    def __bool__(self) -> bool:
        return bool(self._calls)

    def point(self, table: Table, sources: Mapping[int, Any], is_settled: bool) -> list[Panels]:
        """Lets a table's calls run over panels, where there are any; answers what has to live until they have run.

        `is_settled` says that nobody writes to the tensors of `sources` any more.
        """
        held = []
        for at, (call, place) in enumerate(zip(self._calls, table.weighted, strict=True)):
            assert call.weight is not None
            row = call.weight.operand.row
            tensor = self._leaves.get(row, sources[row] if is_settled and row in sources else None)
            panels = None if tensor is None else self._found(at, call, call.weight, tensor, is_new=True)
            if panels is None:
                table.restore(place)
                continue
            kernels = self._kernels_of(at, call.weight)
            address = kernels.library.addresses[kernels.multiplying.name]
            table.replace(place, address, kernels.multiplying.tiles, panels.address)
            held.append(panels)
        return held

    def _found(self, at: int, call: Call, weight: Weight, tensor: Tensor, is_new: bool) -> Panels | None:
        """The panels of a tensor, packed now where it was seen before; `None` the first time if it `is_new`."""
        beside, key = tensor.beside, (weight.operand.offset_bytes, weight.prepacked.layout)
        if beside is None:
            return None
        found: Panels | None = beside.get(key)
        if found is None and key not in beside and is_new:
            beside[key] = None
        elif found is None and held_bytes() + weight.prepacked.panel_bytes <= MOST_BYTES:
            with suppress(MemoryError):  # the product packs it itself
                found = beside[key] = self._packed(at, call, weight, tensor)
        return found

    def _packed(self, at: int, call: Call, weight: Weight, tensor: Tensor) -> Panels:
        panels, kernels = Panels(weight.prepacked.panel_bytes), self._kernels_of(at, weight)
        arguments = (ctypes.c_uint64 * (len(call.operands) + 2))()
        arguments[1] = tensor.address + weight.operand.offset_bytes
        arguments[-1] = panels.address
        packing = kernels.packing
        pool().run(kernels.library.addresses[packing.name], ctypes.addressof(arguments), packing.tiles)
        with _counting:
            _alive.add(panels)
        return panels

    def _kernels_of(self, at: int, weight: Weight) -> _Kernels:
        if at not in self._kernels:
            packing, multiplying = weight.prepacked.write()
            library = compiled(texts_of((packing, multiplying)).values(), self._target)
            self._kernels[at] = _Kernels(library, packing, multiplying)
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
