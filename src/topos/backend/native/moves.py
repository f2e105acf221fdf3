"""The kernel that copies one buffer to another as it is."""

from __future__ import annotations

from topos.backend.native.kernel import Kernel, head, named

SHARE = 1 << 18
"""Bytes that are worth a thread's attention."""

_TEXT = """define {head} {{
  %from = load ptr, ptr %arguments, align 8
  %second = getelementptr ptr, ptr %arguments, i64 1
  %to = load ptr, ptr %second, align 8
  %start = mul i64 %tile, {share}
  %left = sub i64 {size}, %start
  %count = call i64 @llvm.smin.i64(i64 %left, i64 {share})
  %source = getelementptr i8, ptr %from, i64 %start
  %target = getelementptr i8, ptr %to, i64 %start
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %count, i1 false)
  ret void
}}
"""
_HELPERS = (
    "declare i64 @llvm.smin.i64(i64, i64)",
    "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
)


def moved_bytes(size: int) -> Kernel:
    """A kernel that copies `size` bytes from its first buffer to its second."""
    tiles = max(1, -(-size // SHARE))
    return named("move", lambda name: _TEXT.format(head=head(name), share=SHARE, size=size), tiles, 0, _HELPERS)
