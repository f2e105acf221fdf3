"""Whether a kernel within an envelope is worth its departure: it has to measure faster than the exact one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from topos.backend.backend import Backend, Dispatch
from topos.backend.task import Outline, Task
from topos.element.element import Array
from topos.tensor import Tensor

GAIN = 1.1
"""How many times as fast it has to be."""
SAVED_S = 20e-6
"""What it has to save at least: about what it costs to leave a fused plan and come back."""
MOST_S = 0.05
"""How long one measurement may take, when its first two runs do not take longer."""

ALONE = float("inf")
"""The gain over nobody."""

_measured: dict[Any, float] = {}


def gain(backend: Backend, kernel: Callable[..., Array], task: Task, chain: Sequence[Backend]) -> float:
    """How many times as fast as the next exact backend an elected kernel is for a task; measured once per process.

    `ALONE` where no other backend than the reference would serve: that one is never close.
    """
    rival = next((other for other in chain if _rivals(other, backend, task)), None)
    if rival is None:
        return ALONE
    key = (backend, rival, task.opcode, task.element, *((operand.shape, operand.element) for operand in task.operands))
    if key not in _measured:
        _measured[key] = _ratio(rival, kernel, task)
    return _measured[key]


def _rivals(other: Backend, backend: Backend, task: Task) -> bool:
    """SIMD stands for every reading of the same kernels; it is the one that runs a single instruction."""
    return other is not backend and other.dispatch is Dispatch.OFFERED and other.status().ready and other.takes(task)


def _ratio(rival: Backend, kernel: Callable[..., Array], task: Task) -> float:
    random = np.random.default_rng(0)
    payloads = [_drawn(outline, task, random) for outline in task.operands]
    offered = task._replace(operands=tuple(payloads))
    arrays = offered.arrays()
    with np.errstate(all="ignore"):
        if not isinstance(rival.offer(offered), np.ndarray):  # its first answer compiles; it may decline
            return ALONE
        ours, theirs = _alternately(lambda: kernel(*arrays), lambda: rival.offer(offered))
    return theirs / ours if theirs - ours > SAVED_S else min(1.0, theirs / ours)


def _drawn(outline: Tensor | Outline, task: Task, random: np.random.Generator) -> Tensor:
    return Tensor(random.uniform(-1, 1, outline.shape), task.element)


def _alternately(first: Callable[[], object], second: Callable[[], object]) -> tuple[float, float]:
    """The least time of each, run in turns so that what slows the machine down slows both."""
    least = [float("inf"), float("inf")]
    began = time.perf_counter()
    for turn in range(200):
        for position, run in enumerate((first, second)):
            start = time.perf_counter()
            run()
            least[position] = min(least[position], time.perf_counter() - start)
        if turn and time.perf_counter() - began > MOST_S:
            break
    return max(least[0], 1e-9), max(least[1], 1e-9)
