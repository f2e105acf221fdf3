"""Where a plan's time goes: each group timed in its place, run after run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from topos.backend.native.entering import enter
from topos.backend.native.executable import Executable
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.pool import pool
from topos.backend.native.table import CALL_COUNT, Table
from topos.backend.native.telling import told_work
from topos.engine.liveness import volume
from topos.op import MatMul, Movement, Reduction
from topos.records import NamedTuple
from topos.tensor import Tensor

ROUNDS = 20
"""Runs of which the least time of each group counts."""


class GroupTime(NamedTuple):
    """One group: its nodes as `explain` names them, its kernels, and what one run of it takes and does.

    `operations` counts an addition, a product or a function as one each; `bytes` is what it reads and writes at least
    once.
    """

    rows: str
    kernels: str
    elapsed_s: float
    operations: int
    bytes: int


class Profile(NamedTuple):
    """The groups of a plan in order, each with its least time of several runs; `elapsed_s` is that of a whole run.

    Groups are timed one by one, from Python: the time of an empty call has been taken off each. `print` it.
    """

    groups: list[GroupTime]
    elapsed_s: float

    def __str__(self) -> str:
        total = sum(group.elapsed_s for group in self.groups) or 1.0
        lines = ["        us      %   GFLOP/s      GB/s  group"]
        for group in self.groups:
            seconds = max(group.elapsed_s, 1e-9)
            rates = f"{group.operations / seconds / 1e9:10.2f}{group.bytes / seconds / 1e9:10.2f}"
            lines.append(
                f"{group.elapsed_s * 1e6:10.2f}{group.elapsed_s / total:7.1%}{rates}  {group.rows}  {group.kernels}"
            )
        return "\n".join([*lines, f"{self.elapsed_s * 1e6:10.2f}         a whole run"])


def profiled(executable: Executable, sources: Mapping[int, Tensor]) -> Profile:
    """Times the groups of a run over these sources, which it changes where the run does."""
    table = executable.table()
    executable.point(table, sources, is_settled=False)
    results = executable.ready(table)
    pool().ready()
    whole = min(_elapsed_s(enter(), table.argument) for _ in range(ROUNDS))
    started = _started(table)
    least = [float("inf")] * len(started)
    for _ in range(ROUNDS):
        for at, call in enumerate(started):
            least[at] = min(least[at], _elapsed_s(pool().run, *call))
    empty = min((_elapsed_s(pool().run, *call[:2], 0) for call in started * ROUNDS), default=0.0)
    assert results is not None  # their memory was written to until here
    return Profile(_groups(executable, [max(0.0, elapsed_s - empty) for elapsed_s in least]), whole)


def _elapsed_s(call: Callable[..., object], *arguments: Any) -> float:
    began = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - began


def _started(table: Table) -> list[tuple[int, int, int]]:
    """The kernels in order, each with its arguments and its tiles."""
    words = [table.words[at] for at in range(table.calls, table.calls + 3 * table.words[CALL_COUNT])]
    return list(zip(words[0::3], words[2::3], words[1::3], strict=True))


def _groups(executable: Executable, elapsed_s: Sequence[float]) -> list[GroupTime]:
    """The times of each group's kernels together, beside what the group is."""
    left = iter(elapsed_s)
    found = []
    making = executable.making()
    work = {id(group): told for group, told in zip(making.lowering.groups, told_work(making.lowering), strict=True)}
    for call, owner in zip(making.program.calls, making.program.owners, strict=True):
        taken = sum(next(left) for _ in call.kernels)
        kernels = ", ".join(dict.fromkeys(kernel.name for kernel in call.kernels))
        if owner is None:
            found.append(GroupTime("a carried buffer", kernels, taken, 0, 0))
        else:
            moved, operations = _moved_bytes(making.lowering, owner), _group_operations(making.lowering, owner)
            found.append(GroupTime(work[id(owner)], kernels, taken, operations, moved))
    return found


def _moved_bytes(lowering: Lowering, group: Group) -> int:
    return sum(_bytes(lowering, row) for row in (*group.reads, *group.writes))


def _group_operations(lowering: Lowering, group: Group) -> int:
    """Of its rows, and of those of the operands that it packs."""
    packed = [row for prologue in group.prologues.values() for row in prologue.rows]
    return sum(_operations(lowering, row) for row in (*group.rows, *packed))


def _bytes(lowering: Lowering, row: int) -> int:
    item = 8 if lowering.spec.is_selection(row) else lowering.spec.element_of(row).dtype.itemsize
    return volume(lowering.spec, row) * item


def _operations(lowering: Lowering, row: int) -> int:
    recorded = lowering.spec.rows[row]
    if isinstance(recorded.opcode, MatMul):
        return 2 * recorded.shape.volume * lowering.spec.rows[recorded.operands[0]].shape[-1]
    if isinstance(recorded.opcode, Reduction):
        return lowering.spec.rows[recorded.operands[0]].shape.volume
    return 0 if isinstance(recorded.opcode, Movement) else recorded.shape.volume
