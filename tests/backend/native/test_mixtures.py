"""Drawn programs that are moved, summed, multiplied and carried, under low limits: the interpreter's bits."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from topos.errors import ToposError
from topos.testing import assert_same_bits

from ..plans import check_steps, threads
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
        check_steps(plan, network, results, carry, feeds)
    return told
