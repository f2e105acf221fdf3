"""`bf16`: conversions on the bits, and arithmetic through `f32`."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from topos.element import bf16, f32, f64

from .test_floating import rounded

Array = np.ndarray[Any, np.dtype[Any]]
EVERY = np.arange(2**16, dtype=np.uint16).view(ml_dtypes.bfloat16)


def pattern(array: Array) -> int:
    """The bits of one bfloat16."""
    return int(array.view(np.uint16))


@pytest.mark.parametrize(
    ("bits", "wanted"),
    [
        (0x3EAAAAAB, 0x3EAB),
        (0x3F808000, 0x3F80),
        (0x3F818000, 0x3F82),
        (0x3F808008, 0x3F81),
        (0x7F7F8000, 0x7F80),
        (0x7F7F7FFF, 0x7F7F),
        (0x000116C2, 0x0001),
        (0x80000000, 0x8000),
        (0x00008000, 0x0000),
        (0x00018000, 0x0002),
        (0xFF800000, 0xFF80),
    ],
)
def test_published_bits(bits: int, wanted: int) -> None:
    assert pattern(bf16.demote(np.array(bits, np.uint32).view(np.float32))) == wanted


def test_numbers() -> None:
    assert pattern(bf16.round(np.array(3.39e38))) == 0x7F7F
    assert pattern(bf16.round(np.array(1e-40))) == 0x0001
    assert pattern(bf16.round(np.array(-0.0))) == 0x8000
    assert pattern(bf16.round(np.array(1 / 3))) == 0x3EAB
    assert pattern(bf16.round(np.array(1e300))) == 0x7F80
    assert pattern(bf16.round(np.array(-1e-300))) == 0x8000


@pytest.mark.parametrize("bits", [0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF800001, 0x7F80FFFF])
def test_nan_stays_nan(bits: int) -> None:
    found = bf16.demote(np.array(bits, np.uint32).view(np.float32))
    assert np.isnan(found.astype(np.float32))


def test_widening_is_exact_for_every_pattern() -> None:
    wide = bf16.promote(EVERY)
    assert np.array_equal(wide.view(np.uint32), np.arange(2**16, dtype=np.uint32) << 16)
    number = ~np.isnan(wide)
    assert np.array_equal(bf16.demote(wide).view(np.uint16)[number], EVERY.view(np.uint16)[number])
    for element in (f32, f64):
        cast = element.cast(EVERY, bf16)
        assert cast.dtype == element.dtype
        assert np.array_equal(cast[number], wide[number])
        assert np.array_equal(np.signbit(cast), np.signbit(wide))


def test_binary64_rounds_once() -> None:
    x = np.array(
        [1 + 2.0**-8 + 2.0**-40, 1 + 3 * 2.0**-8 - 2.0**-40, -(1 + 2.0**-8 + 2.0**-50), 2.0**-134 * (1 + 2.0**-52)]
    )
    assert bf16.round(x).astype(np.float64).tolist() == [1 + 2.0**-7, 1 + 2.0**-7, -(1 + 2.0**-7), 2.0**-133]
    assert bf16.cast(x, f64).view(np.uint16).tolist() == bf16.round(x).view(np.uint16).tolist()
    g = np.random.default_rng(4)
    ties = (EVERY[0x80:0x7F00].astype(np.float64) + EVERY[0x81:0x7F01].astype(np.float64)) / 2
    near = np.concatenate([ties, ties * (1 + 2.0**-52), ties * (1 - 2.0**-53), ties * (1 + 2.0**-30), -ties])
    for number in g.choice(near, 3000):
        assert float(bf16.round(np.array(number))) == rounded(_fraction(number), "bf16")


def _fraction(number: float) -> Any:
    from fractions import Fraction

    return Fraction(float(number))


def test_binary32_agrees_with_exact_rounding() -> None:
    g = np.random.default_rng(5)
    patterns = g.integers(0, 2**32, 5000, dtype=np.uint64).astype(np.uint32)
    for x in patterns.view(np.float32):
        if np.isfinite(x):
            assert float(bf16.demote(np.array(x))) == rounded(_fraction(x), "bf16")


@pytest.mark.parametrize(
    "name", ["exp", "ln", "tanh", "sin", "erf", "erf_derivative", "sqrt", "expm1", "log1p", "neg", "cos"]
)
def test_functions_are_those_of_f32_rounded_once(name: str) -> None:
    found = getattr(bf16, name)(EVERY)
    wide = getattr(f32, name)(bf16.promote(EVERY))
    assert found.dtype == bf16.dtype
    assert np.array_equal(bf16.demote(wide).view(np.uint16), found.view(np.uint16))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "step", "powf"])
def test_arithmetic_rounds_once(name: str) -> None:
    g = np.random.default_rng(6)
    left, right = (g.integers(0, 2**16, 4000).astype(np.uint16).view(bf16.dtype) for _ in range(2))
    found = getattr(bf16, name)(left, right)
    wide = getattr(f32, name)(bf16.promote(left), bf16.promote(right))
    assert np.array_equal(bf16.demote(wide).view(np.uint16), found.view(np.uint16))


def test_strided_and_scalar_operands() -> None:
    x = EVERY[0x3F00:0x4000]
    assert np.array_equal(bf16.add(x[::-2], bf16.one), bf16.add(x[::-2].copy(), bf16.one))
    result = bf16.add(x[3].reshape(()), bf16.one)
    assert type(result) is np.ndarray
    assert result.shape == ()
    assert bf16.accumulator is f32
