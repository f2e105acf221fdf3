"""The options of optimizers and schedules, checked where they are given."""

from __future__ import annotations

from topos.errors import SettingError


def expect_share(called: str, name: str, number: float) -> float:
    """A number from 0 to below 1, a decay or a momentum."""
    if not 0 <= number < 1:
        raise SettingError(f"{called}: {name} must be at least 0 and below 1, got {number!r}")
    return number


def expect_positive(called: str, name: str, number: float) -> float:
    """A number above 0."""
    if not number > 0:
        raise SettingError(f"{called}: {name} must be above 0, got {number!r}")
    return number


def expect_not_negative(called: str, name: str, number: float) -> float:
    """A number that is 0 or more."""
    if not number >= 0:
        raise SettingError(f"{called}: {name} must be at least 0, got {number!r}")
    return number
