"""Drawn programs that are moved, summed, multiplied and carried, under low limits: the interpreter's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from topos.errors import ToposError
from topos.testing import assert_same_bits

from ..plans import threads
from .low_limits import limits
from .mixtures import Drawing, Mixture


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_every_stage_keeps_the_bits(seed: int) -> None:
    try:
        mixture = Drawing(seed).mixture()
    except ToposError as refused:  # a drawn fold whose windows are of another extent
        pytest.skip(str(refused).splitlines()[0])
    random = np.random.default_rng([seed, 1])
    with threads(int(random.integers(1, 9))), limits(random):
        check(mixture)


def check(mixture: Mixture) -> str:
    """A run and three steps, one by one and together, against the interpreter; answers what the plan explains."""
    network, results, carry, feeds = mixture
    bound = network.entry(results).carry(carry) if carry else network.entry(results)
    plan = bound.lower()
    told = plan.explain()
    assert told.splitlines()[-1].startswith("native: ") or "nothing is computed" in told, told
    parameters = network.parameters()
    if results:
        wanted = bound.interpret(parameters, feeds).of(results)
        for _ in range(3):  # the third finds what stays packed
            assert_same_bits(plan.forward(parameters, feeds).of(results), wanted)
    if carry:
        check_steps(mixture, plan)
    return told


def check_steps(mixture: Mixture, plan: Any) -> None:
    network, results, carry, feeds = mixture
    feeds = {symbol: payload for symbol, payload in feeds.items() if symbol not in carry}
    single, several, by_hand = network.state(), network.state(), network.state()
    expected = []
    for _ in range(3):
        run = network.entry([*results, *carry.values()]).interpret(by_hand, feeds)
        expected.append([tensor.numpy() for tensor in run.of(results)])
        by_hand.replace({source.index: run.of(following) for source, following in carry.items()})
        assert_same_bits(plan.advance(single, feeds).of(results), expected[-1])
        assert_same_bits(single.payloads(), by_hand.payloads())
    stacked = plan.advance(several, feeds, steps=3).of(results)
    assert_same_bits(stacked, [np.stack(steps) for steps in zip(*expected, strict=True)])
    assert_same_bits(several.payloads(), by_hand.payloads())
