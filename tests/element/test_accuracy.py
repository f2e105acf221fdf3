"""Every elementary function against mpmath."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpf

from topos.element import f32, f64
from topos.element.floating import Floating

from .accuracy import distance, distances, operands

ELEMENTS: dict[str, Floating] = {"f32": f32, "f64": f64}
F32_BOUND = 0.501  # ulp: one rounding of a binary64 result
F64_BOUNDS = {
    "exp": 0.84,  # a subnormal result is rounded a second time
    "ln": 0.66,
    "sqrt": 0.5,
    "tanh": 0.62,
    "sin": 0.82,
    "cos": 0.82,
    "log1p": 0.68,
    "expm1": 0.66,
    "erf": 0.78,
    "erf_derivative": 0.84,
    "powf": 0.84,
}
CASES = [(name, element) for element in ELEMENTS for name in F64_BOUNDS]


def bound(function: str, element: str) -> float:
    """The promised distance in ulp."""
    return F32_BOUND if element == "f32" else F64_BOUNDS[function]


def worst(function: str, element: str, count: int, seed: int, parallel: bool) -> tuple[float, str]:
    """The largest distance over a sample, and where it is."""
    points = operands(function, element, count, seed)
    results = getattr(ELEMENTS[element], function)(*points)
    found = distances(function, element, points, results, parallel)
    at = int(found.argmax())
    return float(found[at]), f"{function} {element} at {[float(x[at]).hex() for x in points]}"


@pytest.mark.parametrize(("function", "element"), CASES)
def test_sample(function: str, element: str) -> None:
    found, where = worst(function, element, 3000, 1, parallel=False)
    assert found <= bound(function, element), where


@pytest.mark.slow
@pytest.mark.parametrize(("function", "element"), CASES)
def test_many(function: str, element: str) -> None:
    found, where = worst(function, element, 280_000, 2, parallel=True)
    assert found <= bound(function, element), where


@pytest.mark.parametrize(
    "x",
    [
        float.fromhex("0x1.6ac5b262ca1ffp+849"),  # the double nearest to a multiple of pi/2
        float.fromhex("0x1.5f58ef8b3e1f0p+840"),
        float.fromhex("0x1.fffffffffffffp+1023"),
        -(2.0**1023),
        1e22,
        1e6,
        1000001.0,
        math.pi,
        math.pi / 2,
    ],
)
def test_reduction_of_hard_arguments(x: float) -> None:
    mp.prec = 1300
    for result, exact in ((f64.sin(np.array(x)), mp.sin(mpf(x))), (f64.cos(np.array(x)), mp.cos(mpf(x)))):
        assert distance(float(result), exact, "f64") < 0.82


REFERENCES: dict[str, Any] = {
    "exp": np.exp,
    "ln": np.log,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "erf": np.vectorize(math.erf, otypes=[float]),
    "erf_derivative": lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
}


@pytest.mark.slow
@pytest.mark.parametrize("function", REFERENCES)
def test_f32_sweep(function: str) -> None:
    """A stride through all binary32 numbers against a binary64 library: about four million of them."""
    patterns = np.arange(0, 2**32, 1021, dtype=np.uint64).astype(np.uint32)
    for part in np.array_split(patterns, 16):
        x = part.view(np.float32)
        exact, result = REFERENCES[function](x.astype(np.float64)), getattr(f32, function)(x).astype(np.float64)
        assert np.array_equal(np.isnan(exact), np.isnan(result))
        exact[np.isnan(exact)] = result[np.isnan(result)] = 0.0
        exact = np.clip(exact, -(2.0**128), 2.0**128)
        result = np.clip(result, -(2.0**128), 2.0**128)  # infinity stands there
        place = np.ldexp(1.0, np.clip(np.frexp(exact)[1] - 24, -149, 104))
        found = np.abs(result - exact) / place
        assert found.max() <= F32_BOUND, x[found.argmax()]


# the ruler
def test_distance_sees_one_bit() -> None:
    exact = mpf(1) / 3
    nearest = np.float32(1 / 3)
    assert distance(float(nearest), exact, "f32") < 0.5
    assert 0.5 < distance(float(np.nextafter(nearest, np.float32(1))), exact, "f32") < 1.5
    assert distance(5e-324, mpf(2) ** -1074, "f64") == 0
    assert distance(1e-323, mpf(2) ** -1074, "f64") == 1
    assert distance(0.0, mpf(2) ** -1075, "f64") == 0.5


def test_distance_at_the_edges() -> None:
    assert distance(math.inf, mpf(2) ** 2000, "f64") == 0
    assert distance(float(np.finfo(np.float64).max), mpf(2) ** 2000, "f64") == 1
    assert distance(-math.inf, mpf(2) ** 2000, "f64") > 1e15
    assert distance(math.nan, mpf(1), "f64") == math.inf


def test_sample_fails_on_a_wrong_result() -> None:
    points = (np.linspace(-3, 3, 40),)
    results = f64.exp(*points)
    assert distances("exp", "f64", points, results).max() < 1
    results[17] = np.nextafter(results[17], np.inf)
    results[17] = np.nextafter(results[17], np.inf)
    found = distances("exp", "f64", points, results)
    assert found.argmax() == 17
    assert found[17] > 1
