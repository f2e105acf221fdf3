"""What the numbers of optimizers and schedules may be, checked where they are given."""

from __future__ import annotations

from topos.errors import SettingError


def expect_share(called: str, name: str, number: float) -> float:
    """A number from 0 to below 1: a decay or a momentum."""
    return _expect(called, name, number, "at least 0 and below 1", _is_number(number) and 0 <= number < 1)


def expect_positive(called: str, name: str, number: float) -> float:
    """A number above 0."""
    return _expect(called, name, number, "above 0", _is_number(number) and number > 0)


def expect_not_negative(called: str, name: str, number: float) -> float:
    """A number that is 0 or more."""
    return _expect(called, name, number, "at least 0", _is_number(number) and number >= 0)


def _expect(called: str, name: str, number: float, what: str, holds: bool) -> float:
    if not holds:
        raise SettingError(f"{called}: {name} must be a number {what}, got {number!r}")
    return number


def _is_number(number: object) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool)
