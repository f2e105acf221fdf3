"""One rule, two readings: graded, held against the papers, and spelled as a hand would."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import (
    Adafactor,
    Adam,
    AdamW,
    Adjoints,
    KinshipError,
    Lion,
    Optimizer,
    SettingError,
    Sgd,
    Tape,
    Tensor,
    Update,
    bf16,
    f32,
    f64,
    schedule,
)
from topos.element import Element
from topos.testing import assert_same_bits, grade_optimizer

from . import rules

MADE: dict[str, tuple[Callable[[], Optimizer], rules.Rule]] = {
    "sgd": (Sgd, rules.sgd()),
    "momentum": (lambda: Sgd(momentum=0.9), rules.sgd(0.9)),
    "nesterov": (lambda: Sgd(momentum=0.9, nesterov=True), rules.sgd(0.9, True)),
    "adam": (Adam, rules.adam()),
    "adam options": (lambda: Adam(beta1=0.8, beta2=0.9, epsilon=1e-3), rules.adam(0.8, 0.9, 1e-3)),
    "adamw": (lambda: AdamW(decay=0.1), rules.adam(decay=0.1)),
    "lion": (lambda: Lion(decay=0.1), rules.lion(decay=0.1)),
    "adafactor": (Adafactor, rules.adafactor()),
    "adafactor options": (lambda: Adafactor(beta2=0.9, limit=0.5), rules.adafactor(0.9, limit=0.5)),
}


@pytest.mark.parametrize("name", MADE)
def test_both_readings_are_the_same_bits_and_leave_alone_what_they_must(name: str) -> None:
    grade_optimizer(MADE[name][0])


def test_a_policy_is_graded_too() -> None:
    def make(otherwise: Optimizer | None = None) -> Optimizer:
        return AdamW(decay=0.1).step_where(lambda symbol: symbol.index % 2 == 0, otherwise)

    grade_optimizer(make)
    grade_optimizer(lambda: make(Sgd(momentum=0.5)))
    grade_optimizer(lambda: make(Adam(beta1=0.5).step_where(lambda symbol: symbol.index % 3 == 0, Lion())))


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize(("element", "bound"), [(f64, 1e-13), (f32, 2e-5)])
def test_twenty_steps_are_the_papers(name: str, element: Element, bound: float) -> None:
    """The bound of f32 is a few steps' roundings of corrections near 1 - beta2, at rates of 0.1 and less."""
    make, rule = MADE[name]
    random = np.random.default_rng(1)
    starts = [random.normal(size=shape) for shape in ((4, 3), (5,), (2, 2, 2))]
    network, weights = Tape.record(lambda tape: [tape.parameter(start) for start in starts], element)
    optimizer, table = make(), network.parameters()
    expected = [table.of(weight).numpy().astype(np.float64) for weight in weights]
    kept: list[dict[str, Any]] = [{} for _ in weights]
    for t in range(1, 21):
        drawn = {weight: random.normal(size=weight_.shape) for weight, weight_ in zip(weights, starts, strict=True)}
        gradients = table.with_payloads(drawn)
        table = optimizer.step(table, gradients, 0.1 / t)
        for place, weight in enumerate(weights):
            gradient = gradients.of(weight).numpy().astype(np.float64)
            expected[place] = rule(expected[place], gradient, kept[place], t, 0.1 / t)
    for weight, wanted in zip(weights, expected, strict=True):
        assert np.abs(table.of(weight).numpy() - wanted).max() <= bound


# the text
def recorded(step: Callable[[Tape, Adjoints], Update], element: Element = f32) -> tuple[Any, Update]:
    def record(tape: Tape) -> Any:
        matrix, bias = tape.parameter([[1, 2], [3, 4]], name="weight"), tape.parameter([1, 2], name="bias")
        gradients = [tape.input(shape=[2, 2]), tape.input(shape=[2])]
        adjoints = Adjoints(tape.leaf(0), list(zip([matrix, bias], gradients, strict=True)))
        return step(tape, adjoints)

    return Tape.record(record, element)


TEXTS = ("sgd", "nesterov", "adam", "adamw", "lion", "adafactor")


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_recorded_is_pinned(name: str, golden: Callable[[str, str], None]) -> None:
    network, _ = recorded(lambda tape, adjoints: MADE[name][0]().record(tape, adjoints))
    golden(network.describe(names=True), f"neural_optimizer_{name}.txt")


def test_a_step_by_hand_is_the_same_text() -> None:
    def by_hand(tape: Tape, adjoints: Adjoints) -> Update:
        rate = tape.input(0.0, name="adamw.rate")
        power1, power2 = tape.input(1.0, name="adamw.power1"), tape.input(1.0, name="adamw.power2")
        one = rate.one_like()
        carry = {power1: power1 * 0.9, power2: power2 * 0.999}
        scale, length = one / (one - carry[power2]).sqrt(), rate / (one - carry[power1])
        rest1, rest2 = one - 0.9, one - 0.999
        shrink = rate.one_like() - rate * 0.1
        for weight, gradient in adjoints:
            shape, name = weight.shape, "weight" if weight.shape.rank == 2 else "bias"
            first = tape.input(shape=shape, name=f"adamw.{name}.first")
            second = tape.input(shape=shape, name=f"adamw.{name}.second")
            spread = [number.broadcast(shape) for number in (rest1, rest2, scale, length)]
            carry[first] = first * 0.9 + gradient * spread[0]
            carry[second] = second * 0.999 + gradient * gradient * spread[1]
            decayed = weight * shrink.broadcast(shape)
            carry[weight] = decayed - carry[first] / (carry[second].sqrt() * spread[2] + 1e-8) * spread[3]
        return Update(rate, carry)

    network, update = recorded(lambda tape, adjoints: AdamW(decay=0.1).record(tape, adjoints))
    ours, mine = recorded(by_hand)
    assert network.describe(names=True) == ours.describe(names=True)
    assert {source.index: following.index for source, following in update.carry.items()} == {
        source.index: following.index for source, following in mine.carry.items()
    }


def test_the_rate_and_the_names() -> None:
    network, update = recorded(lambda tape, adjoints: Sgd(momentum=0.5).record(tape, adjoints, rate=0.25, name="late"))
    assert update.rate == network.symbol("late.rate")
    assert_same_bits(network.payload(update.rate), np.float32(0.25))
    assert [source.index for source in update.carry] == [
        network.symbol(name).index for name in ("late.weight.velocity", "weight", "late.bias.velocity", "bias")
    ]


def test_nameless_parameters_have_nameless_moments() -> None:
    def record(tape: Tape) -> Any:
        weight = tape.parameter([1.0])
        Adam().record(tape, tape.differentiate((weight * weight).sum(), weight))
        return weight

    network, _ = Tape.record(record)
    assert [node.name for node in network.nodes() if node.name] == []


def test_two_optimizers_in_one_spec_have_names_of_their_own() -> None:
    def record(tape: Tape) -> Any:
        weight = tape.parameter(1.0, name="w")
        adjoints = tape.differentiate(weight * weight, weight)
        Sgd().record(tape, adjoints, name="first")
        Sgd().record(tape, adjoints, name="second")
        with pytest.raises(KinshipError) as caught:
            Sgd().record(tape, adjoints, name="second")
        return str(caught.value).split(" ")[:4]

    assert Tape.record(record)[1] == ["name:", "'second.rate'", "is", "taken"]


def test_a_parameter_that_is_asked_for_twice_is_stepped_once_and_order_does_not_matter() -> None:
    def record(turned: bool) -> Any:
        def inner(tape: Tape) -> Any:
            left, right = tape.parameter(1.0, name="left"), tape.parameter(2.0, name="right")
            loss = left * right
            adjoints = tape.differentiate(loss, [right, left, right] if turned else [left, right])
            return Adam().record(tape, adjoints)

        return Tape.record(inner)

    (plain, update), (turned, other) = record(False), record(True)
    assert len(update.carry) == len(other.carry) == 8
    kept = [name for node in plain.nodes() if (name := node.name)]
    assert kept == [name for node in turned.nodes() if (name := node.name)]


def test_only_what_a_state_holds_is_stepped() -> None:
    tape = Tape()
    weight = tape.parameter(2.0)
    square = weight * weight
    adjoints = tape.differentiate(square, square)
    length = len(tape)
    with pytest.raises(KinshipError, match=r"^Adam: steps parameters and inputs, got %1 Mul \[\]"):
        Adam().record(tape, adjoints)
    assert len(tape) == length


def test_an_input_is_stepped_as_a_parameter_is() -> None:
    def record(tape: Tape) -> Any:
        x = tape.input([1.0, 2.0])
        return Sgd().record(tape, tape.differentiate((x * x).sum(), x), rate=0.25), x

    network, (update, x) = Tape.record(record)
    state = network.state()
    network.entry(()).carry(update.carry).lower().advance(state)
    assert_same_bits(state.of(x), np.array([0.5, 1.0], np.float32))


# elements
def test_master_weights_are_stepped_in_their_own_element() -> None:
    """Weights of f32 on a tape of bf16: nothing of the step is rounded to bf16."""

    def record(tape: Tape) -> Any:
        weight = tape.parameter([1.0, 2.0], element=f32, name="weight")
        x = tape.input([3.0, 0.5], name="x")
        loss = (weight.to(bf16) * x).sum()
        adjoints = tape.differentiate(loss, weight)
        return adjoints, Adam().record(tape, adjoints), weight

    network, (adjoints, update, weight) = Tape.record(record, bf16)
    of = {symbol.index: network.node(symbol).element for symbol in (update.rate, *update.carry)}
    assert set(of.values()) == {f32}
    state, table, optimizer = network.state(), network.parameters(), Adam()
    plan = network.entry(()).carry(update.carry).lower()
    for step in range(3):
        gradients = network.entry(adjoints.roots()).lower().forward(table).recorded_gradients(adjoints)
        table = optimizer.step(table, gradients, 1e-3)
        plan.advance(state, {update.rate: 1e-3})
        assert_same_bits(state.of(weight), table.of(weight))
        assert float(table.of(weight).numpy()[0]) == pytest.approx(1 - 1e-3 * (step + 1), abs=1e-6)


def test_narrow_weights_keep_narrow_moments_of_what_was_computed_wide() -> None:
    network, weight = Tape.record(lambda tape: tape.parameter([1.0, -2.0]), bf16)
    table, optimizer = network.parameters(), Adam()
    gradients = table.with_payloads({weight: [0.3, 0.7]})
    table = optimizer.step(table, gradients, 0.01)
    assert optimizer.tables["second"].of(weight).element is bf16
    assert optimizer.tables["power2"].of(weight).element is f32
    wide = gradients.of(weight).numpy().astype(np.float32)
    rest = np.float32(1) - np.float32(0.999)
    assert_same_bits(optimizer.tables["second"].of(weight), Tensor(wide * wide * rest, f32).convert(bf16))


class Averaged(Optimizer):
    """Keeps a mean of the weights as they move, in f32, of which it starts with the first."""

    def start(self, weight: Tensor) -> dict[str, Tensor]:
        return {"average": weight.to(f32)}

    def update(self, weight: Any, gradient: Any, kept: Any, common: Any) -> tuple[Any, dict[str, Any]]:
        after = weight - gradient * common["rate"].broadcast(weight.shape)
        return after, {"average": kept["average"] * 0.75 + after * 0.25}


def test_what_is_kept_may_be_wider_than_the_weight_and_start_from_it() -> None:
    grade_optimizer(Averaged, elements=[f32, bf16])
    network, weight = Tape.record(lambda tape: tape.parameter([1.0, 2.0]), bf16)
    table, optimizer = network.parameters(), Averaged()
    optimizer.step(table, table, 2.0**-9)
    assert_same_bits(optimizer.tables["average"].of(weight), np.array([1 - 2.0**-11, 2 - 2.0**-10], np.float32))


class Sums(Element):
    """An accumulator that is nothing else."""

    name, dtype = "sums", np.dtype(np.float64)


class Own(Element):
    """An element of a user's, with the arithmetic that steps need."""

    name, dtype, accumulator = "own", np.dtype(np.float64), Sums()
    add, sub, mul, div, neg, sqrt = map(
        staticmethod, (np.add, np.subtract, np.multiply, np.divide, np.negative, np.sqrt)
    )

    def round(self, numbers: Any) -> Any:
        return np.asarray(numbers, np.float64)


def test_an_element_of_ones_own_is_stepped_in_itself() -> None:
    grade_optimizer(lambda: Sgd(momentum=0.5), elements=[Own()])
    grade_optimizer(Adam, elements=[Own()])


def test_slots_of_two_elements_share_a_rate() -> None:
    def record(tape: Tape) -> Any:
        weights = [tape.parameter([1.0, 2.0], element=element) for element in (f64, bf16, f32)]
        gradients = [tape.input([0.1, 0.7], element=weight.element) for weight in weights]
        pairs = list(zip(weights, gradients, strict=True))
        return pairs, Adam().record(tape, Adjoints(tape.leaf(0), pairs))

    network, (pairs, update) = Tape.record(record)
    assert network.node(update.rate).element is f64
    table, state, optimizer = network.parameters(), network.state(), Adam()
    gradients = table.with_payloads({weight: network.payload(own) for weight, own in pairs})
    plan = network.entry(()).carry(update.carry).lower()
    for _ in range(2):
        table = optimizer.step(table, gradients, 0.1)
        plan.advance(state, {update.rate: 0.1})
    assert_same_bits(state.parameters().payloads(), table.payloads())


def test_a_schedule_is_asked_for_its_rate() -> None:
    tape = Tape()
    weight = tape.parameter([1.0, 2.0])
    adjoints = tape.differentiate((weight * weight).sum(), weight)
    message = "Sgd: the rate is a number, got a function; a schedule answers one: rate(step)"
    with pytest.raises(SettingError) as caught:
        Sgd().record(tape, adjoints, rate=schedule.constant(0.1))  # type: ignore[arg-type]
    assert str(caught.value) == message
    parameters = tape.into_network().parameters()
    with pytest.raises(SettingError) as caught:
        Sgd().step(parameters, parameters, schedule.constant(0.1))
    assert str(caught.value) == message
