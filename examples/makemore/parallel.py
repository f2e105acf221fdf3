"""One batch in several threads: each thread takes a shard, and their gradients are added.

A plan holds no state, so any number of threads may run it at once over one table of weights. Each answers the gradient
of its shard, `Parameters` add entry by entry in the order of the shards, and one step follows. The order is fixed, so
the weights are the same in every bit for any number of threads.

Prints steps per second for one thread and more, and whether their weights agree; draws `makemore_parallel.png`.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import add
from pathlib import Path
from typing import NamedTuple

import names as given
import numpy as np
from model import CONTEXT, NameModel, loss_of

import topos
from topos import Adjoints, Parameters, Plan, Sgd, Tape, parameters
from topos.testing import same_bits


class Trained(NamedTuple):
    """The losses, and whether every number of threads came to the same weights."""

    losses: np.ndarray
    same: bool


def record(shard: int) -> tuple[Parameters, Plan, Adjoints]:
    tape = Tape()
    model = NameModel(tape)
    adjoints = tape.differentiate(loss_of(tape, model, shard), parameters(model)).detach()
    network = tape.into_network()
    return network.parameters(), network.entry(adjoints.roots()).lower(), adjoints


def train(
    threads: int, shards: int, shard: int, steps: int, rate: float, limit: int | None
) -> tuple[Parameters, np.ndarray]:
    """The weights after `steps` steps, each of `shards` shards that `threads` threads take up, and the losses."""
    contexts, targets = given.windows(given.read(limit, seed=1), CONTEXT)
    weights, plan, adjoints = record(shard)
    plan.prepare()
    optimizer, random = Sgd(momentum=0.9), np.random.Generator(np.random.PCG64(3))
    losses = np.zeros(steps)
    with ThreadPoolExecutor(threads) as pool:
        started = time.perf_counter()
        for step in range(steps):
            rows = random.integers(len(targets), size=(shards, shard))
            feeds = [{"context": contexts[part], "target": targets[part]} for part in rows]
            runs = list(pool.map(plan.forward, [weights] * shards, feeds))
            gradients = reduce(add, [run.recorded_gradients(adjoints) for run in runs]).scale(1 / shards)
            weights = optimizer.step(weights, gradients, rate)
            losses[step] = np.mean([float(run.of(adjoints.target)) for run in runs])
        elapsed = time.perf_counter() - started
    print(f"{threads} {'thread ' if threads == 1 else 'threads'}  {steps / elapsed:6.0f} steps per second")
    return weights, losses


def main(
    steps: int = 300,
    threads: tuple[int, ...] = (1, 2, 4),
    shards: int = 4,
    shard: int = 512,
    rate: float = 0.1,
    limit: int | None = None,
    picture: str | Path = "makemore_parallel.png",
) -> Trained:
    before = topos.threads()
    topos.threads(1)  # one plan, one thread: what runs at once here are plans
    try:
        trained = [train(count, shards, shard, steps, rate, limit) for count in threads]
    finally:
        topos.threads(before)
    first, losses = trained[0]
    pairs = [
        (one, other) for weights, _ in trained for one, other in zip(first.payloads(), weights.payloads(), strict=True)
    ]
    same = all(same_bits(one, other) for one, other in pairs)
    print(f"the same weights in every bit: {same}")
    print(f"loss per letter: uniform {given.UNIFORM:.4f}, after {steps} steps {losses[-1]:.4f}")
    given.draw(Path(picture), f"{shards} shards, their gradients added", {"trained": losses})
    print(f"picture: {picture}")
    return Trained(losses, same)


if __name__ == "__main__":
    main()
