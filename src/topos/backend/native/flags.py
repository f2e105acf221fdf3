"""The processor's floating-point mode: subnormals kept, rounding to nearest, whatever a foreign library has set.

Kernels promise bits in the default mode. A native function that is called from Python therefore begins by saving the
caller's mode and setting the default one, and ends by restoring it; the threads of the pool set it once.
"""

from __future__ import annotations

import platform

# MXCSR as the ABI starts it: exceptions masked, rounding to nearest, no flush-to-zero, no denormals-are-zero.
_X86 = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define internal i64 @enter_default_mode() nounwind {
  %word = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %word)
  %saved = load i32, ptr %word, align 4
  store i32 8064, ptr %word, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %word)
  %answer = zext i32 %saved to i64
  ret i64 %answer
}
define internal void @leave_default_mode(i64 %saved) nounwind {
  %word = alloca i32, align 4
  %narrow = trunc i64 %saved to i32
  store i32 %narrow, ptr %word, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %word)
  ret void
}
"""

_AARCH64 = """
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
define internal i64 @enter_default_mode() nounwind {
  %saved = call i64 @llvm.aarch64.get.fpcr()
  call void @llvm.aarch64.set.fpcr(i64 0)
  ret i64 %saved
}
define internal void @leave_default_mode(i64 %saved) nounwind {
  call void @llvm.aarch64.set.fpcr(i64 %saved)
  ret void
}
"""

_ELSEWHERE = """
define internal i64 @enter_default_mode() nounwind {
  ret i64 0
}
define internal void @leave_default_mode(i64 %saved) nounwind {
  ret void
}
"""


def architecture() -> str:
    """`x86`, `aarch64` or `other`: what this process runs on."""
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        return "x86"
    return "aarch64" if machine in ("aarch64", "arm64") else "other"


def mode(kind: str | None = None) -> str:
    """Text of `i64 @enter_default_mode()`, which answers the mode it replaces, and `void @leave_default_mode(i64)`."""
    return {"x86": _X86, "aarch64": _AARCH64}.get(kind or architecture(), _ELSEWHERE)


def guarded(name: str, inner: str, kind: str | None = None) -> str:
    """Text that defines `void @name(ptr)`: `void @inner(ptr)`, which the same text defines, in the default mode."""
    return (
        mode(kind)
        + f"""
define void @{name}(ptr %table) nounwind {{
  %saved = call i64 @enter_default_mode()
  call void @{inner}(ptr %table) noinline
  call void @leave_default_mode(i64 %saved)
  ret void
}}
"""
    )
