"""What the numbers of optimizers, schedules, losses and initialisers may be, checked where they are given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from topos.errors import SettingError


def expect_number(called: str, name: str, number: Any) -> Any:
    """A finite number."""
    return _expect(called, name, number, "a finite number", is_number(number) and math.isfinite(number))


def expect_share(called: str, name: str, number: Any) -> Any:
    """A number from 0 to below 1: a decay or a momentum."""
    return _expect(called, name, number, "a number at least 0 and below 1", is_number(number) and 0 <= number < 1)


def expect_positive(called: str, name: str, number: Any) -> Any:
    """A number above 0."""
    return _expect(called, name, number, "a number above 0", is_number(number) and number > 0)


def expect_not_negative(called: str, name: str, number: Any) -> Any:
    """A number that is 0 or more."""
    return _expect(called, name, number, "a number at least 0", is_number(number) and number >= 0)


def expect_count(called: str, name: str, number: Any) -> Any:
    """A whole number above 0."""
    whole = is_number(number) and math.isfinite(number) and number == int(number)
    return _expect(called, name, number, "a whole number above 0", whole and number > 0)


def is_number(number: object) -> bool:
    """Whether this is a number of Python's or NumPy's; a truth value is none."""
    return isinstance(number, int | float | np.integer | np.floating) and not isinstance(number, bool)


def _expect(called: str, name: str, number: Any, what: str, holds: bool) -> Any:
    """The number, as Python has it. Raises `SettingError` where it is another one than it must be."""
    if not holds:
        raise SettingError(f"{called}: {name} must be {what}, got {number!r}")
    return number.item() if isinstance(number, np.generic) else number
