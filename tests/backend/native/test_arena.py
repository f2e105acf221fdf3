"""Where buffers lie in memory that they take one after another's place in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from topos.backend.native.arena import FirstFit
from topos.tensor.memory import LINE, whole_lines


def test_the_lowest_gap_is_taken() -> None:
    memory = FirstFit()
    assert memory.take(LINE, 0, 1) == 0
    assert memory.take(3 * LINE, 0, 0) == LINE
    assert memory.take(1, 0, 5) == 4 * LINE
    assert memory.take(2 * LINE, 1, 1) == LINE
    assert memory.take(2 * LINE, 2, 2) == 0
    assert memory.bytes == 5 * LINE


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 3), st.integers(0, 4)), max_size=20))
def test_what_lives_at_the_same_time_lies_apart(wanted: list[tuple[int, int, int]]) -> None:
    memory, taken, now = FirstFit(), [], 0
    for size, later, life in wanted:
        now += later
        start = memory.take(size, now, now + life)
        assert start % LINE == 0
        for other, other_size, last in taken:
            assert last < now or start >= other + other_size or other >= start + size
        taken.append((start, size, now + life))
        assert memory.bytes >= start + whole_lines(size)
