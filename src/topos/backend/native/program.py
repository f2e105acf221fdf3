"""A plan as one native function: its kernels, its memory, and the text that calls them in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from topos.backend.native.arena import Arena, arranged
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.kernel import Kernel


class Operand(NamedTuple):
    """One pointer argument of a kernel: a buffer and where in it, in bytes."""

    row: int
    offset_bytes: int


class Call(NamedTuple):
    """What computes a group: kernels one after another, all over the same operands.

    The operands are buffers read, then written; after them comes one scratch buffer where any kernel wants one, as
    large as the largest wish, whose contents last from the first kernel to the last.
    """

    kernels: tuple[Kernel, ...]
    operands: list[Operand]

    @property
    def scratch_bytes(self) -> int:
        """The largest wish of any of its kernels."""
        return max(kernel.scratch_bytes for kernel in self.kernels)


class Program(NamedTuple):
    """The calls in order and the table of pointers that `main` is given.

    The table holds, in order: the function that runs tiles, the arena, one buffer per row of `buffers` (sources and
    results), and one kernel per name of `kernels`.
    """

    calls: list[Call]
    arena: Arena
    buffers: list[int]
    kernels: list[str]

    def main(self) -> str:
        """The text of `void @main(ptr %table)`."""
        slots = {row: 2 + at for at, row in enumerate(self.buffers)}
        first_kernel = 2 + len(self.buffers)
        lines = ["define void @main(ptr %table) {", *_loaded(0, "run"), *_loaded(1, "arena")]
        for row, slot in slots.items():
            lines += _loaded(slot, f"buffer{row}")
        for at in range(len(self.kernels)):
            lines += _loaded(first_kernel + at, f"kernel{at}")
        most = max((len(call.operands) + 1 for call in self.calls), default=1)
        lines.append(f"  %arguments = alloca [{most} x ptr], align 16")
        names = {name: at for at, name in enumerate(self.kernels)}
        for at, call in enumerate(self.calls):
            lines += self._call(at, call, names)
        return "\n".join([*lines, "  ret void", "}", ""])

    def _call(self, at: int, call: Call, names: dict[str, int]) -> list[str]:
        lines = []
        operands = [
            ("%arena", self.arena.offsets[o.row] + o.offset_bytes)
            if o.row in self.arena.offsets
            else (f"%buffer{o.row}", o.offset_bytes)
            for o in call.operands
        ]
        if call.scratch_bytes:
            operands.append(("%arena", self.arena.scratch[at]))
        for place, (base, offset) in enumerate(operands):
            pointer, slot = f"%p{at}_{place}", f"%s{at}_{place}"
            lines += [
                f"  {pointer} = getelementptr i8, ptr {base}, i64 {offset}",
                f"  {slot} = getelementptr ptr, ptr %arguments, i64 {place}",
                f"  store ptr {pointer}, ptr {slot}, align 8",
            ]
        for kernel in call.kernels:
            pointer = f"%kernel{names[kernel.name]}"
            if kernel.tiles > 1:
                lines.append(f"  call void %run(ptr {pointer}, ptr %arguments, i64 {kernel.tiles})")
            else:
                lines.append(f"  call void {pointer}(ptr %arguments, i64 0)")
        return lines


def _loaded(slot: int, name: str) -> list[str]:
    return [
        f"  %at_{name} = getelementptr ptr, ptr %table, i64 {slot}",
        f"  %{name} = load ptr, ptr %at_{name}, align 8",
    ]


Writer = Callable[[Lowering, Group], Call | None]


def assembled(lowering: Lowering, write: Writer) -> Program | Group:
    """The program of a lowering, or the first group that has no kernel."""
    calls = []
    for group in lowering.groups:
        written = write(lowering, group)
        if written is None:
            return group
        calls.append(written)
    arena = arranged(lowering, [call.scratch_bytes for call in calls])
    rows = dict.fromkeys(operand.row for call in calls for operand in call.operands if operand.row not in arena.offsets)
    return Program(calls, arena, list(rows), list(texts(calls)))


def texts(calls: Sequence[Call]) -> dict[str, str]:
    """The text of each kernel once, by name."""
    kernels = [kernel for call in calls for kernel in call.kernels]
    return {kernel.name: "\n".join([*kernel.helpers, kernel.text]) for kernel in kernels}
