"""Backends that tests make, and one small training step for them to serve."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from topos import (
    Backend,
    BoundEntry,
    Coverage,
    Dispatch,
    Fidelity,
    Formula,
    Network,
    Parameters,
    Symbol,
    Tape,
    Task,
    Tensor,
    f32,
)


class Mine(Backend):
    """A user's backend: NumPy's own sums of products in f64, rounded once."""

    name = "MINE"
    dispatch = Dispatch.OFFERED
    fidelity = Fidelity.ENVELOPE
    formula = Formula.GEMM

    def __init__(self, answer: Callable[[Task], Any] | None = None) -> None:
        self.asked: list[Task] = []
        self.answer = answer or product

    def coverage(self, formula: Formula) -> Coverage | None:
        return Coverage(self.fidelity, (f32,)) if formula is self.formula else None

    def offer(self, task: Task) -> Any:
        self.asked.append(task)
        return self.answer(task)


def product(task: Task) -> Any:
    left, right = task.arrays()
    return (left.astype(np.float64) @ right).astype(np.float32)


class Step(NamedTuple):
    """A training step: the network, what is read, and the interpreter's answer."""

    network: Network
    results: list[Symbol]
    expected: list[Tensor]

    def entry(self, *backends: Backend) -> BoundEntry:
        return self.network.entry(self.results).backends(backends)

    def run(self, bound: BoundEntry) -> Any:
        return bound.lower().forward(self.network.parameters()).of(self.results)

    @property
    def parameters(self) -> Parameters:
        return self.network.parameters()


@cache
def recorded() -> Step:
    """Two products with a tanh between them, and the gradients of both weights."""
    random = np.random.default_rng(7)

    def record(tape: Tape) -> list[Any]:
        first = tape.parameter(random.normal(size=(30, 20)), name="first")
        second = tape.parameter(random.normal(size=(20, 5)), name="second")
        logits = (tape.input(random.normal(size=(8, 30)), name="x") @ first).tanh() @ second
        loss = logits.log_softmax(1).mean()
        return [loss, *(gradient for _, gradient in tape.differentiate(loss, [first, second]))]

    network, results = Tape.record(record)
    return Step(network, results, network.entry(results).interpret(network.parameters()).of(results))
