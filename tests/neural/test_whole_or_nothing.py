"""What fails records nothing, and leaves no name taken."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from topos import (
    KinshipError,
    Linear,
    Module,
    Optimizer,
    Parallel,
    Residual,
    Sequential,
    SettingError,
    ShapeError,
    Tape,
    Value,
    accumulate,
    init,
)

ones = init.ones


def unlucky(shape: Any, element: Any) -> Any:
    raise ShapeError("unlucky")


def nodes_after(tape: Tape, call: Callable[[], Any], error: type[Exception]) -> int:
    before = len(tape)
    with pytest.raises(error):
        call()
    assert len(tape) == before
    return before


def test_a_transaction_keeps_what_it_records_whole_or_not_at_all() -> None:
    tape = Tape()
    with tape.transaction():
        x = tape.input([1, 2], name="x")
    with pytest.raises(ShapeError), tape.transaction():
        tape.input(0.0, name="y")
        x.reshape([3])
    assert len(tape) == 1
    assert tape.input(0.0, name="y").shape == []


def test_a_transaction_may_hold_another_that_fails() -> None:
    tape = Tape()
    with tape.transaction():
        x = tape.input([1, 2])
        with pytest.raises(ShapeError), tape.transaction():
            (x * 2).reshape([3])
        x.exp()
    assert [node.opcode.name for node in tape.nodes()] == ["Input", "Exp"]


class Failing(Module):
    def express(self, x: Value) -> Value:
        return (x * 2).reshape([7])


READINGS: dict[str, Callable[[Any, Value], Any]] = {
    "call": lambda module, x: module(x),
    "train": lambda module, x: module.train(x),
    "infer": lambda module, x: module.infer(x),
}


@pytest.mark.parametrize("read", READINGS)
def test_a_reading_that_fails_records_nothing(read: str) -> None:
    tape = Tape()
    x, exp = tape.input([[1.0, 2.0]]), Value.exp
    for module in (Failing(), Sequential(exp, Failing()), Residual(Failing(), exp), Parallel(exp, Failing())):
        nodes_after(tape, lambda module=module: READINGS[read](module, x), ShapeError)  # type: ignore[misc]


@pytest.mark.parametrize("read", READINGS)
@pytest.mark.parametrize("around", [lambda part: Residual(part, Value.tanh), lambda part: Parallel(Value.tanh, part)])
def test_modules_deeper_than_the_stack_are_refused_and_record_nothing(
    read: str, around: Callable[[Any], Module]
) -> None:
    tape = Tape()
    x, module = tape.input([[1.0, 2.0]]), around(Value.exp)
    for _ in range(sys.getrecursionlimit()):
        module = around(module)
    nodes_after(tape, lambda: READINGS[read](module, x), SettingError)
    with pytest.raises(SettingError, match=r"^\w+ is nested deeper than Python's stack: its limit is \d+ calls$"):
        READINGS[read](module, x)


def test_a_module_that_is_not_made_records_nothing() -> None:
    tape = Tape()
    nodes_after(tape, lambda: Linear(tape, 2, 3, ones, bias=unlucky, name="dense"), ShapeError)
    assert Linear(tape, 2, 3, ones, name="dense").path == "dense"


def test_a_module_of_ones_own_that_is_not_made_records_nothing() -> None:
    class Pair(Module):
        def __init__(self, tape: Tape) -> None:
            self.first = Linear(tape, 2, 3, ones, name="first")
            self.second = Linear(tape, 3, 0, unlucky, name="second")

    tape = Tape()
    nodes_after(tape, lambda: Pair(tape), ShapeError)
    nodes_after(tape, lambda: Pair(tape=tape), ShapeError)


def test_an_expression_that_fails_records_nothing() -> None:
    class Wrong(Module):
        def express(self, x: Value) -> Value:
            return (x * 2) @ x

    tape = Tape()
    x = tape.input([1, 2])
    nodes_after(tape, lambda: Wrong()(x), ShapeError)


def test_a_step_that_fails_is_not_recorded() -> None:
    class Wrong(Optimizer):
        def start(self, weight: Any) -> dict[str, Any]:
            return {"kept": weight}

        def update(self, weight: Any, gradient: Any, kept: Any, common: Any) -> Any:
            return weight.sum(), kept

    tape = Tape()
    weight = tape.parameter([1, 2], name="weight")
    adjoints = tape.differentiate((weight * weight).sum(), weight)
    nodes_after(tape, lambda: Wrong().record(tape, adjoints), ShapeError)


def test_gathering_that_fails_is_not_recorded() -> None:
    tape = Tape()
    weight = tape.parameter([1, 2], name="weight")
    tape.input(0.0, name="gathered.weight")
    adjoints = tape.differentiate((weight * weight).sum(), weight)
    nodes_after(tape, lambda: accumulate(tape, adjoints, name="gathered"), KinshipError)


def test_a_value_resolves_to_itself_and_a_foreign_one_is_refused() -> None:
    tape = Tape()
    x = tape.input(1.0)
    assert tape.resolve(x) == x == tape.resolve(x.symbol())
    with pytest.raises(KinshipError):
        tape.resolve(Tape().input(1.0))
