"""The native code that runs the steps of a table: the same for every plan, and compiled once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from topos.backend.native.compiler import compiled, function_of_reference
from topos.backend.native.flags import guarded
from topos.backend.native.llvm import later
from topos.backend.native.table import (
    BUFFER_COUNT,
    BUFFERS,
    CALL_COUNT,
    CALLS,
    FIX_COUNT,
    FIXES,
    OWN,
    RUN,
    STEPS,
    STRIDES,
)


@cache
def enter() -> Callable[[Any], None]:
    """The compiled function that runs the steps of a table, given its `argument`."""
    return function_of_reference(compiled(TEXT), "enter")


def enter_ahead() -> None:
    """Has `enter` compiled and loaded while whoever will ask for it goes on with other work."""
    later(_entered)


def _entered() -> None:
    with suppress(Exception):  # it is told to who asks for it
        enter()


_STEPS = """define internal void @steps(ptr %table) nounwind {
$WORDS$
  %is_general = icmp eq ptr %own, null
  br i1 %is_general, label %general, label %special
special:
  call void %own(ptr %table)
  ret void
general:
  br label %step
step:
  %done = phi i64 [ 0, %general ], [ %next, %moved ]
  br label %fix
fix:
  %f = phi i64 [ 0, %step ], [ %f_next, %fixing ]
  %f_more = icmp slt i64 %f, %fix_count
  br i1 %f_more, label %fixing, label %call
fixing:
  %argument_at = getelementptr [3 x i64], ptr %fixes, i64 %f
  %argument = load ptr, ptr %argument_at, align 8
  %buffer_at = getelementptr [3 x i64], ptr %fixes, i64 %f, i64 1
  %buffer = load ptr, ptr %buffer_at, align 8
  %offset_at = getelementptr [3 x i64], ptr %fixes, i64 %f, i64 2
  %offset = load i64, ptr %offset_at, align 8
  %start = load i64, ptr %buffer, align 8
  %place = add i64 %start, %offset
  store i64 %place, ptr %argument, align 8
  %f_next = add i64 %f, 1
  br label %fix
call:
  %c = phi i64 [ 0, %fix ], [ %c_next, %called ]
  %c_more = icmp slt i64 %c, %call_count
  br i1 %c_more, label %calling, label %move
calling:
  %kernel_at = getelementptr [3 x i64], ptr %calls, i64 %c
  %kernel = load ptr, ptr %kernel_at, align 8
  %tiles_at = getelementptr [3 x i64], ptr %calls, i64 %c, i64 1
  %tiles = load i64, ptr %tiles_at, align 8
  %arguments_at = getelementptr [3 x i64], ptr %calls, i64 %c, i64 2
  %arguments = load ptr, ptr %arguments_at, align 8
  %one = icmp eq i64 %tiles, 1
  br i1 %one, label %alone, label %shared
alone:
  call void %kernel(ptr %arguments, i64 0, i64 0)
  br label %called
shared:
  call void %run(ptr %kernel, ptr %arguments, i64 %tiles)
  br label %called
called:
  %c_next = add i64 %c, 1
  br label %call
move:
  %b = phi i64 [ 0, %call ], [ %b_next, %moving ]
  %b_more = icmp slt i64 %b, %buffer_count
  br i1 %b_more, label %moving, label %moved
moving:
  %pointer_at = getelementptr i64, ptr %buffers, i64 %b
  %pointer = load i64, ptr %pointer_at, align 8
  %stride_at = getelementptr i64, ptr %strides, i64 %b
  %stride = load i64, ptr %stride_at, align 8
  %further = add i64 %pointer, %stride
  store i64 %further, ptr %pointer_at, align 8
  %b_next = add i64 %b, 1
  br label %move
moved:
  %next = add i64 %done, 1
  %again = icmp slt i64 %next, %steps
  br i1 %again, label %step, label %end
end:
  ret void
}
"""


def _word(place: int, name: str, type: str) -> str:
    """One of the first words, as the register `%name`."""
    at = f"  %{name}_at = getelementptr i64, ptr %table, i64 {place}"
    return f"{at}\n  %{name} = load {type}, ptr %{name}_at, align 8"


_WORDS = [
    _word(STEPS, "steps", "i64"),
    _word(RUN, "run", "ptr"),
    _word(CALLS, "calls", "ptr"),
    _word(BUFFERS, "buffers", "ptr"),
    _word(STRIDES, "strides", "ptr"),
    _word(FIXES, "fixes", "ptr"),
    _word(CALL_COUNT, "call_count", "i64"),
    _word(BUFFER_COUNT, "buffer_count", "i64"),
    _word(FIX_COUNT, "fix_count", "i64"),
    _word(OWN, "own", "ptr"),
]
TEXT = _STEPS.replace("$WORDS$", "\n".join(_WORDS)) + guarded("enter", "steps")
"""The native code that reads a table."""
