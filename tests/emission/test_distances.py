"""The distances that the documentation shows: what is measured, and that a row of it is within the bounds."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topos import f32

from .conformance import BOUNDS, misses, spacing

ROOT = Path(__file__).parents[2]
KEPT = {row["title"]: row for row in json.loads((ROOT / "docs" / "distances.json").read_text())["distances"]}


@pytest.fixture(scope="module")
def distances() -> Any:
    from benchmarks import distances

    return distances


@pytest.mark.parametrize("title", ["product, K = 64", "name model, loss"])
@pytest.mark.parametrize("name", ["interpreter", "XLA", "IREE"])
def test_a_row_is_within_the_bounds(request: pytest.FixtureRequest, distances: Any, name: str, title: str) -> None:
    """As measured now, and as it is kept."""
    engines = request.getfixturevalue("with_iree" if name == "IREE" else "engines")
    row = next(one for one in distances.rows(f32) if title in one.titles)
    made = distances.module(row, f32)
    answers = engines.run(distances.ENGINES[name], made.text, made.arguments)
    assert misses(answers, made.expected, made.coarsest) == []
    bound = BOUNDS["float32"] / spacing(1.0, f32.dtype)
    for about, ulp in distances.distances(row, made, answers).items():
        assert ulp <= bound
        assert KEPT[about]["f32"][name] <= bound


def test_a_distance_counts_steps(distances: Any) -> None:
    """From each number, or in steps of the largest."""
    wanted = np.array([1.0, -3.0, 1024.0], np.float32)
    found = np.nextafter(wanted, np.float32(np.inf))
    assert distances.distance(wanted, wanted, True) == 0.0
    assert distances.distance(found, wanted, True) == 1.0
    assert distances.distance(found, wanted, False) == 1.0
    assert distances.distance(found[:2], wanted[:2], False) == 1.0
    moved = wanted + np.array([0.0, 2.0**-13, 0.0], np.float32)
    assert distances.distance(moved, wanted, True) == 512.0
    assert distances.distance(moved, wanted, False) == 1.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_infinity_is_a_step_past_the_end(distances: Any, dtype: Any) -> None:
    largest, infinite = np.array([np.finfo(dtype).max]), np.array([np.inf])
    found, wanted = (array.astype(dtype) for array in (infinite, largest))
    assert distances.distance(found, wanted, True) == 1.0
    assert distances.distance(wanted, found, True) == 0.5  # where steps would be twice as long
    assert distances.distance(found, found, True) == 0.0


def test_a_nan_of_one_side_is_infinitely_far(distances: Any) -> None:
    number, nothing = np.array([1.0], np.float32), np.array([np.nan], np.float32)
    assert distances.distance(nothing, number, True) == np.inf
    assert distances.distance(number, nothing, True) == np.inf
    assert distances.distance(nothing, nothing, True) == 0.0


def test_subnormal_results_are_left_out(distances: Any) -> None:
    """And zeros are not."""
    small, zero = np.array([1e-40], np.float32), np.array([0.0], np.float32)
    assert distances.distance(zero, small, True) == 0.0
    assert distances.distance(np.array([1.5e-45], np.float32), zero, True) == 1.0
