"""A plan's program, compiled: one call per run, over memory that runs hand back when they are done."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from topos.backend.native.arena import LINE
from topos.backend.native.arithmetic import has_arithmetic
from topos.backend.native.compiler import compiled
from topos.backend.native.groups import Group, Lowering, declined
from topos.backend.native.llvm import available
from topos.backend.native.program import Program, assembled, texts
from topos.backend.native.settings import environment
from topos.backend.native.target import Target, current
from topos.backend.native.writers import write
from topos.graph.spec import Spec
from topos.tensor import Tensor

Array = np.ndarray[Any, np.dtype[Any]]


class Executable:
    """The schedule of a plan as native code. Holds no state: any number of threads may run it at once."""

    def __init__(self, lowering: Lowering, program: Program, target: Target) -> None:
        self._lowering = lowering
        self._spec = lowering.spec
        self._kept = lowering.kept
        self._program = program
        self._library = compiled([*texts(program.calls).values(), program.main()], target)
        addresses = self._library.addresses
        self._main = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(addresses["main"])
        self._kernels = [addresses[name] for name in program.kernels]
        self._constants = {row: _memory(lowering, row) for row in program.buffers if _is_constant(lowering, row)}
        self._arenas: list[Array] = []

    def run(self, sources: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """The value of each kept row that is computed, for the payload of each source."""
        held: list[Array] = []
        results: dict[int, Tensor] = {}
        arena = self._arenas.pop() if self._arenas else _aligned(self._program.arena.bytes)
        table = [_tiles_address(), _address(arena)]
        for row in self._program.buffers:
            array = self._constants.get(row)
            if array is None:
                array = self._source(sources[row]) if row in sources else self._result(row, results)
                held.append(array)
            table.append(_address(array))
        table += self._kernels
        for row in self._kept - results.keys() - sources.keys():
            results[row] = self._filled(row)
        block = (ctypes.c_void_p * len(table))(*table)
        self._main(ctypes.addressof(block))
        self._arenas.append(arena)
        return results

    def explain(self) -> str:
        """The groups in order, each with its rows, what it reads and stores, its kernel and tiles; then the memory."""
        lines = self._lowering.describe().splitlines()
        told = [
            f"{line}  {', '.join(f'{kernel.name} in {kernel.tiles}' for kernel in call.kernels)}"
            for line, call in zip(lines, self._program.calls, strict=True)
        ]
        count = len(self._program.kernels)
        return "\n".join(
            [*told, f"native: {len(told)} groups, {count} kernels, arena of {self._program.arena.bytes} bytes"]
        )

    def llvm(self) -> str:
        """The text of every kernel once, and of the function that calls them."""
        return "\n".join([*texts(self._program.calls).values(), self._program.main()])

    def _source(self, tensor: Tensor) -> Array:
        """A payload's numbers, or its ids, next to one another."""
        if tensor.ids is not None:
            return np.ascontiguousarray(tensor.ids)
        assert tensor.element is not None
        return np.ascontiguousarray(tensor.dense(tensor.element))

    def _filled(self, row: int) -> Tensor:
        """A result that no kernel writes: one number at every place, or no place at all."""
        recorded, constant = self._spec.rows[row], self._lowering.constants.get(row)
        element = recorded.element or self._spec.element
        number = element.zero if constant is None else constant.dense(element)
        return Tensor.of(np.broadcast_to(number, recorded.shape), element, recorded.shape)

    def _result(self, row: int, results: dict[int, Tensor]) -> Array:
        recorded = self._spec.rows[row]
        element = recorded.element or self._spec.element
        array = np.empty(recorded.shape, element.dtype)
        results[row] = Tensor.of(array, element, recorded.shape)
        return array


class Interpreted(NamedTuple):
    """A schedule that the interpreter runs, and why."""

    reason: str

    def explain(self) -> str:
        """The reason."""
        return f"interpreted: {self.reason}"

    def llvm(self) -> str:
        """No text."""
        return f"; interpreted: {self.reason}\n"


def executable(spec: Spec, scheduled: Sequence[int], kept: frozenset[int]) -> Executable | Interpreted:
    """The native form of a schedule, compiled, or why there is none."""
    if environment("TOPOS_NATIVE") == "0":
        return Interpreted("TOPOS_NATIVE=0")
    reason = declined(spec, scheduled) or available()
    if reason is not None:
        return Interpreted(reason)
    elements = {spec.rows[row].element or spec.element for row in scheduled}
    for element in elements:
        if not has_arithmetic(element):
            return Interpreted(f"element {element} has no native reading")
    target = current()
    lowering = Lowering(spec, scheduled, kept)
    program = assembled(lowering, lambda given, group: write(given, group, target))
    if isinstance(program, Group):
        return Interpreted(f"no kernel for {spec.label(program.rows[-1])}")
    return Executable(lowering, program, target)


def _is_constant(lowering: Lowering, row: int) -> bool:
    return row in lowering.constants or lowering.spec.rows[row].opcode.name == "Leaf"


def _memory(lowering: Lowering, row: int) -> Array:
    """A constant's numbers; of one that is the same everywhere, that number."""
    tensor = lowering.constants[row] if row in lowering.constants else lowering.spec.payloads[row]
    if tensor.ids is not None:
        return np.ascontiguousarray(tensor.ids)
    assert tensor.element is not None
    return np.ascontiguousarray(tensor.dense(tensor.element))


def _aligned(size: int) -> Array:
    """Memory that starts on a cache line."""
    block = np.empty(size + LINE, np.uint8)
    start = -_address(block) % LINE
    return block[start : start + size]


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


_TILES = """
define void @run_tiles(ptr %kernel, ptr %arguments, i64 %tiles) {
entry:
  br label %loop
loop:
  %tile = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void %kernel(ptr %arguments, i64 %tile)
  %next = add nuw nsw i64 %tile, 1
  %more = icmp slt i64 %next, %tiles
  br i1 %more, label %loop, label %after
after:
  ret void
}
"""
_serial: list[Any] = []


def _tiles_address() -> int:
    if not _serial:
        _serial.append(compiled(_TILES))
    return int(_serial[0].addresses["run_tiles"])
