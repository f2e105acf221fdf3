"""Carried values that sums replace: in place where every number of the old value is read before, copied elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import topos
from topos import Network, Plan, Recordable, Symbol, Tape
from topos.testing import assert_same_bits

Rule = Callable[[Recordable, Recordable], Recordable]


def step(tape: Tape, shape: tuple[int, int], axis: int, rule: Rule) -> tuple[Recordable, Recordable]:
    """A parameter of one number for each row or column, and what replaces it."""
    features = tape.input(shape=list(shape), name="features")
    bias = tape.parameter(np.linspace(-1.0, 1.0, shape[1 - axis]), name="bias")
    return bias, rule(bias, features)


RULES: dict[str, tuple[Rule, int]] = {
    "a step of descent": (lambda bias, x: bias - x.sum_along(0) * 0.1, 0),
    "read twice after the sum": (lambda bias, x: bias * 0.5 - x.sum_along(0) * bias, 0),
    "read at every place before the sum": (
        lambda bias, x: bias - (x * bias.broadcast_along(0, x.shape[0])).sum_along(0),
        1,
    ),
    "read again after another sum": (
        lambda bias, x: (x - (x.sum_along(0) + bias).broadcast_along(0, x.shape[0])).sum_along(0) * bias,
        1,
    ),
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", [(2, 3), (32, 200), (40, 27), (700, 130), (3000, 20), (900, 2200)], ids=str)
@pytest.mark.parametrize("rule", RULES)
def test_what_replaces_a_number_of_each_column(rule: str, shape: tuple[int, int], threads: int) -> None:
    written, copies = RULES[rule]
    network, (bias, following) = Tape.record(lambda tape: step(tape, shape, 0, written))
    plan = network.entry([]).carry({bias: following}).lower()
    word = "copy" if copies == 1 else "copies"
    assert f", {copies} {word}, " in plan.explain().splitlines()[-1]
    before = topos.threads()
    topos.threads(threads)
    try:
        check(network, plan, bias, following, shape)
    finally:
        topos.threads(before)


def check(network: Network, plan: Plan, bias: Symbol, following: Symbol, shape: tuple[int, int]) -> None:
    """Three steps have the interpreter's bits."""
    feeds = {"features": np.random.default_rng(3).normal(size=shape).astype(np.float32)}
    state, expected = network.state(), network.state()
    for _ in range(3):
        plan.advance(state, feeds)
        expected.replace({bias.index: network.entry(following).interpret(expected, feeds).of(following)})
    assert_same_bits(state.of(bias), expected.of(bias))


def test_what_replaces_a_number_of_each_row() -> None:
    network, (bias, following) = Tape.record(
        lambda tape: step(tape, (50, 300), 1, lambda bias, x: bias - x.sum_along(1) * 0.1)
    )
    plan = network.entry([]).carry({bias: following}).lower()
    assert ", 0 copies, " in plan.explain().splitlines()[-1]
    check(network, plan, bias, following, (50, 300))
