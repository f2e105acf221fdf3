"""Who is asked by default, and what becomes of who raises."""

from typing import Any

import numpy as np
import pytest

from topos import Backend, BackendUnavailable, Formula
from topos.backend.chain import asked, default
from topos.testing import assert_same_bits

from .mine import Mine


def test_out_of_the_box_only_the_defining_bits_are_in_the_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOPOS_BACKENDS", raising=False)
    assert default() == (Backend.FUSED, Backend.SIMD)
    for formula in Formula:
        coverages = [backend.coverage(formula) for backend in default()]
        assert all(coverage is None or coverage.fidelity.is_exact for coverage in coverages)


def test_the_environment_names_another_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPOS_BACKENDS", "blas, SIMD,blas")
    assert default() == (Backend.BLAS, Backend.SIMD)
    assert Formula.GEMM.chain == (Backend.BLAS, Backend.SIMD)
    assert Formula.MAP.chain == (Backend.SIMD,)
    assert Formula.ATTENTION.chain == ()


def test_an_unknown_name_in_the_environment_is_told(monkeypatch: pytest.MonkeyPatch, step: Any) -> None:
    monkeypatch.setenv("TOPOS_BACKENDS", "BLAS,NEON")
    with pytest.raises(BackendUnavailable) as caught:
        step.run(step.network.entry(step.results))
    assert str(caught.value) == (
        "TOPOS_BACKENDS: no backend is called 'NEON'; there are ACCELERATE, METAL, CUDA, BLAS, FUSED, SIMD, STABLEHLO"
    )


def test_want_of_memory_is_no_fault_of_a_backend() -> None:
    def greedy() -> None:
        raise MemoryError

    mine = Mine()
    assert asked(mine, greedy) is None
    assert not mine.is_poisoned


def test_an_interrupt_passes_through() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    mine = Mine()
    with pytest.raises(KeyboardInterrupt):
        asked(mine, interrupted)
    assert not mine.is_poisoned


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda task: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda task: np.zeros(task.shape), "ElementError: element f32: an operation answered float64, wants float32"),
        (
            lambda task: np.zeros((*task.shape, 1), np.float32),
            "ElementError: element f32: an operation answered shape [8, 20, 1], wants [8, 20]",
        ),
    ],
)
def test_who_raises_is_poisoned_and_the_answer_stays_right(answer: Any, reason: str, step: Any) -> None:
    mine = Mine(answer)
    plan = step.entry(mine, Backend.FUSED, Backend.SIMD).lower()
    with pytest.warns(RuntimeWarning) as caught, Backend.tallied() as services:
        results = plan.forward(step.parameters).of(step.results)
    assert [str(warning.message) for warning in caught] == [f"backend MINE is asked no more: it raised {reason}"]
    assert_same_bits(results, step.expected)
    assert mine.status().reason == f"poisoned: {reason}"
    assert services.by_formula["GEMM"] == {"SIMD": 5}
    assert_same_bits(plan.forward(step.parameters).of(step.results), step.expected)
    assert len(mine.asked) == 1


def test_who_raises_when_it_is_merely_asked_is_poisoned_too(step: Any) -> None:
    class Broken(Mine):
        def coverage(self, formula: Formula) -> Any:
            raise RuntimeError("no idea")

    with pytest.warns(RuntimeWarning, match="no idea"):
        assert_same_bits(step.run(step.entry(Broken(), Backend.FUSED)), step.expected)
