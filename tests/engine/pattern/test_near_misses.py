"""What is not quite a composition is never elected, and the result is right."""

from typing import Any

import pytest

from topos import Formula, Tape
from topos.testing import assert_same_bits

from .compositions import Sources
from .near_misses import MISSES, Miss


@pytest.mark.parametrize(("compose", "kinds"), MISSES.values(), ids=MISSES.keys())
def test_a_near_miss_declines(compose: Miss, kinds: set[str]) -> None:
    def record(tape: Tape) -> Any:
        found = compose(Sources(tape))
        return list(found) if isinstance(found, tuple) else [found]

    network, results = Tape.record(record)
    entry = network.entry(results)
    plan, parameters = entry.lower(), network.parameters()
    assert kinds.isdisjoint(pattern.kind for pattern in plan.patterns(Formula))
    for actual, expected in zip(
        plan.forward(parameters).of(results), entry.interpret(parameters).of(results), strict=True
    ):
        assert_same_bits(actual, expected)
