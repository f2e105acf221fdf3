"""The search and the election take a time that grows with the rows, however many matches there are."""

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from topos import Formula, Tape
from topos.engine.pattern.elect import elect
from topos.engine.pattern.pool import pooled


def calls(work: Callable[[], Any]) -> int:
    """How many functions are entered: a measure of work that no other process disturbs."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def tower(layers: int) -> Any:
    """Norms upon norms and their gradient; beside it a chain of sums, which begin many a form and end none."""

    def record(tape: Tape) -> Any:
        start = x = tape.parameter(np.arange(24.0).reshape(4, 6))
        for _ in range(layers):
            centred = x - x.mean_along(1).broadcast_along(1, 6)
            x = centred / ((centred * centred).mean_along(1) + 1e-5).sqrt().broadcast_along(1, 6)
        windows = (start.unfold(1, 3).reshape([16, 3]) @ tape.parameter(np.ones((3, 3)))).reshape([4, 4, 3])
        y = windows.fold(1, 3, 1, 1, 6).pad(1, 0, 8, -0.0).narrow(1, 0, 6)
        for _ in range(20 * layers):
            y = start + y
        loss = (x + y).sum()
        return loss, tape.differentiate(loss, [start]).of(start)

    network, results = Tape.record(record)
    return network, network.entry(list(results)).lower()


def work(layers: int) -> tuple[int, int, int]:
    network, plan = tower(layers)
    matches = pooled(network.spec, len(network))
    kinds = [pattern.kind for pattern in plan.patterns(Formula)]
    assert kinds.count("layer norm") == kinds.count("layer norm gradient") == layers
    scheduled, declared = [node.symbol.index for node in plan.nodes()], {symbol.index for symbol in plan.results}
    pooling = calls(lambda: pooled(network.spec, len(network)))
    electing = calls(lambda: elect(network.spec.rows, scheduled, matches, set(Formula), declared))
    return pooling, electing, len(network)


def test_the_search_and_the_election_are_linear() -> None:
    work(2)  # what is done once is done here
    short, long = work(10), work(20)
    size = long[2] / short[2]
    assert long[0] / short[0] < 1.1 * size
    assert long[1] / short[1] < 1.1 * size
