"""Zeros, infinities, NaN, the table of IEEE `pow`, and published bit patterns."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from topos.element import Element, bf16, f32, f64

INF, NAN = math.inf, math.nan
TINY = {"f32": 2.0**-149, "f64": 5e-324, "bf16": 2.0**-133}
ELEMENTS = [f32, f64, bf16]

# function: operand -> result, signs of zeros included
TABLE: dict[str, list[tuple[float, float]]] = {
    "exp": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (1000.0, INF), (-1000.0, 0.0)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (1000.0, INF), (-1000.0, -1.0)],
    "ln": [(1.0, 0.0), (0.0, -INF), (-0.0, -INF), (INF, INF), (-1.0, NAN), (-INF, NAN)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-1.0, -INF), (-2.0, NAN), (-INF, NAN)],
    "sqrt": [(0.0, 0.0), (-0.0, -0.0), (4.0, 2.0), (INF, INF), (-1.0, NAN), (-INF, NAN)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (30.0, 1.0), (-30.0, -1.0)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (7.0, 1.0), (-7.0, -1.0)],
    "erf_derivative": [(INF, 0.0), (-INF, 0.0), (40.0, 0.0), (-40.0, 0.0), (1e30, 0.0)],
}


def same(result: float, wanted: float) -> bool:
    """Equal, NaN to NaN, and zeros by sign."""
    if math.isnan(wanted):
        return math.isnan(result)
    return result == wanted and math.copysign(1, result) == math.copysign(1, wanted)


@pytest.mark.parametrize("element", ELEMENTS, ids=repr)
@pytest.mark.parametrize("function", TABLE)
def test_table(function: str, element: Element) -> None:
    for x, wanted in [*TABLE[function], (NAN, NAN)]:
        result = float(getattr(element, function)(element.round(np.array(x))))
        assert same(result, wanted), (x, result, wanted)


@pytest.mark.parametrize("element", ELEMENTS, ids=repr)
@pytest.mark.parametrize("function", ["expm1", "tanh", "sin", "log1p"])
def test_subnormals_pass(function: str, element: Element) -> None:
    for sign in (1.0, -1.0):
        x = sign * TINY[element.name]
        assert same(float(getattr(element, function)(element.round(np.array(x)))), x)


def test_erf_of_subnormals() -> None:
    assert float(f64.erf(np.array(5e-324))) == 5e-324
    assert float(f64.erf(np.array(2e-323))) == 2e-323 + 5e-324 * 1  # 4 * 1.128 rounds to 5
    assert float(f32.erf(np.array(2.0**-149, np.float32))) == 2.0**-149


# IEEE 754-2019, 9.2.1
POWERS: list[tuple[float, float, float]] = [
    *((x, y, 1.0) for x in (0.0, -0.0, 1.0, -3.5, INF, -INF, NAN, 1e-40) for y in (0.0, -0.0)),
    *((1.0, y, 1.0) for y in (3.5, -2.0, INF, -INF, NAN, 1e30)),
    (-1.0, INF, 1.0),
    (-1.0, -INF, 1.0),
    *((0.0, y, INF) for y in (-1.0, -3.0, -2.0, -0.5, -1e30, -INF)),
    *((-0.0, y, -INF) for y in (-1.0, -3.0, -16777215.0)),
    *((-0.0, y, INF) for y in (-2.0, -0.5, -16777216.0, -1e30, -INF)),
    *((0.0, y, 0.0) for y in (1.0, 3.0, 2.0, 0.5, 1e30, INF)),
    *((-0.0, y, -0.0) for y in (1.0, 3.0, 16777215.0)),
    *((-0.0, y, 0.0) for y in (2.0, 0.5, 16777216.0, 1e30, INF)),
    *((x, INF, 0.0) for x in (0.5, -0.5, 1e-40, -0.999)),
    *((x, -INF, INF) for x in (0.5, -0.5, 1e-40, -0.999)),
    *((x, INF, INF) for x in (2.0, -2.0, 1.001, INF, -INF)),
    *((x, -INF, 0.0) for x in (2.0, -2.0, 1.001, INF, -INF)),
    *((INF, y, INF) for y in (1.0, 2.0, 0.5, 1e-30)),
    *((INF, y, 0.0) for y in (-1.0, -2.0, -0.5, -1e-30)),
    *((-INF, y, -INF) for y in (1.0, 3.0, 16777215.0)),
    *((-INF, y, INF) for y in (2.0, 0.5, 16777216.0, 1e30)),
    *((-INF, y, -0.0) for y in (-1.0, -3.0)),
    *((-INF, y, 0.0) for y in (-2.0, -0.5, -1e30)),
    *((x, y, NAN) for x in (-1.0, -2.0, -0.5, -1e-40) for y in (0.5, -1.5, 1e-30)),
    *((NAN, y, NAN) for y in (1.0, -2.0, INF, 0.5)),
    *((x, NAN, NAN) for x in (2.0, 0.0, -1.0, INF, -INF)),
    (2.0, 10.0, 1024.0),
    (-2.0, 3.0, -8.0),
    (-2.0, -3.0, -0.125),
    (4.0, 0.5, 2.0),
    (3.0, 1.0, 3.0),
    (-3.0, 1.0, -3.0),
    (2.0, 1e30, INF),
    (-2.0, 1e30, INF),
    (2.0, -1e30, 0.0),
    (0.5, 1e30, 0.0),
    (-1.0, 1e30, 1.0),
    (-1.0, 16777215.0, -1.0),
    (2.0, -149.0, 2.0**-149),
    (-2.0, -149.0, -(2.0**-149)),
    (2.0, 127.0, 2.0**127),
]


@pytest.mark.parametrize("element", [f32, f64], ids=repr)
def test_pow(element: Element) -> None:
    for x, y, wanted in POWERS:
        result = float(element.powf(element.round(np.array(x)), element.round(np.array(y))))
        assert same(result, wanted), (x, y, result, wanted)


def test_pow_of_wide_whole_exponents() -> None:
    for exponent, wanted in (
        (2.0**53 - 1, -1.0),
        (2.0**53, 1.0),
        (2.0**52 + 1, -1.0),
        (2.0**52, 1.0),
        (2.0**52 - 0.5, NAN),
    ):
        assert same(float(f64.powf(np.array(-1.0), np.array(exponent))), wanted), exponent
    assert same(float(f64.powf(np.array(-0.0), np.array(2.0**53 - 1))), -0.0)


def test_pow_at_the_ends_of_the_range() -> None:
    cases = [(2.0, -1074.0, 5e-324), (2.0, -1075.0, 0.0), (2.0, 1023.0, 2.0**1023), (2.0, 1024.0, INF),
             (1 + 2.0**-52, 1e300, INF), (1 - 2.0**-53, 1e300, 0.0), (1 - 2.0**-53, -1e300, INF),
             (5e-324, 1.0, 5e-324), (5e-324, -0.5, 2.0**537), (1e308, 1e-320, 1.0), (3.0, 5e-324, 1.0)]  # fmt: skip
    for x, y, wanted in cases:
        assert same(float(f64.powf(np.array(x), np.array(y))), wanted), (x, y)


def test_pow_agrees_with_the_platform_on_every_pair_of_specials() -> None:
    numbers = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 2.5, INF, -INF, NAN, 5e-324, -5e-324, 1.7e308,
               -1.7e308, 2.0**53, -(2.0**53), 2.0**53 - 1, 1 - 2.0**-53, 1 + 2.0**-52]  # fmt: skip
    for x, y in itertools.product(numbers, numbers):
        try:
            wanted = math.pow(x, y)
        except OverflowError:
            wanted = -INF if x < 0 and y % 2 == 1 else INF
        except ValueError:  # a pole, or a negative number to a fraction
            wanted = (NAN if x != 0 else -INF if math.copysign(1, x) < 0 and y % 2 == 1 else INF)  # fmt: skip
        result = float(f64.powf(np.array(x), np.array(y)))
        assert same(result, wanted) or math.isclose(result, wanted, rel_tol=3e-16), (x, y, result, wanted)


def test_pow_is_exact_where_the_power_is_a_number() -> None:
    whole = [(n, k) for n in range(2, 60) for k in range(54) if n**k < 2**53]
    base, exponent = (np.array(values, np.float64) for values in zip(*whole, strict=True))
    assert f64.powf(base, exponent).tolist() == [float(n**k) for n, k in whole]
    x = np.random.default_rng(7).integers(1, 2**63, 3000, dtype=np.uint64).view(np.float64)
    x = x[np.isfinite(x)]
    assert np.array_equal(f64.powf(x, f64.one), x)
    assert np.array_equal(f64.powf(-x, f64.one), -x)
    roots = np.rint(np.random.default_rng(8).uniform(1, 2**26, 2000))
    assert np.array_equal(f64.powf(roots * roots, np.array(0.5)), roots)


F32_BITS = [
    ("erf", 1e-8, 0x3241DAA4), ("erf", 1e-7, 0x33F2514D), ("erf", 1e-5, 0x373D4F84), ("erf", 1e-3, 0x3A93E61C),
    ("erf", 0.5, 0x3F053F7B), ("erf", 1.0, 0x3F57BB3D), ("erf", 2.0, 0x3F7ECD71), ("erf", 3.0, 0x3F7FFE8D),
    ("erf", 3.8, 0x3F7FFFFF), ("erf", 4.0, 0x3F800000), ("erf", -0.0, 0x80000000),
    ("tanh", 1e-10, 0x2EDBE6FF), ("tanh", 1e-4, 0x38D1B717), ("tanh", 0.5, 0x3EEC9A9F), ("tanh", 5.0, 0x3F7FFA0D),
    ("tanh", 8.0, 0x3F7FFFFC), ("tanh", 9.0, 0x3F7FFFFF), ("tanh", 9.02, 0x3F800000), ("tanh", INF, 0x3F800000),
    ("tanh", -0.0, 0x80000000),
    ("log1p", 1e-8, 0x322BCC77), ("log1p", -0.5, 0xBF317218),
    ("expm1", -8.742278e-08, 0xB3BBBD2D), ("expm1", 1e-8, 0x322BCC77), ("expm1", 1e-5, 0x3727C5E3),
    ("expm1", 0.5, 0x3F261299), ("expm1", 89.0, 0x7F800000),
    ("exp", -20.0, 0x310DA433), ("exp", -100.0, 0x1B), ("exp", -90.0, 0x8EC28),
]  # fmt: skip
F64_BITS = [
    ("erf", 0.5, 0x3FE0A7EF5C18EDD2),
    ("log1p", -0.4, 0xBFE058AEFA811452),
    ("log1p", -0.42, 0xBFE16E67AF787642),
    ("log1p", -0.4142, 0xBFE11CE454454D68),
]


@pytest.mark.parametrize(("function", "x", "bits"), F32_BITS)
def test_f32_bits(function: str, x: float, bits: int) -> None:
    assert int(getattr(f32, function)(np.array(x, np.float32)).view(np.uint32)) == bits


@pytest.mark.parametrize(("function", "x", "bits"), F64_BITS)
def test_f64_bits(function: str, x: float, bits: int) -> None:
    assert int(getattr(f64, function)(np.array(x)).view(np.uint64)) == bits
