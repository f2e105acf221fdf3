"""Models made of layers: a row alone and in a batch, threads, and a step of training in place."""

import numpy as np
import pytest

import topos
from topos import Conv2d, Linear, Module, Residual, Sequential, Tape, Value, bf16, detach, f32, parameters
from topos.testing import assert_same_bits


def drawn(shape, element):
    return np.random.default_rng(len(shape)).normal(size=tuple(shape)) * 0.3


def block(tape, channels, filters):
    """A convolution with its norm, twice, around a shortcut."""
    body = Sequential(
        Conv2d(tape, channels, filters, 3, drawn, stride=2, padding=1, bias=False),
        topos.BatchNorm(tape, filters),
        Value.relu,
        Conv2d(tape, filters, filters, 3, drawn, padding=1, bias=False),
        topos.BatchNorm(tape, filters),
    )
    return Sequential(Residual(body, Conv2d(tape, channels, filters, 1, drawn, stride=2)), Value.relu)


def classifier(tape):
    """Images `[batch, 3, 8, 8]` to ten classes."""
    return Sequential(
        block(tape, 3, 8), topos.GroupNorm(tape, 8, 4), block(tape, 8, 16), topos.global_average_pool,
        topos.Dropout(tape, [8, 16]).infer, Linear(tape, 16, 10, drawn),
    )  # fmt: skip


class Transformer(Module):
    """Rows of features, `[batch, 12, 16]`, to as many rows."""

    def __init__(self, tape):
        rotary = topos.Rotary(tape, 12, 4)
        self.blocks = [
            Sequential(
                Residual(Sequential(topos.RmsNorm(tape, 16), Causal(tape, rotary))),
                Residual(Sequential(topos.LayerNorm(tape, 16), topos.Mlp(tape, [16, 32, 16], "silu", drawn))),
            )
            for _ in range(2)
        ]

    def express(self, x):
        return Sequential(*self.blocks)(x)


class Causal(Module):
    def __init__(self, tape, rotary):
        self.attention = topos.Attention(tape, 16, 4, drawn, groups=2, rotary=rotary)

    def express(self, x):
        return self.attention(x, where=topos.causal_mask(12))


MODELS = {"classifier": (classifier, (3, 8, 8)), "transformer": (Transformer, (12, 16))}


def answered(name, rows):
    model, shape = MODELS[name]
    tape = Tape()
    made = model(tape)
    x = tape.input(shape=[len(rows), *shape], name="x")
    y = detach(made.infer(x))
    network = tape.into_network()
    return network.entry(y).lower().forward(network.parameters(), {"x": rows}).of(y).numpy()


@pytest.mark.parametrize("name", MODELS)
def test_c62_models_in_evaluation(name) -> None:
    rows = np.random.default_rng(0).normal(size=(33, *MODELS[name][1]))
    whole = answered(name, rows)
    assert np.isfinite(whole).all() and whole.std() > 0
    for size in (1, 2, 7, 8):
        assert_same_bits(answered(name, rows[:size]), whole[:size])
    assert_same_bits(answered(name, rows[20:27]), whole[20:27])


@pytest.mark.parametrize("element", [f32, bf16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_steps_of_training_have_the_bits_of_replacement_by_hand(name, element) -> None:
    model, shape = MODELS[name]
    tape = Tape(element)
    made = model(tape)
    x = tape.input(shape=[8, *shape], name="x")
    y, carry = made.train(x)
    loss = (y * y).mean()
    carry |= {w: w - slope * 0.05 for w, slope in tape.differentiate(loss, parameters(made))}
    loss, carry = detach(loss, carry)
    network = tape.into_network()
    plan, state, by_hand = network.entry(loss).carry(carry).lower(), network.state(), network.state()
    for step in range(3):
        feeds = {"x": np.random.default_rng(step).normal(size=(8, *shape))}
        found = plan.advance(state, feeds).of(loss)
        interpreted = network.entry([loss]).carry(carry).backends([]).lower().advance(by_hand, feeds)
        assert_same_bits(found, interpreted.of(loss))
    for source in carry:
        assert_same_bits(state.of(source), by_hand.of(source))
