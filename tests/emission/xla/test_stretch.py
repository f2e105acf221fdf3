"""XLA as a backend of a chain: it takes what those before it leave."""

from collections.abc import Callable
from typing import Any

import numpy as np

from topos import Backend, Coverage, Dispatch, Fidelity, Formula, Numerics, Status, Tape, f32

Elsewhere = Callable[..., None]
RNG = np.random.default_rng(0)


def step(tape: Tape) -> Any:
    first, second = tape.parameter(RNG.normal(size=(30, 20))), tape.parameter(RNG.normal(size=(20, 5)))
    x, labels = tape.input(RNG.normal(size=(8, 30))), tape.selection([8], vocab=5, absent=-1, name="labels")
    loss = -labels.select(((x @ first).tanh() @ second).log_softmax(1), 0.0).mean()
    return [loss, *(gradient for _, gradient in tape.differentiate(loss, [first, second]))]


class Products(Backend):
    """Takes the products, by NumPy."""

    name, dispatch = "PRODUCTS", Dispatch.OFFERED

    def coverage(self, formula: Formula) -> Coverage | None:
        return Coverage(Fidelity.ENVELOPE, (f32,)) if formula == Formula.GEMM else None

    def offer(self, task: Any) -> Any:
        left, right = task.arrays()
        return left @ right


def check_the_chain() -> None:
    network, results = Tape.record(step)
    entry, feeds = network.entry(results), {"labels": [0, 1, 2, 3, 4, -1, 0, 0]}
    expected = entry.lower().forward(network.parameters(), feeds).of(results)
    assert Backend.STABLEHLO.status().ready
    for chain, taken in (([Backend.STABLEHLO], {"STABLEHLO"}), ([Products(), Backend.STABLEHLO], None)):
        plan = entry.backends(chain).lower()
        with Backend.tallied() as services:
            found = plan.forward(network.parameters(), feeds).of(results)
        assert services.count(backend="STABLEHLO") > 20
        if taken is None:
            assert services.count("GEMM", "PRODUCTS") == 5
        else:
            assert services.count() == services.count(backend="STABLEHLO")
            assert plan.explain().splitlines()[1] == "  XLA on cpu"
        for left, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(left.numpy(), right.numpy(), rtol=0, atol=2e-6)
    exact = entry.numerics(Numerics.EXACT).backends([Backend.STABLEHLO]).lower()
    assert exact.explain().startswith("interpreted: no backend takes GEMM over f32")
    assert not Backend.STABLEHLO.is_poisoned


def test_it_takes_what_is_left(elsewhere: Elsewhere) -> None:
    elsewhere(check_the_chain)


def test_its_status_is_what_is_installed(monkeypatch: Any) -> None:
    import importlib.metadata

    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.10.2")
    assert Backend.STABLEHLO.status() == Status(True, "XLA, which comes with jax 0.10.2")

    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    reason = "not installed: XLA comes with jax: pip install topos-stack[xla]"
    assert Backend.STABLEHLO.status() == Status(False, reason)
