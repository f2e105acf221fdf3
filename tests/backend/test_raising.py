"""A native plan that raises: the interpreter takes over where nothing has been done, and is told of where it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from topos import FeedError, Network, Plan, Tape
from topos.backend.native.executable import Executable
from topos.testing import assert_same_bits

RAISED = "^a plan is interpreted from now on: its native form raised OSError: no more$"
TOLD = "interpreted: its native form raised OSError: no more"


class Descent:
    """A few weights that a step replaces, and its loss; the plan is compiled and has run."""

    def __init__(self) -> None:
        tape = Tape()
        weight, x = tape.parameter(np.linspace(-1, 1, 6).reshape(2, 3)), tape.input([[1.0, 2.0]], name="x")
        loss = (x @ weight).tanh().sum()
        after = weight - 0.5 * tape.differentiate(loss, [weight]).of(weight)
        self.weight, self.loss, following = weight.symbol(), loss.symbol(), after.symbol()
        self.network: Network = tape.into_network()
        self.bound = self.network.entry(self.loss).carry({self.weight: following})
        self.plan: Plan = self.bound.lower()
        self.state = self.network.state()
        self.step(self.plan, None)

    def step(self, plan: Plan, steps: int | None) -> Any:
        return plan.advance(self.state, {"x": [[0.5, -1.0]]}, steps=steps).of(self.loss)

    def held(self) -> Any:
        return self.state.of(self.weight)


def raising(error: BaseException, after: Callable[..., Any] | None = None) -> Any:
    """What stands in for a part of native code: it raises, after it has done its work or without."""

    def broken(*arguments: Any) -> Any:
        if after is not None:
            after(*arguments)
        raise error

    return broken


@pytest.mark.parametrize("runs_before", [0, 2])
@pytest.mark.parametrize("part", ["table", "point", "ready"])
def test_a_run_that_raises_is_interpreted_from_now_on(
    part: str, runs_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Descent()
    plan, parameters = case.bound.lower().prepare(), case.network.parameters()
    expected = case.bound.interpret(parameters).of(case.loss)
    for _ in range(runs_before):
        plan.forward(parameters)
    with monkeypatch.context() as patch:
        patch.setattr(Executable, part, raising(OSError("no more")))
        if runs_before and part != "ready":  # nothing is asked for anew
            assert_same_bits(plan.forward(parameters).of(case.loss), expected)
            return
        with pytest.warns(RuntimeWarning, match=RAISED) as caught:
            assert_same_bits(plan.forward(parameters).of(case.loss), expected)
    assert [warning.filename for warning in caught] == [__file__]
    assert plan._native.code(stepping=False).explain() == plan.explain() == TOLD
    assert_same_bits(plan.forward(parameters).of(case.loss), expected)


@pytest.mark.parametrize(("part", "steps"), [("ready", None), ("point", 3), ("ready", 3)])
def test_a_step_that_raises_before_the_call_is_interpreted_from_now_on(
    part: str, steps: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing has been done: the interpreter takes the same steps in its place."""
    case, native = Descent(), Descent()
    wanted = [native.step(native.plan, steps) for _ in range(2)]
    with monkeypatch.context() as patch:
        patch.setattr(Executable, part, raising(OSError("no more")))
        with pytest.warns(RuntimeWarning, match=RAISED) as caught:
            assert_same_bits(case.step(case.plan, steps), wanted[0])
    assert [warning.filename for warning in caught] == [__file__]
    assert case.plan.explain() == TOLD
    assert_same_bits(case.step(case.plan, steps), wanted[1])  # and no warning, which would be an error here
    assert_same_bits(case.held(), native.held())


@pytest.mark.parametrize("steps", [None, 3])
def test_a_step_that_raises_after_the_call_raises(steps: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The State has taken its steps, and takes none of them twice; the plan stays native."""
    case, native = Descent(), Descent()
    native.step(native.plan, steps)
    with monkeypatch.context() as patch:
        patch.setattr(Executable, "enter", raising(OSError("no more"), after=Executable.enter))
        with pytest.raises(OSError, match="^no more$"):
            case.step(case.plan, steps)
    assert_same_bits(case.held(), native.held())
    assert case.plan.explain().splitlines()[-1].startswith("native: ")
    assert_same_bits(case.step(case.plan, steps), native.step(native.plan, steps))
    assert_same_bits(case.held(), native.held())


@pytest.mark.parametrize("runs_before", [0, 1])
def test_want_of_memory_keeps_a_native_plan(runs_before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case, native = Descent(), Descent()
    plan, parameters = case.bound.lower().prepare(), case.network.parameters()
    expected = case.bound.interpret(parameters).of(case.loss)
    for _ in range(runs_before):
        plan.forward(parameters)
    with monkeypatch.context() as patch:
        patch.setattr(Executable, "ready", raising(MemoryError()))
        assert_same_bits(plan.forward(parameters).of(case.loss), expected)
        assert_same_bits(case.step(case.plan, None), native.step(native.plan, None))
    assert_same_bits(case.held(), native.held())
    assert isinstance(plan._native.code(stepping=False), Executable)
    assert isinstance(case.plan._native.code(stepping=True), Executable)


def test_a_refused_feed_is_no_reason_to_give_up() -> None:
    case, native = Descent(), Descent()
    before = case.held()
    for feeds in ({"x": [[1.0, 2.0, 3.0]]}, {"x": "no"}, {"y": 1.0}):
        with pytest.raises((FeedError, TypeError)):
            case.plan.advance(case.state, feeds)
    assert_same_bits(case.held(), before)
    assert_same_bits(case.step(case.plan, None), native.step(native.plan, None))
    assert isinstance(case.plan._native.code(stepping=True), Executable)
