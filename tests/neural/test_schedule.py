"""Rates by the step: held against mpmath, and their bits pinned."""

import hashlib
import struct
from collections.abc import Callable
from typing import Any

import mpmath
import pytest

from topos import SettingError, schedule

SHOWN: dict[str, tuple[schedule.Schedule, Callable[[int], Any]]] = {
    "constant": (schedule.constant(3e-4), lambda t: mpmath.mpf(3e-4)),
    "linear": (schedule.linear(3e-4, 50, 1e-5), lambda t: 1e-5 + (mpmath.mpf(3e-4) - 1e-5) * max(50 - t, 0) / 50),
    "cosine": (
        schedule.cosine(3e-4, 50, 1e-5),
        lambda t: 1e-5 + (mpmath.mpf(3e-4) - 1e-5) * (1 + mpmath.cos(mpmath.pi * min(t, 50) / 50)) / 2,
    ),
    "stairs": (schedule.stairs(3e-4, 7, 0.3), lambda t: mpmath.mpf(3e-4) * mpmath.mpf(0.3) ** (t // 7)),
    "inverse square root": (
        schedule.inverse_square_root(3e-4, 10),
        lambda t: mpmath.mpf(3e-4) * (1 if t < 10 else mpmath.sqrt(mpmath.mpf(10) / (t + 1))),
    ),
    "warmup": (
        schedule.warmup(9, schedule.cosine(3e-4, 50)),
        lambda t: mpmath.mpf(3e-4) * (1 + mpmath.cos(mpmath.pi * min(t, 50) / 50)) / 2 * min(t + 1, 9) / 9,
    ),
}

BITS = {
    "constant": "caaaf185",
    "linear": "f1f60c5d",
    "cosine": "10e6f119",
    "stairs": "00204b0d",
    "inverse square root": "d53421e9",
    "warmup": "4ff04043",
}
"""The first eight digits of SHA-256 over the first hundred rates as little-endian doubles."""


@pytest.mark.parametrize("name", SHOWN)
def test_a_schedule_is_its_formula(name: str) -> None:
    ours, formula = SHOWN[name]
    for step in range(100):
        rate = ours(step)
        assert type(rate) is float
        assert abs(rate - formula(step)) <= 2e-15 * 3e-4  # ten roundings; the cosine's own ulp is below one


@pytest.mark.parametrize("name", SHOWN)
def test_bits_are_pinned(name: str) -> None:
    rates = [SHOWN[name][0](step) for step in range(100)]
    assert hashlib.sha256(struct.pack("<100d", *rates)).hexdigest()[:8] == BITS[name]


def test_where_they_end() -> None:
    assert [schedule.cosine(0.5, 10, 0.125)(step) for step in (0, 10, 11, 10**9)] == [0.5, 0.125, 0.125, 0.125]
    assert [schedule.linear(0.5, 10)(step) for step in (0, 5, 10, 11)] == [0.5, 0.25, 0.0, 0.0]
    assert schedule.warmup(0, schedule.constant(0.5))(0) == 0.5
    assert schedule.warmup(2, schedule.constant(0.5))(1) == 0.5


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: schedule.cosine(1.0, 0), "cosine: steps must be a number above 0, got 0"),
        (lambda: schedule.linear(1.0, -1), "linear: steps must be a number above 0, got -1"),
        (lambda: schedule.stairs(1.0, 0), "stairs: every must be a whole number above 0, got 0"),
        (lambda: schedule.inverse_square_root(1.0, 0), "inverse_square_root: steps must be a number above 0, got 0"),
        (
            lambda: schedule.warmup(-1, schedule.constant(1.0)),
            "warmup: steps must be a finite number at least 0, got -1",
        ),
    ],
)
def test_wrong_options_are_refused(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(SettingError) as caught:
        make()
    assert str(caught.value) == told
