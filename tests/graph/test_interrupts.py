"""An interrupt at any line of a recording call leaves a tape of which all that it says is true."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

from topos import Tape, Value, concat, where


class At:
    """A trace function that raises at the `count`-th line run inside topos, as a signal that arrives there does."""

    def __init__(self, count: int) -> None:
        self.left = count

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if "topos" not in frame.f_globals.get("__name__", ""):
            return None
        if event in ("call", "line"):
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
        return self


def scene() -> tuple[Tape, Value, Value, Value, Value]:
    tape = Tape()
    x, w = tape.input([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], name="x"), tape.parameter(np.ones((3, 2)), name="w")
    return tape, x, w, tape.selection([2], 3), (x @ w).tanh().sum()


CALLS: dict[str, Callable[[Tape, Value, Value, Value, Value], Any]] = {
    "leaf": lambda t, x, w, s, y: t.leaf(1.0, name="new"),
    "selection": lambda t, x, w, s, y: t.selection([2], 3, name="new"),
    "number": lambda t, x, w, s, y: x + 1.5,
    "constant": lambda t, x, w, s, y: x.zero_like(),
    "composition": lambda t, x, w, s, y: x.softmax(1),
    "where": lambda t, x, w, s, y: where(x, 1.0, x),
    "concat": lambda t, x, w, s, y: concat([x, x], 0),
    "rename": lambda t, x, w, s, y: x.named("new"),
    "differentiate": lambda t, x, w, s, y: t.differentiate(y, [x, w]),
    "vjp": lambda t, x, w, s, y: t.vjp(y, 2.0, [x]),
    "gather": lambda t, x, w, s, y: w.gather(s),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_anywhere_leaves_a_tape_that_holds_together(name: str) -> None:
    CALLS[name](*scene())  # what is loaded on first use is no matter of this
    for count in (*range(1, 300), *range(300, 10_000, 7)):
        tape, *values = scene()
        former = sys.gettrace()
        sys.settrace(At(count))
        try:
            CALLS[name](tape, *values)
            break
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(former)
        spec, length = tape.spec, len(tape)
        sources = {index for index, row in enumerate(spec.rows) if row.opcode.is_source}
        assert sources == {*spec.payloads, *spec.ids}, count
        assert {name: index for index, name in spec.names.items()} == spec.by_name, count
        assert all(index < length for index in spec.names), count
        tape.describe(names=True, lines=True)
        written = values[0].exp()
        assert "(rule" not in tape.describe(lines=True).splitlines()[length], count  # again the user's own
        network = (symbol := written.symbol()) and tape.into_network()
        assert network.entry(symbol).interpret(network.parameters()).of(symbol).shape == [2, 3]
    else:
        pytest.fail("the call never came to its end")


def test_a_scope_that_an_interrupt_keeps_from_opening_prefixes_nothing() -> None:
    tape, opened, count = Tape(), False, 0
    while not opened:
        count += 1
        former = sys.gettrace()
        sys.settrace(At(count))
        try:
            with tape.scope("h"):
                opened = True
                sys.settrace(former)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(former)
        tape.leaf(1.0).named(f"plain{count}")
        assert f"plain{count}" in tape.spec.by_name
    assert count > 5
