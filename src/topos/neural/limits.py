"""What the numbers of layers, optimizers, schedules, losses and initialisers may be, checked where they are given."""

from __future__ import annotations

import math
from sys import float_info
from typing import Any

import numpy as np

from topos.errors import SettingError


def expect_number(called: str, name: str, number: Any) -> Any:
    """A finite number."""
    return _expect(called, name, number, "a finite number", _is_finite(number))


def expect_share(called: str, name: str, number: Any) -> Any:
    """A number from 0 to below 1: a decay or a momentum."""
    return _expect(called, name, number, "a number at least 0 and below 1", is_number(number) and 0 <= number < 1)


def expect_part(called: str, name: str, number: Any) -> Any:
    """A number from 0 to 1: how much of something."""
    return _expect(called, name, number, "a number from 0 to 1", is_number(number) and 0 <= number <= 1)


def expect_positive(called: str, name: str, number: Any) -> Any:
    """A number above 0."""
    return _expect(called, name, number, "a number above 0", is_number(number) and number > 0)


def expect_not_negative(called: str, name: str, number: Any) -> Any:
    """A finite number that is 0 or more."""
    return _expect(called, name, number, "a finite number at least 0", _is_finite(number) and number >= 0)


def expect_count(called: str, name: str, number: Any) -> Any:
    """A whole number above 0."""
    whole = _is_finite(number) and number == int(number)
    return _expect(called, name, number, "a whole number above 0", whole and number > 0)


def is_number(number: object) -> bool:
    """Whether this is a number of Python's or NumPy's; a truth value is none."""
    return isinstance(number, int | float | np.integer | np.floating) and not isinstance(number, bool)


def _is_finite(number: Any) -> bool:
    """Of an integer, whether it is no larger than the largest float."""
    return is_number(number) and (abs(number) <= float_info.max if isinstance(number, int) else math.isfinite(number))


def _expect(called: str, name: str, number: Any, what: str, holds: bool) -> Any:
    """The number, as Python has it. Raises `SettingError` where it is another one than it must be."""
    if not holds:
        raise SettingError(f"{called}: {name} must be {what}, got {number!r}")
    return number.item() if isinstance(number, np.generic) else number
