"""Attention, its masks, positions, and decoding token by token."""

import re
from math import sqrt

import numpy as np
import pytest

from topos import (
    Attention,
    Formula,
    KeyValueCache,
    Positions,
    Rotary,
    ShapeError,
    Tape,
    Tensor,
    bf16,
    causal_mask,
    detach,
    f32,
    f64,
    scaled_dot_product,
    sinusoids,
)
from topos.testing import assert_same_bits, check_gradient


def drawn(shape, element=None):
    return np.random.default_rng(len(shape)).normal(size=tuple(shape)) * 0.4


def attended(q, k, v, scale, addend):
    scores = q @ k.swapaxes(-1, -2) * scale + addend
    chances = np.exp(scores - scores.max(-1, keepdims=True))
    return chances / chances.sum(-1, keepdims=True) @ v


QUERY, KEY, VALUE = drawn([2, 3, 5, 8]), drawn([2, 3, 7, 8]) + 0.1, drawn([2, 3, 7, 4])
SEEN = np.tri(5, 7, 2)
OPTIONS = {
    "plain": ({}, 1 / sqrt(8), 0.0),
    "scaled": ({"scale": 0.3}, 0.3, 0.0),
    "added": ({"mask": drawn([5, 7])}, 1 / sqrt(8), drawn([5, 7])),
    "added by head": ({"mask": drawn([3, 1, 7])}, 1 / sqrt(8), drawn([3, 1, 7])),
    "chosen": ({"where": SEEN}, 1 / sqrt(8), np.where(SEEN, 0, -np.inf)),
    "both": ({"mask": drawn([5, 7]), "where": SEEN > 0}, 1 / sqrt(8), drawn([5, 7]) + np.where(SEEN, 0, -np.inf)),
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("as_values", [False, True])
def test_values(name, as_values) -> None:
    options, scale, addend = OPTIONS[name]
    tape = Tape(f64)
    q, k, v = (tape.parameter(payload) for payload in (QUERY, KEY, VALUE))
    if as_values:
        options = {key: tape.input(o) if key != "scale" else o for key, o in options.items()}
    y = detach(scaled_dot_product(q, k, v, **options))
    network = tape.into_network()
    found = network.entry(y).lower().forward(network.parameters()).of(y)
    np.testing.assert_allclose(found.numpy(), attended(QUERY, KEY, VALUE, scale, addend), rtol=1e-12, atol=1e-14)


def test_a_mask_that_is_added_and_one_that_chooses_agree() -> None:
    tape = Tape()
    q = tape.parameter(drawn([6, 4]))
    chosen = scaled_dot_product(q, q, q, where=causal_mask(6))
    added = scaled_dot_product(q, q, q, causal_mask(6, float("-inf")))
    names = detach(chosen, added)
    network = tape.into_network()
    plan = network.entry(list(names)).lower()
    assert_same_bits(*plan.forward(network.parameters()).of(names))
    assert [pattern.kind for pattern in plan.patterns(Formula)] == ["attention", "attention"]


def test_what_comes_later_is_not_seen() -> None:
    """Not even as NaN."""
    tape = Tape()
    x = tape.input(shape=[6, 4], name="x")
    y = detach(scaled_dot_product(x, x, x, where=causal_mask(6)))
    network = tape.into_network()
    plan = network.entry(y).lower()
    rows = drawn([6, 4])
    broken = rows.copy()
    broken[4:] = np.nan
    whole, early = (plan.forward(network.parameters(), {"x": fed}).of(y).numpy() for fed in (rows, broken))
    assert np.isnan(early[4:]).all()
    assert np.isnan(early[:4]).all() or (whole[:4] == early[:4]).all()


def test_causal_masks() -> None:
    assert causal_mask(3).tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert causal_mask(2, -1e9).tolist() == [[0, -1e9], [0, 0]]
    assert causal_mask(0).shape == [0, 0] and causal_mask(2, element=f64).element is f64
    with pytest.raises(ShapeError, match="causal_mask: wants extent of at least 0, got -1"):
        causal_mask(-1)


def test_a_mask_of_another_element() -> None:
    for element in (f64, bf16):
        tape = Tape(element)
        q = tape.input(drawn([3, 4]))
        assert scaled_dot_product(q, q, q, causal_mask(3, -1e3), where=causal_mask(3)).element is element


def test_sinusoids() -> None:
    places, columns = np.arange(50)[:, None], np.arange(8)
    angles = places / 10000 ** (columns // 2 * 2 / 8)
    expected = np.where(columns % 2, np.cos(angles), np.sin(angles))
    np.testing.assert_allclose(sinusoids([50, 8], f64).numpy(), expected, rtol=1e-12, atol=1e-14)
    assert_same_bits(sinusoids([50, 8]), sinusoids([50, 8], f64).convert(f32))


def test_positions_that_are_trained_or_not_and_by_place() -> None:
    tape = Tape()
    trained, fixed = Positions(tape, 9, 4, drawn), Positions(tape, 9, 4, sinusoids, trained=False)
    assert [tape.nodes()[one.table.index].opcode.name for one in (trained, fixed)] == ["Parameter", "Leaf"]
    at = tape.selection([2], 9, name="at")
    y = detach(fixed(tape.input(shape=[3, 2, 4]), at))
    network = tape.into_network()
    found = network.entry(y).lower().forward(network.parameters(), {"at": [7, 0]}).of(y).numpy()
    assert_same_bits(found, np.broadcast_to(sinusoids([9, 4]).numpy()[[7, 0]], [3, 2, 4]))


def test_a_rotation_keeps_products_by_distance() -> None:
    """The product of a query and a key hangs on how far apart they stand, and lengths are kept."""
    tape = Tape(f64)
    rotary = Rotary(tape, 12, 6)
    q, k = (tape.input(np.broadcast_to(drawn([6]) + shift, [12, 6])) for shift in (0, 1))
    scores = detach(rotary(q) @ rotary(k).transpose())
    network = tape.into_network()
    found = network.forward(network.parameters()).of(scores).numpy()
    for distance in range(-11, 12):
        diagonal = np.diagonal(found, distance)
        np.testing.assert_allclose(diagonal, diagonal[0], rtol=1e-11)
    np.testing.assert_allclose(found[0, 0], drawn([6]) @ (drawn([6]) + 1))


@pytest.mark.parametrize("element", [f32, bf16], ids=str)
@pytest.mark.parametrize(("groups", "batch"), [(4, (2,)), (2, (2,)), (1, ())], ids=str)
def test_decoding_token_by_token_has_the_bits_of_the_whole(groups, batch, element) -> None:
    tape = Tape(element)
    layer = Attention(tape, 32, 4, drawn, groups=groups, rotary=Rotary(tape, 6, 8), element=f32)
    x = tape.input(shape=[*batch, 6, 32], name="x")
    token, at = tape.input(shape=[*batch, 1, 32], name="token"), tape.selection([1], 6, name="at")
    whole = layer(x, where=causal_mask(6))
    y, carry = layer.decode(token, at, KeyValueCache(tape, [*batch, groups, 6, 8]))
    whole, y, carry = detach(whole, y, carry)
    network = tape.into_network()
    rows = Tensor(drawn([*batch, 6, 32]), element).numpy()
    expected = network.entry(whole).lower().forward(network.parameters(), {"x": rows}).of(whole).numpy()
    plan, state = network.entry(y).carry(carry).lower(), network.state()
    for place in range(6):
        found = plan.advance(state, {"token": rows[..., place : place + 1, :], "at": [place]}).of(y).numpy()
        assert_same_bits(found[..., 0, :], expected[..., place, :])


CROSSED = {"heads": (4, False), "groups": (2, False), "one group": (1, False), "turned": (4, True)}


def heads_by_hand(layer, payloads, x, context, mask):
    """Head by head over f64 arrays, each with the columns of its own."""
    weight, bias, outward, last = payloads
    size, heads, groups = 8 // layer.heads, layer.heads, layer.groups
    parts = []
    for head in range(heads):
        group = head * groups // heads
        starts = [head * size, (heads + group) * size, (heads + groups + group) * size]
        q, k, v = (
            rows @ weight[:, start : start + size] + bias[start : start + size]
            for rows, start in zip((x, context, context), starts, strict=True)
        )
        if layer.rotary is not None:
            q, k = turned_by_hand(q), turned_by_hand(k)
        parts.append(attended(q, k, v, 1 / sqrt(size), mask))
    return np.concatenate(parts, -1) @ outward + last


def turned_by_hand(rows):
    half = rows.shape[-1] // 2
    angles = np.arange(rows.shape[-2])[:, None] / 10000.0 ** (np.arange(half) / half)
    first, second = rows[..., :half], rows[..., half:]
    return np.concatenate(
        [first * np.cos(angles) - second * np.sin(angles), second * np.cos(angles) + first * np.sin(angles)], -1
    )


@pytest.mark.parametrize("name", CROSSED)
@pytest.mark.parametrize("leading", [(), (3,)], ids=str)
def test_attention_over_a_context_head_by_head(name, leading) -> None:
    groups, is_turned = CROSSED[name]
    tape = Tape(f64)
    rotary = Rotary(tape, 7, 2) if is_turned else None
    layer = Attention(tape, 8, 4, drawn, groups=groups, bias=drawn, rotary=rotary)
    x, context, mask = drawn([*leading, 5, 8]), drawn([*leading, 7, 8]) + 0.2, drawn([5, 7])
    y = layer(tape.input(x), mask, context=tape.input(context)).symbol()
    network = tape.into_network()
    payloads = [tensor.numpy() for tensor in network.parameters().payloads()]
    found = network.entry(y).lower().forward(network.parameters()).of(y).numpy()
    np.testing.assert_allclose(found, heads_by_hand(layer, payloads, x, context, mask), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
@pytest.mark.parametrize("name", CROSSED)
def test_a_context_of_the_tokens_themselves_is_attention_of_the_tokens(name, element) -> None:
    groups, is_turned = CROSSED[name]
    tape = Tape(element)
    layer = Attention(tape, 8, 4, drawn, groups=groups, rotary=Rotary(tape, 7, 2) if is_turned else None)
    x = tape.input(drawn([2, 7, 8]))
    names = detach(layer(x, where=causal_mask(7)), layer(x, where=causal_mask(7), context=x))
    network = tape.into_network()
    assert_same_bits(*network.entry(list(names)).lower().forward(network.parameters()).of(names))


@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_of_attention_over_a_context(groups) -> None:
    def loss(x, context):
        layer = Attention(x.tape, 4, 2, drawn, groups=groups, bias=drawn)
        return layer(x, context=context).sin().sum()

    check_gradient(loss, drawn([2, 3, 4]), drawn([2, 5, 4]), element=f32)


def x_of(tape, *shape):
    return tape.input(shape=shape)


REFUSED = {
    "scaled_dot_product: wants two axes or more and equal leading ones, got query, key and value of [2, 3, 4], [3, 4], "
    "[3, 4]": lambda t: scaled_dot_product(x_of(t, 2, 3, 4), x_of(t, 3, 4), x_of(t, 3, 4)),
    "scaled_dot_product: wants queries and keys of one width, got [3, 4] and [3, 5]": lambda t: scaled_dot_product(
        x_of(t, 3, 4), x_of(t, 3, 5), x_of(t, 3, 4)
    ),
    "scaled_dot_product: wants a value for each key, got [3, 4] and [2, 4]": lambda t: scaled_dot_product(
        x_of(t, 3, 4), x_of(t, 3, 4), x_of(t, 2, 4)
    ),
    "scaled_dot_product: wants a where that spreads to [..., tokens, places], [3, 3], got [2, 2]": lambda t: (
        scaled_dot_product(*[x_of(t, 3, 4)] * 3, where=causal_mask(2))
    ),
    "a: Attention wants heads that divide the width, got 3 of 8": lambda t: Attention(t, 8, 3, drawn, name="a"),
    "a: Attention wants groups that divide the heads, got 3 of 4": lambda t: Attention(
        t, 8, 4, drawn, groups=3, name="a"
    ),
    "a: Attention wants [..., tokens, 8], got [2, 6]": lambda t: Attention(t, 8, 4, drawn, name="a")(x_of(t, 2, 6)),
    "a: Attention wants one token at a time to decode, got [2, 8]": lambda t: Attention(
        t, 8, 4, drawn, name="a"
    ).decode(x_of(t, 2, 8), t.selection([1], 4), KeyValueCache(t, [4, 4, 2])),
    "c: KeyValueCache wants a selection of one of 4 places, got": lambda t: Attention(t, 8, 4, drawn).decode(
        x_of(t, 1, 8), t.selection([1], 5), KeyValueCache(t, [4, 4, 2], name="c")
    ),
    "c: KeyValueCache of [2, 4, 2] has no place for [4, 1, 2]": lambda t: Attention(t, 8, 4, drawn).decode(
        x_of(t, 1, 8), t.selection([1], 4), KeyValueCache(t, [2, 4, 2], name="c")
    ),
    "a: Attention wants [..., places, 8], got [2, 6]": lambda t: Attention(t, 8, 4, drawn, name="a")(
        x_of(t, 2, 8), context=x_of(t, 2, 6)
    ),
    "a: Attention wants a context of equal leading axes, got [3, 4, 8] beside [2, 4, 8]": lambda t: Attention(
        t, 8, 4, drawn, name="a"
    )(x_of(t, 2, 4, 8), context=x_of(t, 3, 4, 8)),
    "KeyValueCache wants [..., groups, places, size], got [4, 2]": lambda t: KeyValueCache(t, [4, 2]),
    "r: Rotary wants an even width, got 3": lambda t: Rotary(t, 4, 3, name="r"),
    "r: Rotary wants [..., tokens, 4] of at most 4 tokens, got [5, 4]": lambda t: Rotary(t, 4, 4, name="r")(
        x_of(t, 5, 4)
    ),
    "p: Positions wants [..., tokens, 4] of at most 4 tokens, got [4, 3]": lambda t: Positions(
        t, 4, 4, drawn, name="p"
    )(x_of(t, 4, 3)),
    "p: Positions wants a selection of 2 of 4 places, got": lambda t: Positions(t, 4, 4, drawn, name="p")(
        x_of(t, 2, 4), t.selection([1], 4)
    ),
    "sinusoids: wants [places, width], got [4]": lambda t: sinusoids([4]),
    "sinusoids: wants an even width, got 3": lambda t: sinusoids([4, 3]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message) -> None:
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}"):
        REFUSED[message](Tape())
