"""What the environment says about native code."""

from __future__ import annotations

import os

from topos.errors import SettingError


def whole_number(text: str, setting: str, most: int) -> int:
    """The number from 1 to `most` that a setting spells."""
    number = int(text) if text.strip().isdecimal() else 0
    if not 1 <= number <= most:
        raise SettingError(f"{setting}: wants a whole number from 1 to {most}, got {text!r}")
    return number


def environment(name: str) -> str | None:
    """An environment variable, where it says anything."""
    return os.environ.get(name, "").strip() or None
