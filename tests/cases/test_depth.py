"""Graphs as deep as a user's loop makes them: nothing recurses over them."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from topos import Tape, detach
from topos.testing import assert_same_bits

STEPS = 10_000


def f(number: Any) -> Any:
    return np.array(number, np.float32)


def accumulated(x):
    y = x
    for _ in range(STEPS):
        y = y + x
    return y


def test_c68_a_deep_chain(values, gradients):
    """10,000 additions of one value: f32 is exact here, so value and slope are the count, without a RecursionError."""
    assert sys.getrecursionlimit() < STEPS
    assert_same_bits(values(accumulated, f(1)), f(STEPS + 1))
    assert_same_bits(gradients(accumulated, f(1)), f(STEPS + 1))


def test_c68_everything_is_dropped_without_recursion():
    """Freeing a deep graph runs no deep chain of destructors."""
    tape = Tape()
    x = tape.parameter(1)
    y = accumulated(x)
    adjoints = detach(tape.differentiate(y, [x]))
    assert len(tape.describe().split("\n")) == len(tape) + 1
    network = tape.into_network()
    run = network.entry(adjoints).backward().lower().forward(network.parameters())
    assert_same_bits(run.of(adjoints.roots()), [f(STEPS + 1)] * 2)
    assert_same_bits(run.backward(adjoints.target).of(adjoints.roots()[0]), f(1))
    del tape, x, y, network, run
    gc.collect()


def test_c68_a_chain_of_mixed_operations(values):
    """As deep, over a vector and with a nonlinearity in every link."""

    def chained(x):
        for _ in range(STEPS // 10):
            x = (x * 0.5).tanh() + 0.25
        return x

    assert np.isfinite(values(chained, f([0, 1, 2]))).all()


def test_c68_nested_scopes():
    """5000 scopes within one another prefix a name as one does."""
    tape = Tape()
    with ExitStack() as scopes:
        for depth in range(5000):
            scopes.enter_context(tape.scope(f"s{depth}"))
        x = detach(tape.input(1, name="x"))
    plain = detach(tape.input(2, name="x"))
    network = tape.into_network()
    assert network.symbol(".".join([*(f"s{depth}" for depth in range(5000)), "x"])) == x
    assert network.symbol("x") == plain


def test_c68_nested_containers():
    """5000 lists within one another: detached, and read from a run."""
    tape = Tape()
    nested: Any = [tape.input(1)]
    for _ in range(4999):
        nested = [nested]
    names = detach(nested)
    network = tape.into_network()
    read = network.forward(network.parameters()).of(names)
    for _ in range(5000):
        (read,) = read
    assert_same_bits(read, f(1))


def test_c68_memory_is_linear():
    """A node costs the same in a long graph as in a short one, and its gradient too."""

    def bytes_per_step(steps: int) -> float:
        gc.collect()
        tracemalloc.start()
        try:
            tape = Tape()
            x = y = tape.parameter(1)
            for _ in range(steps):
                y = y + x
            del y
            kept = tape.differentiate(tape.nodes()[len(tape) - 1].symbol, [x]), tape
            gc.collect()
            assert len(kept[1]) > 2 * steps
            return tracemalloc.get_traced_memory()[0] / steps
        finally:
            tracemalloc.stop()

    assert bytes_per_step(2000) == pytest.approx(bytes_per_step(500), rel=0.25)


@pytest.mark.slow
def test_c68_a_deep_chain_of_derivatives():
    """A gradient of a gradient of a chain."""
    tape = Tape()
    x = tape.parameter(1.0)
    y = x
    for _ in range(STEPS // 10):
        y = y * x
    first = tape.differentiate(y, [x]).of(x)
    second = detach(tape.differentiate(first, [x]).of(x))
    network = tape.into_network()
    degree = STEPS // 10 + 1
    assert_same_bits(network.forward(network.parameters()).of(second), f(degree * (degree - 1)))
