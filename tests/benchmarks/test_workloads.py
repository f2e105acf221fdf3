"""The workloads do the work that they say, with the bits that the kept results had."""

from typing import Any

import numpy as np
import pytest
from benchmarks import results
from benchmarks.arrays import Ids
from benchmarks.measure import Measurement, measured
from benchmarks.systems import SYSTEMS, system
from benchmarks.workloads import WORKLOADS

SMALL = ("w1", "w2", "w10")
"""Training steps whose losses are answered in full."""
LARGE = ("w6", "w6b", "w8", "w8g", "w9-2048-f32", "w9-2048-f64", "w9v", "w9t")


def losses(name: str) -> list[float]:
    found = system("topos")
    step = found.step(WORKLOADS[name], WORKLOADS[name].arrays())
    return [found.magnitude(step()) for _ in range(3)]


@pytest.mark.parametrize("name", SMALL)
def test_the_losses_are_those_of_the_kept_results_to_the_last_bit(name: str) -> None:
    kept = [row for row in results.read()["measurements"] if (row["workload"], row["system"]) == (name, "topos")]
    assert [row["results"] for row in kept] == [losses(name)]


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name not in LARGE])
def test_arrays_are_seeded(name: str) -> None:
    first, second = WORKLOADS[name].arrays(), WORKLOADS[name].arrays()
    for ours, theirs in zip(first, second, strict=True):
        assert list(ours) == list(theirs)
        for key in ours:
            pair: list[Any] = [array.array if isinstance(array, Ids) else array for array in (ours[key], theirs[key])]
            assert np.array_equal(*pair)


def test_every_system_has_its_module() -> None:
    names = {peer.module for peer in SYSTEMS.values()}
    assert names == {"with_topos", "with_torch", "with_jax", "with_tinygrad", "with_numpy"}


@pytest.mark.slow
def test_processes_are_measured_and_a_system_without_the_workload_is_left_out() -> None:
    found = list(measured(WORKLOADS["w1"], ["topos"], threads=1, budget_s=0.2, patience_s=60))
    (row,) = found
    assert isinstance(row, Measurement)
    assert row.samples > 3
    assert row.least_s <= row.p10_s <= row.median_s <= row.p90_s
    assert row.peak_mib > row.imported_mib > 0


@pytest.mark.slow
def test_a_system_that_cannot_start_is_told_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    (row,) = measured(WORKLOADS["w1"], ["nothing"], threads=1, budget_s=0.2, patience_s=60)
    assert row._asdict() == {"workload": "w1", "system": "nothing", "reason": "KeyError: 'nothing'"}
