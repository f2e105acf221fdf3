"""Every layer: its text is that of the hand-written form; values, gradients and bits are asked of all of them alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from layers import LAYERS, Layer

from topos import Formula, Network, Parameters, Symbol, Tape, Value, bf16, detach, f32, f64
from topos.testing import assert_same_bits, check_gradient

each = pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
WITHOUT_GRADIENT = {"concatenation"}
"""The compositions whose gradient is no composition."""
COMPOSED = [layer for layer in LAYERS if set(layer.kinds) - WITHOUT_GRADIENT]


def recorded(
    layer: Layer, form: Callable[[Tape], Callable[[Value], Value]], batch: int = 0, element: Any = f32
) -> tuple[Network, Symbol, Symbol]:
    """The layer on a tape of its own: the network, what it is fed and what it answers."""
    tape = Tape(element)
    function = form(tape)
    x = tape.input(shape=[batch or layer.shape[0], *layer.shape[1:]], name="x")
    fed, answer = detach(x, function(x))
    return tape.into_network(), fed, answer


def moved(network: Network) -> Parameters:
    """Weights of which none is one or zero."""
    rng = np.random.default_rng(7)
    table = network.parameters()
    return table.with_payloads({s: rng.normal(size=tuple(table.of(s).shape)) * 0.5 + 0.1 for s in table.symbols()})


def fed(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).normal(size=shape)


@each
def test_the_text_is_that_of_the_hand_written_form(layer: Layer) -> None:
    facade, by_hand = (recorded(layer, form)[0] for form in (layer.facade, layer.by_hand))
    assert facade.describe() == by_hand.describe()
    assert facade.fingerprint == by_hand.fingerprint


def test_the_texts_are_kept(golden: Any) -> None:
    texts = [f"-- {layer.name}\n{recorded(layer, layer.facade)[0].describe()}" for layer in LAYERS]
    golden("\n".join(texts), "neural_layers.txt")


@each
def test_values_are_those_of_the_formula(layer: Layer) -> None:
    network, x, y = recorded(layer, layer.facade, element=f64)
    parameters, operand = moved(network), fed(*layer.shape)
    payloads = [payload.numpy() for payload in parameters.payloads()]
    found = network.entry(y).lower().forward(parameters, {x: operand}).of(y).numpy()
    np.testing.assert_allclose(found, layer.formula(operand, *payloads), rtol=1e-12, atol=1e-13)


@each
def test_gradients_are_those_of_differences(layer: Layer) -> None:
    def loss(x: Value) -> Value:
        y = layer.facade(x.tape)(x)
        return (y * x.tape.leaf(fed(*y.shape))).sum()

    check_gradient(loss, fed(*layer.shape) * 3, element=f32, entries=12)


@each
@pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
def test_native_code_has_the_bits_of_the_interpreter(layer: Layer, element: Any) -> None:
    """On a tape of bf16 the weights are those of f32: master weights."""
    tape = Tape(element)
    function = layer.facade(tape, element=f32) if element is bf16 else layer.facade(tape)
    x = tape.input(shape=layer.shape, name="x")
    y = function(x)
    wrt = [x, *(tape.resolve(node.symbol) for node in tape.nodes() if node.opcode.name == "Parameter")]
    adjoints = tape.vjp(y, fed(*y.shape), wrt)
    assert [gradient.element for _, gradient in adjoints] == [source.element for source in wrt]
    roots = detach([y, *(gradient for _, gradient in adjoints)])
    network = tape.into_network()
    parameters, feeds = moved(network), {"x": fed(*layer.shape)}
    expected = network.entry(roots).interpret(parameters, feeds).of(roots)
    assert_same_bits(network.entry(roots).lower().forward(parameters, feeds).of(roots), expected)


@pytest.mark.parametrize("layer", [layer for layer in LAYERS if layer.by_row], ids=lambda layer: layer.name)
def test_c62_a_row_alone_and_in_a_batch(layer: Layer) -> None:
    rows = fed(64, *layer.shape[1:])
    whole = answered(layer, rows)
    for size in (1, 2, 3, 7, 8, 33):
        assert_same_bits(answered(layer, rows[:size]), whole[:size])
    assert_same_bits(answered(layer, rows[40:47]), whole[40:47])


def answered(layer: Layer, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    network, x, y = recorded(layer, layer.facade, batch=len(rows))
    return network.entry(y).lower().forward(moved(network), {x: rows}).of(y).numpy()


@each
def test_compositions_are_found(layer: Layer) -> None:
    network, _, y = recorded(layer, layer.facade)
    kinds = [pattern.kind for pattern in network.entry(y).lower().patterns(Formula)]
    assert set(layer.kinds) <= set(kinds)
    assert layer.kinds or not kinds


@pytest.mark.parametrize("layer", COMPOSED, ids=lambda layer: layer.name)
def test_gradients_of_compositions_are_found(layer: Layer) -> None:
    tape = Tape()
    function = layer.facade(tape)
    x = tape.input(shape=layer.shape)
    y = function(x)
    wrt = [x, *(tape.resolve(node.symbol) for node in tape.nodes() if node.opcode.name == "Parameter")]
    roots = detach([gradient for _, gradient in tape.vjp(y, fed(*y.shape), wrt)])
    kinds = {pattern.kind for pattern in tape.into_network().entry(roots).lower().patterns(Formula)}
    for kind in set(layer.kinds) - WITHOUT_GRADIENT:
        assert any(kind in found and "gradient" in found for found in kinds), kind
