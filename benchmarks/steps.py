"""A training loop over tables: what a step and a clip take, beside the same step recorded and advanced.

Run as `python benchmarks/steps.py`. `walked` is slot by slot, as a first step is; `planned` is the step like the one
before, `recorded` an `advance` of a State. `rule` is a plain one, `weight - rate * gradient` of a rate in a closure,
`scheduled` the same with another rate each time, and `NumPy` what arrays take for it. All take turns in one process,
and the least time of each counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from topos import Adam, Adjoints, Parameters, Tape, clip_by_global_norm
from topos.graph import table
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
    price, table.PLAN_NS = table.PLAN_NS, float("inf")
    try:
        yield
    finally:
        planned_step.computed, clipping.computed = before
        table.PLAN_NS = price


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
        self.arrays = [tensor.numpy() for tensor in parameters.payloads() if tensor is not None]
        self.rate = 1e-3

    def step(self) -> None:
        self.parameters = self.optimizer.step(self.parameters, self.gradients, 1e-3)

    def clip(self) -> None:
        clip_by_global_norm(self.gradients, 1.0)

    def rule(self) -> None:
        rate = self.rate
        self.parameters.step(self.gradients, lambda weight, gradient: weight - rate * gradient)

    def scheduled(self) -> None:
        self.rate *= 0.9999
        self.rule()

    def by_numpy(self) -> None:
        rate = np.float32(self.rate)
        [array - rate * array for array in self.arrays]

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
    table.PLAN_NS = 0.0
    for name, shapes in SHAPES.items():
        parameters, recorded = made(shapes)
        loop, other = Loop(parameters), Loop(parameters)
        steps = {"step walked": other.walked(other.step), "step planned": loop.step, "step recorded": recorded}
        clips = {"clip walked": other.walked(other.clip), "clip planned": loop.clip}
        rules = {"rule walked": other.walked(loop.rule), "rule planned": loop.rule, "rule scheduled": loop.scheduled}
        rules["rule NumPy"] = loop.by_numpy
        for what, took in least_us({**steps, **clips, **rules}).items():
            print(f"{name:14}{what:16}{took:10.1f} us", flush=True)


if __name__ == "__main__":
    main()
