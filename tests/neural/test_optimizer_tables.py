"""What an optimizer remembers from step to step, and what it refuses."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import (
    Adafactor,
    Adam,
    AdamW,
    ElementError,
    KinshipError,
    Lion,
    Optimizer,
    Parameters,
    SettingError,
    Sgd,
    ShapeError,
    Tape,
    Tensor,
    ToposError,
    Value,
    accumulate,
    f64,
)
from topos.testing import assert_same_bits, same_bits


def one_slot() -> tuple[Parameters, Any]:
    network, weight = Tape.record(lambda tape: tape.parameter([1.0, 2.0]))
    return network.parameters(), weight


def test_tables_are_pickled_with_the_optimizer() -> None:
    table, weight = one_slot()
    optimizer = Adam()
    assert optimizer.tables == {}
    table = optimizer.step(table, table, 0.1)
    other = pickle.loads(pickle.dumps(optimizer))
    assert list(other.tables) == ["first", "second", "power1", "power2"]
    assert_same_bits(other.step(table, table, 0.1).of(weight), optimizer.step(table, table, 0.1).of(weight))


def test_an_interrupt_leaves_the_tables_of_before_or_those_of_after(interrupted: Callable[..., None]) -> None:
    network, _ = Tape.record(lambda tape: [tape.parameter([1.0, 2.0]), tape.parameter(3.0)])
    first = network.parameters()
    complete = Adam()
    second = complete.step(first, first, 0.1)
    before = complete.tables
    complete.step(second, first, 0.1)
    after = complete.tables
    found, at = set(), 0
    while True:
        optimizer = Adam()
        optimizer.tables = before
        try:
            interrupted(lambda optimizer=optimizer: optimizer.step(second, first, 0.1), at)  # type: ignore[misc]
        except KeyboardInterrupt:
            found.add([same_bits(optimizer.tables, tables) for tables in (before, after)].index(True))
            at += 7
        else:
            break
    assert at > 100
    assert 0 in found


def test_a_network_that_grew_keeps_what_is_remembered() -> None:
    network, weight = Tape.record(lambda tape: tape.parameter([1.0, 2.0]))
    optimizer = Sgd(momentum=0.5)
    table = optimizer.step(network.parameters(), network.parameters(), 0.5)
    tape = network.into_tape()
    fresh = tape.parameter(3.0).symbol()
    table = table.carried(tape.into_network())
    table = optimizer.step(table, table, 0.5)
    assert_same_bits(table.of(weight), np.array([0, 0], np.float32))
    assert_same_bits(table.of(fresh), np.float32(1.5))


def test_a_step_counts_for_the_slots_that_take_part() -> None:
    """A slot's first step is corrected as a first step, however late it comes."""
    network, (left, right) = Tape.record(lambda tape: [tape.parameter(1.0), tape.parameter(1.0)])
    table, optimizer = network.parameters(), Adam()
    family = left.family
    for _ in range(5):
        table = optimizer.step(table, Parameters(family, {left.index: Tensor(1.0)}), 0.125)
    table = optimizer.step(table, Parameters(family, {right.index: Tensor(1.0)}), 0.125)
    assert float(table.of(right)) == 0.875


# refusals
def refusal(kind: type[ToposError], call: Callable[[], Any]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def test_what_does_not_fit_is_refused() -> None:
    table, weight = one_slot()
    optimizer = Sgd(momentum=0.5)
    wrong = Parameters(weight.family, {weight.index: Tensor([1.0])})
    other = Parameters(weight.family, {weight.index: Tensor([1.0, 2.0], f64)})
    told = refusal(ShapeError, lambda: optimizer.step(table, wrong, 0.1))
    assert told == "Sgd: %0 has shape [2], its gradient [1]"
    told = refusal(ElementError, lambda: optimizer.step(table, other, 0.1))
    assert told == "Sgd: %0 is of f32, its gradient of f64"
    told = refusal(ShapeError, lambda: optimizer.step(table, table, [0.1, 0.2]))
    assert told == "Sgd: the rate has rank 0, got shape [2]"
    optimizer.step(table, table, 0.1)
    strange, _ = one_slot()
    told = refusal(KinshipError, lambda: optimizer.step(strange, strange, 0.1))
    assert told == "Sgd: what it remembers belongs to another spec"


def test_tables_that_are_not_its_own_are_refused() -> None:
    table, _ = one_slot()
    adam, sgd = Adam(), Sgd(momentum=0.5)
    sgd.step(table, table, 0.1)
    adam.tables = sgd.tables
    told = refusal(KinshipError, lambda: adam.step(table, table, 0.1))
    wanted = "'first', 'second', 'power1', 'power2'"
    assert told == f"Adam: %0 wants {wanted} in the tables, which have 'velocity'"
    strange, _ = one_slot()

    def give(tables: Any) -> Callable[[], None]:
        return lambda: setattr(adam, "tables", tables)

    told = refusal(KinshipError, give({"first": table, "second": strange}))
    assert told == "Adam: the tables belong to several specs"
    told = refusal(KinshipError, give({"first": {}}))
    assert told == "Adam: wants Parameters for 'first', got dict"


def test_what_is_no_adjoints_is_refused() -> None:
    tape = Tape()
    weight = tape.parameter(1.0)
    pairs: Any = [(weight, weight)]
    told = "{}: wants Adjoints, which tape.differentiate answers, got list"
    assert refusal(KinshipError, lambda: Adam().record(tape, pairs)) == told.format("Adam")
    assert refusal(KinshipError, lambda: accumulate(tape, pairs)) == told.format("accumulate")
    detached = tape.differentiate(weight * weight, weight).detach()
    assert len(accumulate(tape, detached).adjoints) == len(Adam().record(tape, detached).carry) - 4


class Anew(Optimizer):
    """Makes the rule of a slot each time it is asked."""

    def rule(self, symbol: Any) -> Optimizer:
        return Sgd() if symbol.index % 2 else AdamW(decay=0.25)


def test_a_rule_that_is_made_each_time_it_is_asked_for_shares_nothing_that_is_not_its_own() -> None:
    network, weights = Tape.record(lambda tape: [tape.parameter([1.0, 2.0]) for _ in range(8)])
    table = network.parameters()
    stepped = Anew().step(table, table, 0.5)
    for weight in weights:
        alone = (Sgd() if weight.index % 2 else AdamW(decay=0.25)).step(table, table, 0.5)
        assert_same_bits(stepped.of(weight), alone.of(weight))


class Answering(Optimizer):
    """A rule that answers what it is told to."""

    def __init__(self, answer: Callable[[Any], tuple[Any, dict[str, Any]]]) -> None:
        self.answer = answer

    def start(self, weight: Tensor) -> dict[str, Tensor]:
        return {"kept": weight.zero_like()}

    def update(self, weight: Any, gradient: Any, kept: Any, common: Any) -> tuple[Any, dict[str, Any]]:
        return self.answer(weight)


@pytest.mark.parametrize(
    ("kind", "answer", "told"),
    [
        (ShapeError, lambda w: (w.sum(), {"kept": w}), "Answering: {} has shape [2], the rule answered []"),
        (ShapeError, lambda w: (w, {"kept": w.sum()}), "Answering: 'kept' of {} has shape [2], the rule answered []"),
        (KinshipError, lambda w: (w, {}), "Answering: {} keeps 'kept', the rule answered nothing"),
        (KinshipError, lambda w: (w, {"kept": w, "x": w}), "Answering: {} keeps 'kept', the rule answered 'kept', 'x'"),
    ],
)
def test_a_rule_that_answers_something_else_is_refused_in_both_readings(
    kind: type[ToposError], answer: Any, told: str
) -> None:
    table, _ = one_slot()
    optimizer = Answering(answer)
    assert refusal(kind, lambda: optimizer.step(table, table, 0.1)) == told.format("%0")
    tape = Tape()
    weight: Value = tape.parameter([1.0, 2.0], name="h0.weight")
    adjoints = tape.differentiate(weight.sum(), weight)
    assert refusal(kind, lambda: optimizer.record(tape, adjoints)) == told.format("h0.weight")


def test_a_rule_without_an_update_says_so() -> None:
    table, _ = one_slot()
    with pytest.raises(NotImplementedError, match=r"^Optimizer\.update$"):
        Optimizer().step(table, table, 0.1)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Sgd(momentum=1.0), "Sgd: momentum must be a number at least 0 and below 1, got 1.0"),
        (lambda: Sgd(nesterov=True), "Sgd: nesterov wants a momentum above 0"),
        (lambda: Adam(beta1=-0.1), "Adam: beta1 must be a number at least 0 and below 1, got -0.1"),
        (lambda: Adam(beta2=float("nan")), "Adam: beta2 must be a number at least 0 and below 1, got nan"),
        (lambda: Adam(epsilon=-1), "Adam: epsilon must be a finite number at least 0, got -1"),
        (lambda: AdamW(decay="much"), "AdamW: decay must be a finite number at least 0, got 'much'"),
        (lambda: AdamW(beta1=True), "AdamW: beta1 must be a number at least 0 and below 1, got True"),
        (lambda: Lion(beta2=2), "Lion: beta2 must be a number at least 0 and below 1, got 2"),
        (lambda: Adafactor(limit=0), "Adafactor: limit must be a number above 0, got 0"),
        (lambda: Adafactor(epsilon=0.0), "Adafactor: epsilon must be a number above 0, got 0.0"),
    ],
)
def test_wrong_options_are_refused_where_they_are_given(make: Any, told: str) -> None:
    assert refusal(SettingError, make) == told


def test_it_shows_its_options() -> None:
    assert repr(AdamW(decay=0.1)) == "AdamW(beta1=0.9, beta2=0.999, epsilon=1e-08, decay=0.1)"
    assert repr(Sgd().step_where(bool)) == ("Sgd(momentum=0.0, nesterov=False).step_where(<class 'bool'>, None)")
