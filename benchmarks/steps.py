"""A training loop over tables: what a step and a clip take, beside the same step recorded and advanced.

Run as `python benchmarks/steps.py`. `walked` is slot by slot, as a first step is; `planned` is the step like the one
before, `recorded` an `advance` of a State. All take turns in one process, and the least time of each counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from topos import Adam, Adjoints, Parameters, Tape, clip_by_global_norm
from topos.neural import clipping, planned_step

BUDGET_S = 3.0
SHAPES = {
    "name model": ((27, 10), (30, 200), (200,), (200, 27), (27,)),
    "96 slots": ((64, 64), (64,), (64, 256), (256,), (256, 64), (64,)) * 16,
    "2.1M weights": ((1024, 1024), (1024,), (1024, 1024), (1024,)),
}


@contextmanager
def walking() -> Iterator[None]:
    """Asks no plan inside the block."""
    before = [module.computed for module in (planned_step, clipping)]
    planned_step.computed = clipping.computed = lambda *facts: None  # type: ignore[assignment]
    try:
        yield
    finally:
        planned_step.computed, clipping.computed = before


def made(shapes: Any) -> tuple[Parameters, Callable[[], Any]]:
    """A table of weights, and a recorded step over fixed gradients."""
    random = np.random.default_rng(0)
    starts = [random.normal(size=shape).astype(np.float32) for shape in shapes]
    tape = Tape()
    weights = [tape.parameter(start) for start in starts]
    gradients = [tape.input(shape=shape) for shape in shapes]
    update = Adam().record(tape, Adjoints(tape.leaf(0), list(zip(weights, gradients, strict=True))), rate=1e-3)
    carry = {source.symbol(): following.symbol() for source, following in update.carry.items()}
    names = [gradient.symbol() for gradient in gradients]
    network = tape.into_network()
    plan, state = network.entry(()).carry(carry).lower(), network.state()
    feeds = dict(zip(names, starts, strict=True))
    return network.parameters(), lambda: plan.advance(state, feeds)


class Loop:
    """A step after another, each of the table that the last one answered."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters, self.gradients, self.optimizer = parameters, parameters, Adam()

    def step(self) -> None:
        self.parameters = self.optimizer.step(self.parameters, self.gradients, 1e-3)

    def clip(self) -> None:
        clip_by_global_norm(self.gradients, 1.0)

    def walked(self, call: Callable[[], None]) -> Callable[[], None]:
        def inner() -> None:
            with walking():
                call()

        return inner


def least_us(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    best = dict.fromkeys(calls, float("inf"))
    end = time.perf_counter() + BUDGET_S
    while time.perf_counter() < end:
        for name, call in calls.items():
            for _ in range(5):
                began = time.perf_counter()
                call()
                best[name] = min(best[name], (time.perf_counter() - began) * 1e6)
    return best


def main() -> None:
    for name, shapes in SHAPES.items():
        parameters, recorded = made(shapes)
        loop, other = Loop(parameters), Loop(parameters)
        steps = {"step walked": other.walked(other.step), "step planned": loop.step, "step recorded": recorded}
        clips = {"clip walked": other.walked(other.clip), "clip planned": loop.clip}
        for what, took in least_us({**steps, **clips}).items():
            print(f"{name:14}{what:16}{took:10.1f} us", flush=True)


if __name__ == "__main__":
    main()
