"""Many steps of a small program as one function, in which small carried values stay in registers.

Its kernels are inlined, one after another, in a loop over the steps. A small value that a step replaces, and the whole
of the arena, are variables of the function: they are read from memory before the first step and written after the last,
and LLVM's scalar replacement makes registers of those that kernels read and write as they wrote them. So a step waits
neither for a call nor for a number on its way through memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from topos.backend.native.groups import Lowering
from topos.backend.native.kernel import named
from topos.backend.native.program import Program
from topos.backend.native.table import FIRST_BUFFER, STEPS
from topos.tensor.memory import LINE

MOST_TEXT = 1 << 15
"""Of kernels, in characters: what a step of more computes takes far longer than what lies between its kernels."""
MOST_ARENA = 1 << 12
"""Bytes of an arena that may be a variable."""

_INTRINSICS = (
    "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
)


def repeated(lowering: Lowering, program: Program) -> str:
    """The text of `void @repeat_...(ptr)`, which runs the steps of a table; empty where nothing would be gained."""
    kernels = {kernel.name: kernel for call in program.calls for kernel in call.kernels}
    kept = _kept(lowering, program)
    is_small = sum(len(kernel.text) for kernel in kernels.values()) <= MOST_TEXT and program.arena.bytes <= MOST_ARENA
    if not kept or not is_small or any(kernel.tiles > 1 for kernel in kernels.values()):
        return ""
    helpers = dict.fromkeys([*_INTRINSICS, *(helper for kernel in kernels.values() for helper in kernel.helpers)])
    inlined = [kernel.inlined() for kernel in kernels.values()]
    loop = named("repeat", lambda name: "\n".join(_lines(name, program, kept)), 1)
    return "\n".join([*helpers, *inlined, loop.text])


def _kept(lowering: Lowering, program: Program) -> dict[int, int]:
    """The bytes of each carried source that is small."""
    rows, carry = lowering.spec.rows, program.carry
    replaced = {*carry.in_place.values(), *(source for _, source in carry.after)}
    sizes = {
        row: rows[row].shape.volume * lowering.spec.element_of(row).dtype.itemsize
        for row in program.buffers
        if row in replaced and not rows[row].operands
    }
    return {row: size for row, size in sizes.items() if size <= LINE}


def _lines(name: str, program: Program, kept: dict[int, int]) -> Iterator[str]:
    """The function: a buffer that moves from step to step is `%p`, which was `%b` and will be `%n`."""
    moving = [at for at, row in enumerate(program.buffers) if row not in kept]
    yield f"define void @{name}(ptr %table) nounwind {{"
    yield "entry:"
    yield from _before(program, kept)
    yield "  br label %step"
    yield "step:"
    yield "  %done = phi i64 [ 0, %entry ], [ %next, %step ]"
    yield from (f"  %p{at} = phi ptr [ %b{at}, %entry ], [ %n{at}, %step ]" for at in moving)
    yield from _step(program, kept)
    yield from (f"  %n{at} = getelementptr i8, ptr %p{at}, i64 %s{at}" for at in moving)
    yield "  %next = add i64 %done, 1"
    yield "  %again = icmp slt i64 %next, %steps"
    yield "  br i1 %again, label %step, label %end"
    yield "end:"
    for at, row in enumerate(program.buffers):
        yield _copied(f"%b{at}", f"%kept{at}", kept[row]) if row in kept else f"  store ptr %n{at}, ptr %b{at}_at"
    yield "  ret void"
    yield "}"


def _before(program: Program, kept: dict[int, int]) -> Iterator[str]:
    """What comes before the first step: the words of the table, and the variables."""
    for at in range(len(program.calls)):
        yield f"  %arguments{at} = alloca [{len(program.placed(at))} x ptr], align 8"
    yield from _word("%steps", STEPS, "i64")
    for at, row in enumerate(program.buffers):
        yield from _word(f"%b{at}", FIRST_BUFFER + at, "ptr")
        if row in kept:
            yield f"  %kept{at} = alloca [{kept[row]} x i8], align {LINE}"
            yield _copied(f"%kept{at}", f"%b{at}", kept[row])
        else:
            yield from _word(f"%s{at}", FIRST_BUFFER + len(program.buffers) + at, "i64")
    if program.arena.bytes:  # zeros: to LLVM, what is not set is another thing each time that it is looked at
        yield f"  %arena = alloca [{program.arena.bytes} x i8], align {LINE}"
        yield f"  call void @llvm.memset.p0.i64(ptr %arena, i8 0, i64 {program.arena.bytes}, i1 false)"


def _step(program: Program, kept: dict[int, int]) -> Iterator[str]:
    """The calls of one step."""
    homes = {row: f"%kept{at}" if row in kept else f"%p{at}" for at, row in enumerate(program.buffers)}
    for at, call in enumerate(program.calls):
        for place, (row, offset) in enumerate(program.placed(at)):
            home = "%arena" if row is None else homes[row]
            # Without `inbounds`, scalar replacement does not see that it is a variable's.
            yield f"  %o{at}_{place} = getelementptr inbounds i8, ptr {home}, i64 {offset}"
            yield f"  %a{at}_{place} = getelementptr ptr, ptr %arguments{at}, i64 {place}"
            yield f"  store ptr %o{at}_{place}, ptr %a{at}_{place}, align 8"
        for kernel in call.kernels:
            yield f"  call void @{kernel.name}(ptr %arguments{at}, i64 0, i64 0)"


def _word(name: str, place: int, type: str) -> Iterator[str]:
    """A word of the table, as a register."""
    yield f"  {name}_at = getelementptr i64, ptr %table, i64 {place}"
    yield f"  {name} = load {type}, ptr {name}_at, align 8"


def _copied(target: str, source: str, size: int) -> str:
    return f"  call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)"
