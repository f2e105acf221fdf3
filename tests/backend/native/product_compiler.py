"""Kernels of products compiled in the process, and products of NumPy views through them."""

from __future__ import annotations

import ctypes
import random
import threading
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from topos.backend.native.kernel import Kernel
from topos.backend.native.products import Batch, ProductTask, product
from topos.backend.native.target import Target

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()

BASE = Target("x86-64", "", 16, False)
V3 = Target("x86-64-v3", "", 32, True)
V4 = Target("x86-64-v4", "", 64, True)
_KEPT: list[Any] = []  # engines live as long as their functions may be called


def host() -> Target:
    features = llvm.get_host_cpu_features()
    has_fma = bool(features.get("fma"))
    vector_bytes = 64 if features.get("avx512f") else 32 if has_fma else 16
    return Target(llvm.get_host_cpu_name(), features.flatten(), vector_bytes, has_fma)


def supported() -> dict[str, Target]:
    """The targets whose code this machine runs."""
    features = llvm.get_host_cpu_features()
    found = {"x86-64": BASE}
    if features.get("fma"):
        found["x86-64-v3"] = V3
        # What is written for AVX-512 runs in two registers for each of its own too, with the same bits.
        found["x86-64-v4"] = (
            V4 if features.get("avx512vl") and features.get("avx512bw") else V3._replace(vector_bytes=64)
        )
    return {**found, "host": host()}


class CompiledKernel:
    """One kernel as a function of an argument block and a tile."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.kernel = kernel
        machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
            cpu=target.cpu, features=target.features, opt=2, reloc="pic", codemodel="small"
        )
        module = llvm.parse_assembly("\n".join([*kernel.helpers, kernel.text]))
        module.verify()
        module.triple, module.data_layout = llvm.get_process_triple(), str(machine.target_data)
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()
        passes.run(module, builder)
        code = machine.emit_object(module)
        again = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(opt=2, jit=True)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), again)
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        _KEPT.append(engine)
        address = engine.get_function_address(kernel.name)
        self.run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)


def task_of(left: Any, right: Any, out: Any, element: str) -> ProductTask:
    """The task of three views with equal leading axes."""
    steps = [[stride // array.itemsize for stride in array.strides] for array in (left, right, out)]
    axes = zip(left.shape[:-2], *[step[:-2] for step in steps], strict=True)
    (a, b, c) = (tuple(step[-2:]) for step in steps)
    return ProductTask(
        element, left.shape[-2], left.shape[-1], right.shape[-1], a, b, c, tuple(Batch(*axis) for axis in axes)
    )


def arguments_of(left: Any, right: Any, out: Any, scratch_bytes: int) -> tuple[Any, Any]:
    """(the argument block, what keeps it alive); the scratch starts off any boundary."""
    scratch = np.full(scratch_bytes + 256, 0xA5, np.uint8)
    block = (ctypes.c_void_p * 4)(left.ctypes.data, right.ctypes.data, out.ctypes.data, scratch.ctypes.data + 104)
    return block, scratch


class Compiled:
    """The kernels of one product."""

    def __init__(self, kernels: Sequence[Kernel], target: Target) -> None:
        self.functions = [CompiledKernel(kernel, target) for kernel in kernels]
        self.scratch_bytes = max(kernel.scratch_bytes for kernel in kernels)

    def run(self, block: Any, threads: int = 1) -> None:
        """Kernel after kernel, the tiles of each in some other order, by some threads."""
        for function in self.functions:
            tiles = list(range(function.kernel.tiles))
            random.Random(7).shuffle(tiles)
            shares = [tiles[start::threads] for start in range(threads)]
            workers = [
                threading.Thread(target=_run, args=(function, block, share, worker))
                for worker, share in enumerate(shares)
                if worker and share
            ]
            [worker.start() for worker in workers]
            _run(function, block, shares[0], 0)
            [worker.join() for worker in workers]


def _run(function: CompiledKernel, block: Any, tiles: list[int], worker: int) -> None:
    for tile in tiles:
        function.run(block, tile, worker)


def block_of(arrays: Sequence[Any]) -> Any:
    """An argument block of arrays that live on elsewhere."""
    return (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])


_CACHE: dict[tuple[ProductTask, Target], Compiled] = {}


def compiled(task: ProductTask, target: Target) -> Compiled:
    if (task, target) not in _CACHE:
        _CACHE[task, target] = Compiled(product(task, target), target)
    return _CACHE[task, target]
