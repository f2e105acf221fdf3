"""Kernels compiled one by one and called on arrays: all that the tests of their text need of a JIT."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from topos.backend.native.kernel import Kernel
from topos.backend.native.target import Target

Array = np.ndarray[Any, np.dtype[Any]]

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()

HOST_FEATURES = dict(llvm.get_host_cpu_features())
NEEDED = {
    "x86-64": (),
    "x86-64-v3": ("avx2", "fma", "bmi2"),
    "x86-64-v4": ("avx512f", "avx512bw", "avx512dq", "avx512vl"),
}


def host() -> Target:
    """This machine."""
    width = 64 if HOST_FEATURES.get("avx512f") else 32 if HOST_FEATURES.get("avx2") else 16
    fused = bool(HOST_FEATURES.get("fma")) or "aarch64" in llvm.get_process_triple()
    return Target(llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), width, fused)


def targets() -> list[Target]:
    """The host, and the named processors whose instructions it has."""
    found = [host()]
    if "x86_64" in llvm.get_process_triple():
        named = [
            Target("x86-64", "", 16, False),
            Target("x86-64-v3", "", 32, True),
            Target("x86-64-v4", "", 64, True),
        ]
        found += [target for target in named if all(HOST_FEATURES.get(feature) for feature in NEEDED[target.cpu])]
    return found


def machine(target: Target, level: int = 2) -> Any:
    """LLVM's view of a target."""
    triple = llvm.Target.from_triple(llvm.get_process_triple())
    return triple.create_target_machine(
        cpu=target.cpu, features=target.features, opt=level, reloc="pic", codemodel="small"
    )


def module_text(kernel: Kernel) -> str:
    """A module of one kernel."""
    return "\n".join([*kernel.helpers, kernel.text])


class Compiled:
    """A kernel in memory; its engine lives as long as this."""

    def __init__(self, kernel: Kernel, target: Target, level: int = 2) -> None:
        self.kernel = kernel
        module = llvm.parse_assembly(module_text(kernel))
        module.verify()
        self._engine = llvm.create_mcjit_compiler(module, machine(target, level))
        self._engine.finalize_object()
        address = self._engine.get_function_address(kernel.name)
        self.function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)

    def __call__(self, *buffers: Array) -> None:
        """Runs every tile over the buffers."""
        arguments = (ctypes.c_void_p * len(buffers))(*(buffer.ctypes.data for buffer in buffers))
        for tile in range(self.kernel.tiles):
            self.function(arguments, tile, self.kernel.tiles - 1 - tile)


_kept: dict[tuple[Kernel, Target], Compiled] = {}


def compiled(kernel: Kernel, target: Target) -> Compiled:
    """A kernel compiled, once."""
    found = _kept.get((kernel, target))
    if found is None:
        found = _kept[kernel, target] = Compiled(kernel, target)
    return found


def padded(array: Array, offset: int, guard: int = 64) -> tuple[Array, Array]:
    """A copy at an offset of elements from a 64-byte boundary, inside a buffer with a guard on either side."""
    size = array.dtype.itemsize
    raw = np.empty((array.size + 2 * guard + offset) * size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    room = raw[start:][: (array.size + 2 * guard + offset) * size].view(array.dtype)
    # A pattern that no test expects as a result.
    room.view(np.uint8)[...] = 0xA5
    view = room[guard + offset : guard + offset + array.size]
    view[...] = array
    return view, room


def run(kernel: Kernel, target: Target, operands: Sequence[Array], dtype: Any, offset: int = 0) -> Array:
    """A kernel's result; asserts that nothing beside it was written."""
    views = [padded(operand, offset)[0] for operand in operands]
    result, room = padded(np.zeros(operands[0].size, dtype), offset)
    before = room.copy()
    compiled(kernel, target)(*views, result)
    answer = result.copy()
    result[...] = 0
    untouched = np.array_equal(room.view(np.uint8), before.view(np.uint8))
    assert untouched, "a kernel wrote beside its result"
    return answer
