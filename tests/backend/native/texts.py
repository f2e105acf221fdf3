"""Small LLVM texts to compile."""

from __future__ import annotations


def adding(number: int, name: str = "f") -> str:
    """`i64 name(i64 x)` that answers `x + number`."""
    return f"define i64 @{name}(i64 %x) {{\n  %y = add i64 %x, {number}\n  ret i64 %y\n}}\n"


# Adds 1 to the tile's word of the arguments.
TILE = """
define void @tile(ptr %arguments, i64 %tile, i64 %worker) {
  %word = getelementptr i64, ptr %arguments, i64 %tile
  %before = atomicrmw add ptr %word, i64 1 monotonic
  ret void
}
"""

# table: run, function, arguments, tiles, repetitions.
REPEATING = """
define void @repeat(ptr %table) {
entry:
  %run = load ptr, ptr %table
  %at1 = getelementptr ptr, ptr %table, i64 1
  %function = load ptr, ptr %at1
  %at2 = getelementptr ptr, ptr %table, i64 2
  %arguments = load ptr, ptr %at2
  %at3 = getelementptr i64, ptr %table, i64 3
  %tiles = load i64, ptr %at3
  %at4 = getelementptr i64, ptr %table, i64 4
  %times = load i64, ptr %at4
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void %run(ptr %function, ptr %arguments, i64 %tiles)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""


def long(name: str = "slow", steps: int = 8000) -> str:
    """A text that takes LLVM about a second: one function of many dependent steps."""
    lines = [f"define i64 @{name}(i64 %x0) {{"]
    for at in range(steps):
        lines.append(f"  %a{at} = mul i64 %x{at}, {2 * at + 3}")
        lines.append(f"  %x{at + 1} = xor i64 %a{at}, %x{at // 2}")
    return "\n".join([*lines, f"  ret i64 %x{steps}", "}", ""])
