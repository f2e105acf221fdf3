"""Every kernel of a schedule run by itself, on the interpreter's operands, and compared with the interpreter."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from topos.backend.native import target as targets
from topos.backend.native.compiler import Library, compiled
from topos.backend.native.groups import Lowering
from topos.backend.native.kernel import Kernel
from topos.backend.native.program import Call
from topos.backend.native.target import Target
from topos.backend.native.writers import write
from topos.engine.liveness import schedule
from topos.errors import SettingError
from topos.graph import Network
from topos.graph.spec import Spec
from topos.op import Elementwise
from topos.tensor import Tensor
from topos.testing import assert_same_bits

GUARD = 128
"""Bytes before and after a result that no kernel may touch."""
CANARY = 0xA5


def target_named(name: str) -> Target:
    """A target, or a skip where this machine does not reach it."""
    if name == "host":
        return targets.host()
    try:
        return targets.named(name)
    except SettingError as error:
        pytest.skip(str(error))


def values_of(network: Network, feeds: Any) -> dict[int, Tensor]:
    """The interpreter's value of every node."""
    run = network.forward(network.parameters(), feeds)
    return {symbol.index: tensor for symbol, tensor in run.field()}


def buffer(size: int, lined: bool) -> tuple[np.ndarray, int]:
    """Guarded memory of a size, full of canaries, and the address of its inside: on a cache line's start, or after."""
    block = np.full(size + 2 * GUARD + 128, CANARY, np.uint8)
    start = -block.ctypes.data % 64 + (0 if lined else 8)
    memory = block[start : start + size + 2 * GUARD]
    return memory, memory.ctypes.data + GUARD


def check_kernels(
    spec: Spec,
    kept: Iterable[int],
    values: dict[int, Tensor],
    target: Target,
    lowered: Callable[[Spec, Sequence[int], frozenset[int]], Lowering] = Lowering,
) -> list[str]:
    """Runs every kernel of the schedule on the interpreter's operands; answers the names of what has none."""
    kept = frozenset(kept)
    lowering = lowered(spec, schedule(spec.rows, sorted(kept)), kept)
    spec = lowering.spec
    values = {**values, **written_out(lowering, values)}
    missing = []
    for group in lowering.groups:
        written = write(lowering, group, target)
        if written is None:
            missing.append(spec.rows[group.rows[-1]].opcode.name)
            continue
        pointers = written.operands
        held: dict[int, tuple[np.ndarray, int]] = {}
        for pointer in pointers:
            if pointer.row in held:
                continue
            if pointer.row in group.writes:
                row = spec.rows[pointer.row]
                element = row.element or spec.element
                held[pointer.row] = buffer(row.shape.volume * element.dtype.itemsize, group.rows[0] % 3 > 0)
            else:
                array = operand(lowering, pointer.row, values)
                held[pointer.row] = (array, array.ctypes.data)
        run_call(written, [held[pointer.row][1] + pointer.offset_bytes for pointer in pointers], target)
        for row in group.writes:
            if row in held:
                check_result(spec, row, held[row][0], values[row])
    return missing


def written_out(lowering: Lowering, values: dict[int, Tensor]) -> dict[int, Tensor]:
    """The values of the rows that a lowering has beside the spec's, by the interpreter."""
    spec, added = lowering.spec, dict[int, Tensor]()

    def value(row: int, shape: Sequence[int]) -> Tensor:
        if row in lowering.constants:
            return Tensor.filled(shape, lowering.constants[row].scalar(), spec.element_of(row))
        if row in values:
            return values[row]
        if row not in added:
            recorded = spec.rows[row]
            over = recorded.shape if isinstance(recorded.opcode, Elementwise) else None
            operands = [value(operand, over or spec.rows[operand].shape) for operand in recorded.operands]
            added[row] = recorded.opcode.express(operands)
        return added[row]

    for group in lowering.groups:
        for row in (*group.rows, *(lowering.views[read].row for read in group.reads)):
            value(row, spec.rows[row].shape)
    return added


def operand(lowering: Lowering, row: int, values: dict[int, Tensor]) -> np.ndarray:
    """What lies in memory for a row that a kernel reads."""
    tensor = lowering.constants.get(row, values[row])
    if tensor.ids is not None:
        return np.ascontiguousarray(tensor.ids)
    return np.array(tensor.dense(tensor.element or lowering.spec.element), order="C")


def run_call(call: Call, addresses: list[int], target: Target) -> None:
    """The call's kernels in order, over scratch that holds canaries at first."""
    scratch = np.full(call.scratch_bytes + 2 * 64, CANARY, np.uint8)
    start = -scratch.ctypes.data % 64
    block = (ctypes.c_void_p * (len(addresses) + 1))(*addresses, scratch.ctypes.data + start)
    for kernel in call.kernels:
        run_tiles(kernel, ctypes.addressof(block), target)
    assert (scratch[start + call.scratch_bytes :] == CANARY).all()


def run_tiles(kernel: Kernel, block: int, target: Target) -> None:
    """The kernel's tiles, in a drawn order, each by a worker of its own or all by the last."""
    library: Library = compiled("\n".join([*kernel.helpers, kernel.text]), target)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(library.addresses[kernel.name])
    tiles = list(range(kernel.tiles))
    random.Random(kernel.name).shuffle(tiles)
    for worker, tile in enumerate(tiles):
        function(block, tile, worker if len(tiles) % 2 else len(tiles) - 1)


def check_result(spec: Spec, row: int, memory: np.ndarray, wanted: Tensor) -> None:
    """The result has the interpreter's bits, and nothing beside it was touched."""
    element = spec.rows[row].element or spec.element
    size = memory.size - 2 * GUARD
    inside = memory[GUARD : GUARD + size]
    assert (memory[:GUARD] == CANARY).all()
    assert (memory[GUARD + size :] == CANARY).all()
    assert_same_bits(inside.view(element.dtype).reshape(spec.rows[row].shape), wanted.dense(element))
