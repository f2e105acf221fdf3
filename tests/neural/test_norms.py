"""Norms: which axes, statistics that move, and what is refused."""

import re

import numpy as np
import pytest

from topos import (
    BatchNorm,
    GroupNorm,
    LayerNorm,
    Linear,
    RecordedError,
    RmsNorm,
    Sequential,
    SettingError,
    ShapeError,
    Tape,
    Value,
    bf16,
    detach,
    f32,
    f64,
)
from topos.testing import assert_same_bits


def drawn(shape, element=None):
    return np.random.default_rng(len(shape)).normal(size=tuple(shape)) * 2 + 1


def over_all_but_channels(x, reduce, **options):
    return reduce(x, axis=(0, *range(2, x.ndim)), **options)


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (2, 3, 4, 5)], ids=str)
def test_statistics_move_while_it_trains(shape) -> None:
    """Three steps by `advance`: an exponential average of the means, and of the variances with divisor `n - 1`."""
    tape = Tape(f64)
    norm = BatchNorm(tape, 3, momentum=0.25)
    x = tape.input(shape=shape, name="x")
    (y, carry), after = norm.train(x), norm.infer(x)
    y, carry, after = detach(y, carry, after)
    network = tape.into_network()
    plan, inferring, state = network.entry(y).carry(carry).lower(), network.entry(after).lower(), network.state()
    mean, variance = np.zeros(3), np.ones(3)
    for step in range(3):
        batch = np.random.default_rng(step).normal(size=shape) * (step + 1)
        found = plan.advance(state, {"x": batch}).of(y).numpy()
        aligned = (slice(None), *[None] * (len(shape) - 2))
        centred = batch - over_all_but_channels(batch, np.mean)[aligned]
        spread = over_all_but_channels(batch, np.var)
        np.testing.assert_allclose(found, centred / np.sqrt(spread + 1e-5)[aligned], rtol=1e-11)
        mean = mean * 0.75 + over_all_but_channels(batch, np.mean) * 0.25
        variance = variance * 0.75 + over_all_but_channels(batch, np.var, ddof=1) * 0.25
        np.testing.assert_allclose(state.of(norm.mean).numpy(), mean, rtol=1e-12)
        np.testing.assert_allclose(state.of(norm.variance).numpy(), variance, rtol=1e-12)
    batch = drawn(shape)
    found = inferring.forward(state, {"x": batch}).of(after).numpy()
    np.testing.assert_allclose(found, (batch - mean[aligned]) / np.sqrt(variance + 1e-5)[aligned], rtol=1e-11)


def test_statistics_of_another_element() -> None:
    tape = Tape(bf16)
    norm = BatchNorm(tape, 3, element=f32)
    y, carry = norm.train(tape.input(drawn([8, 3])))
    assert y.element is bf16 and [(s.element, n.element) for s, n in carry.items()] == [(f32, f32)] * 2
    names, answer = detach(carry, y)
    network = tape.into_network()
    state = network.state()
    network.entry(answer).carry(names).lower().advance(state)
    assert state.of(norm.mean).element is f32


def test_a_step_of_training_is_one_entry() -> None:
    """Weights, and statistics of norms deep inside, are replaced together; bits as by replacing by hand."""
    tape = Tape()
    model = Sequential(Linear(tape, 4, 5, drawn), BatchNorm(tape, 5), Value.relu, Linear(tape, 5, 1, drawn))
    x = tape.input(drawn([7, 4]))
    y, carry = model.train(x)
    loss = (y * y).mean()
    wrt = [node.symbol for node in tape.nodes() if node.opcode.name == "Parameter"]
    carry |= {weight: weight - gradient * 0.01 for weight, gradient in tape.differentiate(loss, wrt)}
    loss, carry = detach(loss, carry)
    network = tape.into_network()
    entry = network.entry(loss).carry(carry)
    state = network.state()
    run = entry.lower().advance(state)
    by_hand = network.entry([loss, *carry.values()]).interpret(network.state())
    assert_same_bits(run.of(loss), by_hand.of(loss))
    for source, following in carry.items():
        assert_same_bits(state.of(source), by_hand.of(following))


REFUSED = {
    "bn: BatchNorm wants [batch, 3], with one axis or two after it or none, got [3]": lambda t: BatchNorm(
        t, 3, name="bn"
    ).infer(t.input(shape=[3])),
    "bn: BatchNorm wants [batch, 3], with one axis or two after it or none, got [2, 4]": lambda t: BatchNorm(
        t, 3, name="bn"
    ).train(t.input(shape=[2, 4])),
    "bn: BatchNorm wants two elements of each channel or more to train on, got [1, 3]": lambda t: BatchNorm(
        t, 3, name="bn"
    ).train(t.input(shape=[1, 3])),
    "BatchNorm wants two elements of each channel or more to train on, got [0, 3, 2]": lambda t: BatchNorm(t, 3).train(
        t.input(shape=[0, 3, 2])
    ),
    "bn: BatchNorm: epsilon must be a finite number at least 0, got -1e-05": lambda t: BatchNorm(
        t, 3, epsilon=-1e-5, name="bn"
    ),
    "BatchNorm: momentum must be a number from 0 to 1, got 1.5": lambda t: BatchNorm(t, 3, momentum=1.5),
    "BatchNorm: epsilon must be a finite number at least 0, got inf": lambda t: BatchNorm(t, 3, epsilon=float("inf")),
    "ln: LayerNorm wants a last axis of 3, got [2, 4]": lambda t: LayerNorm(t, 3, name="ln")(t.input(shape=[2, 4])),
    "LayerNorm wants width of at least 1, got 0": lambda t: LayerNorm(t, 0),
    "LayerNorm: epsilon must be a finite number at least 0, got '1'": lambda t: LayerNorm(t, 3, epsilon="1"),
    "ln: RmsNorm wants a last axis of 3, got []": lambda t: RmsNorm(t, 3, name="ln")(t.input(shape=[])),
    "GroupNorm wants groups that divide channels, got 2 of 3": lambda t: GroupNorm(t, 3, 2),
    "gn: GroupNorm wants [batch, 4, ...], got [2, 3, 4]": lambda t: GroupNorm(t, 4, 2, name="gn")(
        t.input(shape=[2, 3, 4])
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message) -> None:
    kind = SettingError if "epsilon" in message or "momentum" in message else ShapeError
    with pytest.raises(kind, match=f"^{re.escape(message)}"):
        REFUSED[message](Tape())


def test_one_place_of_many_is_enough_to_train_on() -> None:
    tape = Tape()
    assert BatchNorm(tape, 3).train(tape.input(shape=[1, 3, 2]))[0].shape == [1, 3, 2]


def test_a_batch_norm_is_not_called() -> None:
    tape = Tape()
    with pytest.raises(RecordedError) as caught:
        BatchNorm(tape, 3, name="bn")(tape.input(shape=[2, 3]))
    message = "call train(x), which answers (y, carry), or infer(x); a module that holds it overrides both"
    assert str(caught.value) == f"bn: BatchNorm: {message}"


def test_a_layer_norm_of_one_row_and_a_group_norm_of_two_axes() -> None:
    tape = Tape(f64)
    row, pair = tape.input(drawn([4])), tape.input(drawn([2, 4]))
    names = detach(LayerNorm(tape, 4)(row), GroupNorm(tape, 4, 2)(pair))
    network = tape.into_network()
    whole, grouped = network.forward(network.parameters()).of(names)
    centred = drawn([4]) - drawn([4]).mean()
    np.testing.assert_allclose(whole.numpy(), centred / np.sqrt((centred**2).mean() + 1e-5))
    parts = drawn([2, 4]).reshape(2, 2, 2)
    expected = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + 1e-5)
    np.testing.assert_allclose(grouped.numpy(), expected.reshape(2, 4), rtol=1e-9)
