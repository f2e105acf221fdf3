"""A plan as one native function: its kernels, its memory, and the text that calls them in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from topos.backend.native.arena import Arena, arranged
from topos.backend.native.carry import Carry, carry_of
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.kernel import Kernel
from topos.backend.native.moves import moved_bytes


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
    """The calls of one step in order, those of the groups among them, and where their buffers are.

    A buffer is a place in the arena, or one of `buffers`, whose pointers the caller gives: constants, sources and
    results. `scratch` is where in the arena each call has its scratch.
    """

    calls: list[Call]
    groups: list[Call]
    arena: Arena
    scratch: list[int]
    carry: Carry
    buffers: list[int]
    kernels: list[str]

    def placed(self, at: int) -> list[tuple[int | None, int]]:
        """The operands of a call: the row of a buffer, or `None` for the arena, and the offset in it in bytes."""
        placed: list[tuple[int | None, int]] = []
        for row, offset in self.calls[at].operands:
            home = self.carry.in_place.get(row, row)
            if home in self.arena.offsets:
                placed.append((None, self.arena.offsets[home] + offset))
            else:
                placed.append((home, offset))
        if self.calls[at].scratch_bytes:
            placed.append((None, self.scratch[at]))
        return placed

    def layout(self) -> Layout:
        """Where the words of the table are."""
        return Layout(len(self.buffers), len(self.kernels))

    def text(self) -> str:
        """The text of `void @steps(ptr %table)`, which runs `@step` as often as the table says."""
        return _STEPS.format(layout=self.layout()) + self._step()

    def _step(self) -> str:
        layout = self.layout()
        lines = ["define internal void @step(ptr %table) nounwind {", *_loaded(RUN, "run")]
        lines += _loaded(ARENA, "arena")
        for at, row in enumerate(self.buffers):
            lines += _loaded(layout.first_buffer + at, _named(row))
        for at in range(len(self.kernels)):
            lines += _loaded(layout.first_kernel + at, f"kernel{at}")
        most = max((len(call.operands) + 1 for call in self.calls), default=1)
        lines.append(f"  %arguments = alloca [{most} x ptr], align 16")
        names = {name: at for at, name in enumerate(self.kernels)}
        for at, call in enumerate(self.calls):
            lines += self._call(at, call, names)
        return "\n".join([*lines, "  ret void", "}", ""])

    def _call(self, at: int, call: Call, names: Mapping[str, int]) -> list[str]:
        lines = []
        for place, (row, offset) in enumerate(self.placed(at)):
            pointer, slot = f"%p{at}_{place}", f"%s{at}_{place}"
            base = "%arena" if row is None else f"%{_named(row)}"
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


STEPS, RUN, ARENA = 0, 1, 2
"""The first words of the table that native code is given."""


class Layout(NamedTuple):
    """The words of the table.

    How many steps, the function that shares out tiles, the arena; then a pointer per buffer, the address of each
    kernel, and per buffer the bytes by which its pointer moves from one step to the next.
    """

    buffers: int
    kernels: int

    @property
    def first_buffer(self) -> int:
        """The word of the first buffer."""
        return 3

    @property
    def first_kernel(self) -> int:
        """The word of the first kernel."""
        return self.first_buffer + self.buffers

    @property
    def first_stride(self) -> int:
        """The word of the first buffer's stride."""
        return self.first_kernel + self.kernels

    @property
    def words(self) -> int:
        """How many there are."""
        return self.first_stride + self.buffers


_STEPS = """define void @steps(ptr %table) nounwind {{
  %count = load i64, ptr %table, align 8
  br label %step
step:
  %done = phi i64 [ 0, %0 ], [ %next, %moved ]
  call void @step(ptr %table)
  br label %move
move:
  %buffer = phi i64 [ 0, %step ], [ %after, %moving ]
  %more = icmp slt i64 %buffer, {layout.buffers}
  br i1 %more, label %moving, label %moved
moving:
  %at = add i64 %buffer, {layout.first_buffer}
  %place = getelementptr i64, ptr %table, i64 %at
  %stride_at = add i64 %buffer, {layout.first_stride}
  %stride_place = getelementptr i64, ptr %table, i64 %stride_at
  %pointer = load i64, ptr %place, align 8
  %stride = load i64, ptr %stride_place, align 8
  %further = add i64 %pointer, %stride
  store i64 %further, ptr %place, align 8
  %after = add i64 %buffer, 1
  br label %move
moved:
  %next = add i64 %done, 1
  %again = icmp slt i64 %next, %count
  br i1 %again, label %step, label %end
end:
  ret void
}}
"""


def _named(row: int) -> str:
    return f"buffer{row}" if row >= 0 else f"before{~row}"


def _loaded(slot: int, name: str) -> list[str]:
    return [
        f"  %at_{name} = getelementptr ptr, ptr %table, i64 {slot}",
        f"  %{name} = load ptr, ptr %at_{name}, align 8",
    ]


Writer = Callable[[Lowering, Group], Call | None]


def assembled(
    lowering: Lowering, write: Writer, carried: Mapping[int, int], results: frozenset[int]
) -> Program | Group:
    """The program of a lowering, or the first group that has no kernel.

    `carried` maps sources to the rows that replace them, `results` are the rows that the caller reads.
    """
    written = []
    for group in lowering.groups:
        call = write(lowering, group)
        if call is None:
            return group
        written.append(call)
    carry = carry_of(lowering, carried, results)
    elsewhere = results | carry.in_place.keys()
    temporary = [source for source in carry.before if source not in results]
    arena = arranged(lowering, [call.scratch_bytes for call in written], elsewhere, temporary)
    before = [_move(lowering, source, source, ~source) for source in carry.before]
    after = [_move(lowering, source, origin, source) for origin, source in carry.after]
    calls = [call for call in [*before, *written, *after] if call.operands]
    scratch = [0] * len(before) + arena.scratch + [0] * len(after)
    scratch = [at for at, call in zip(scratch, [*before, *written, *after], strict=True) if call.operands]
    homes = (carry.in_place.get(operand.row, operand.row) for call in calls for operand in call.operands)
    buffers = dict.fromkeys(home for home in homes if home not in arena.offsets)
    return Program(calls, written, arena, scratch, carry, list(buffers), list(texts(calls)))


def _move(lowering: Lowering, source: int, origin: int, destination: int) -> Call:
    """The copy of one whole buffer, as large as a source, to another."""
    row = lowering.spec.rows[source]
    size = row.shape.volume * (row.element or lowering.spec.element).dtype.itemsize
    return Call((moved_bytes(size),), [Operand(origin, 0), Operand(destination, 0)] if size else [])


def texts(calls: Sequence[Call]) -> dict[str, str]:
    """The text of each kernel once, by name."""
    kernels = [kernel for call in calls for kernel in call.kernels]
    return {kernel.name: "\n".join([*kernel.helpers, kernel.text]) for kernel in kernels}
