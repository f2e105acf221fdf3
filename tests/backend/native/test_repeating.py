"""Many steps of a small program as one function: its bits, and what becomes of memory in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import topos
from topos import Element, Plan, Tape, Value, bf16, f32, f64
from topos.backend.native import cascade_block, cascades, executable
from topos.backend.native.emission import CompilationError, optimised
from topos.backend.native.llvm import ask
from topos.backend.native.target import current
from topos.testing import assert_same_bits

Carry = dict[Value, Value]
Record = Callable[[Tape], tuple[list[Value], Carry]]
STEPS = 5


def scalar(tape: Tape) -> tuple[list[Value], Carry]:
    """One group, one number carried."""
    weight, x = tape.parameter(0.5), tape.input(shape=[], name="x")
    error = weight * x - 2.0
    return [error * error], {weight: weight - error * x * 0.01}


def momentum(tape: Tape) -> tuple[list[Value], Carry]:
    """Vectors that are copied to their places in the end, and a result that is a source."""
    weight, moment, bias = tape.parameter(np.linspace(-1, 1, 4)), tape.parameter(np.zeros(4)), tape.parameter(0.25)
    x = tape.input(shape=[], name="x")
    error = (weight * x.broadcast([4])).sum() + bias - 1.0
    moved = moment * 0.9 + error.broadcast([4]) * weight
    return [error, weight], {weight: weight - moved * 0.1, moment: moved, bias: bias - error * 0.1}


def exchanged(tape: Tape) -> tuple[list[Value], Carry]:
    """Each takes the place of the other, so that both are saved first."""
    one, other = tape.parameter(0.5), tape.parameter(-2.0)
    return [one + other], {one: other * tape.input(shape=[], name="x"), other: one}


def chained(tape: Tape) -> tuple[list[Value], Carry]:
    """More than a loop holds: several groups, and the arena between them."""
    weight, x = tape.parameter(0.5), tape.input(shape=[], name="x")
    value = weight
    for at in range(150):
        value = value * x + (at % 7) * 0.01
    return [value], {weight: value.tanh()}


def odd(tape: Tape) -> tuple[list[Value], Carry]:
    """Lengths that fill no vector, columns and rows, and functions whose rare arguments branch."""
    table, x = tape.parameter(np.linspace(-3, 3, 15).reshape(3, 5)), tape.input(shape=[], name="x")
    scores = (table * x.broadcast([3, 5])).exp() + table.tanh()
    return [scores.sum_along(0), scores.max_along(1)], {table: scores.log_softmax(1) * x.broadcast([3, 5])}


def layered(tape: Tape) -> tuple[list[Value], Carry]:
    """Products, whose kernels do nothing but call others."""
    weight, rate = tape.parameter(np.linspace(-1, 1, 16).reshape(2, 8)), tape.parameter(0.5)
    rows = tape.leaf(np.linspace(-2, 2, 18).reshape(9, 2)) * tape.input(shape=[], name="x").broadcast([9, 2])
    return [rows @ weight], {weight: weight * 0.5, rate: rate * 0.5}


PROGRAMS = [scalar, momentum, exchanged, chained, odd, layered]


class Case:
    """A program that carries, its plan, and its steps by hand."""

    def __init__(self, record: Record, element: Element = f32) -> None:
        tape = Tape(element)
        results, carry = record(tape)
        self.results, self.carry = topos.detach(results, carry)
        self.network = tape.into_network()
        self.plan: Plan = self.network.entry(self.results).carry(self.carry).lower()
        self.text = self.plan._native.code(stepping=True).manifest.repeated  # type: ignore[attr-defined]

    def by_hand(self, state: topos.State, numbers: Iterable[Any]) -> list[np.ndarray]:
        """Steps by the interpreter: what is read, and the replacements made in the state given."""
        read = []
        for number in numbers:
            run = self.network.entry([*self.results, *self.carry.values()]).interpret(state, {"x": number})
            state.replace({source.index: run.of(following) for source, following in self.carry.items()})
            read.append([tensor.numpy().copy() for tensor in run.of(self.results)])
        return [np.stack(column) for column in zip(*read, strict=True)]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may have a function of its own has it from the first step on."""
    monkeypatch.setattr(executable, "WORTH_STEPS", 0)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
@pytest.mark.parametrize("record", PROGRAMS)
def test_bits(record: Record, element: Element, in_turn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fed anew for each step or once for all; in one native call or in one per step, between calls of single steps."""
    if in_turn:
        monkeypatch.setattr(executable, "INTERRUPTIBLE_S", 0.0)
    case = Case(record, element)
    assert case.text or (record, element) in ((chained, bf16), (odd, f64))  # whose kernels are long
    state, by_hand = case.network.state(), case.network.state()
    numbers = np.linspace(0.25, 1.5, STEPS).astype(element.dtype)
    for fed in (numbers, numbers[0], list(numbers), numbers[::-1]):
        every = np.broadcast_to(np.asarray(fed, element.dtype), STEPS)
        expected = case.by_hand(by_hand, every)
        assert_same_bits(case.plan.advance(state, {"x": fed}, steps=STEPS).of(case.results), expected)
        assert_same_bits(state.clone(), by_hand.clone())
        (expected,) = zip(*case.by_hand(by_hand, [numbers[1]]), strict=True)
        assert_same_bits(case.plan.advance(state, {"x": numbers[1]}).of(case.results), list(expected))
        case.plan.advance(state, {"x": numbers}, steps=STEPS)
        case.by_hand(by_hand, numbers)
    assert_same_bits(state, by_hand)


@pytest.mark.usefixtures("at_once")
def test_what_does_not_compile_is_told_once_and_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str, target: object) -> NoReturn:
        asked.append(text)
        raise CompilationError("LLVM refuses it")

    asked: list[str] = []
    case = Case(scalar)
    state, by_hand, numbers = case.network.state(), case.network.state(), np.float32([0.5, 1.0, 0.25])
    monkeypatch.setattr(executable, "compiled", refuse)
    with pytest.warns(RuntimeWarning, match="many steps run kernel by kernel: LLVM refuses it"):
        first = case.plan.advance(state, {"x": numbers}, steps=3)
    assert_same_bits(first.of(case.results), case.by_hand(by_hand, numbers))
    again = case.plan.advance(state, {"x": numbers}, steps=3)
    assert_same_bits(again.of(case.results), case.by_hand(by_hand, numbers))
    assert_same_bits(state, by_hand)
    assert asked == [case.text]
    assert "native" in case.plan.explain()


def staged(tape: Tape) -> tuple[list[Value], Carry]:
    """A kernel alone, and the same one between two products that run together."""
    weight, x = tape.parameter(np.eye(2)), tape.input(shape=[], name="x")
    inner, outer = (tape.leaf(np.arange(4.0).reshape(2, 2) / number) for number in (5, 7))
    first = weight.tanh()
    second = (first @ inner).tanh() @ outer
    return [first, second], {weight: weight * x.broadcast([2, 2])}


@pytest.mark.usefixtures("at_once")
def test_kernels_may_have_functions_of_the_same_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, limit in ((cascades, "FEWEST_BLOCKS"), (cascades, "FEWEST_ROWS"), (cascade_block, "FEWEST_ROWS")):
        monkeypatch.setattr(module, limit, 1)
    case = Case(staged)
    names = [f"@{name}(ptr" for name in re.findall(r"define void @(elementwise_\w+)", case.plan.llvm())]
    assert any(case.text.count(f"define internal void {name}") for name in names) and "cascade_" in case.text
    state, by_hand = case.network.state(), case.network.state()
    numbers = np.linspace(0.25, 1.5, STEPS).astype(np.float32)
    expected = case.by_hand(by_hand, numbers)
    assert_same_bits(case.plan.advance(state, {"x": numbers}, steps=STEPS).of(case.results), expected)
    assert_same_bits(state, by_hand)


@pytest.mark.parametrize("record", [scalar, momentum, exchanged, chained])
def test_what_is_carried_and_what_lies_between_groups_is_in_registers(record: Record) -> None:
    """After the passes that every text goes through, no step reads or writes a variable."""
    text = Case(record).text
    for stage in (text, ask(lambda: str(optimised(text, "a loop", current())))):
        before, _, steps = stage.partition("\nstep:")
        variables = re.findall(r"(%\S+) = alloca", before)
        assert any(f"{variable}," in steps for variable in variables) == (stage is text)


def large(tape: Tape) -> tuple[list[Value], Carry]:
    weight = tape.parameter(np.zeros(17))
    return [], {weight: weight + tape.input(shape=[], name="x").broadcast([17])}


def shared(tape: Tape) -> tuple[list[Value], Carry]:
    weight, x = tape.parameter(0.5), tape.input(shape=[300, 3000], name="x")
    return [x.exp()], {weight: weight * 0.5}


def long(tape: Tape) -> tuple[list[Value], Carry]:
    weight = tape.parameter(0.5)
    value = weight
    for at in range(1000):
        value = value * (at % 7) + 0.5
    return [], {weight: value}


@pytest.mark.parametrize("record", [large, shared, long])
def test_a_program_that_would_gain_nothing_has_none(record: Record) -> None:
    """What is carried is no variable of a few registers; threads share a kernel; its kernels are long."""
    case = Case(record)
    assert case.text == ""
    assert "@repeat_" not in case.plan.llvm()


def halved(tape: Tape) -> tuple[list[Value], Carry]:
    weight = tape.parameter(0.5)
    return [], {weight: weight * tape.input(shape=[], name="x") / 2.0}


def test_it_is_made_once_it_is_worth_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "WORTH_STEPS", 100)
    case = Case(halved)
    state, made = case.network.state(), []
    assert "@repeat_" in case.plan.llvm()
    for steps in (60, None, 39, 1, 50):
        before = topos.compiles()
        case.plan.advance(state, {"x": 1.5}, steps=steps)
        made.append(sum(event.what.startswith("repeat_") for event in topos.compiles().since(before).recent))
    assert made == [0, 0, 0, 1, 0]
