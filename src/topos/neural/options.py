"""The options of layers and of functions over windows, checked where they are given."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from topos.errors import RecordedError, SettingError, ShapeError
from topos.neural.init import constant
from topos.op import Recordable

Refuse = Callable[[str], ShapeError]
"""What makes an error of a fact: a module's `refusal`, or `refusing(rule)` of a function."""


def refusing(rule: str) -> Refuse:
    """The errors of a function: `conv2d: wants ...`."""
    return partial(_refusal, rule)


def _refusal(rule: str, fact: str) -> ShapeError:
    return ShapeError(f"{rule}: {fact}")


def operand(refuse: Refuse, x: Any) -> None:
    """Raises `RecordedError` for what neither computes nor records."""
    if not isinstance(x, Recordable):
        raise RecordedError(str(refuse(f"wants a tensor or a value, got {type(x).__name__}")))


def extent(refuse: Refuse, name: str, value: Any, least: int = 1) -> int:
    """An integer option of at least `least`."""
    try:
        number = operator.index(value if not isinstance(value, bool) else None)  # type: ignore[arg-type]
    except TypeError:
        raise refuse(f"wants an integer for {name}, got {value!r}") from None
    if number < least:
        raise refuse(f"wants {name} of at least {least}, got {number}")
    return number


def extents(refuse: Refuse, name: str, value: Any, axes: int, least: int = 1) -> tuple[int, ...]:
    """An option that is one integer for every axis, or one integer for each."""
    each = tuple(value) if isinstance(value, tuple | list) else (value,) * axes
    if len(each) != axes:
        raise refuse(f"wants one {name} or {axes}, got {len(each)}")
    return tuple(extent(refuse, name, one, least) for one in each)


def divides(refuse: Refuse, name: str, count: int, of: str, whole: int) -> None:
    """Refuses a number of parts that does not divide the whole."""
    if whole % count:
        raise refuse(f"wants {name} that divide {of}, got {count} of {whole}")


def bias_start(refuse: Refuse, bias: Any) -> Any:
    """The initialiser of a bias: zeros where there is just to be one, the given one, or none where there is no bias.

    Raises `SettingError` for anything else.
    """
    if bias is None or bias is False:
        return None
    if bias is not True and not callable(bias):
        raise SettingError(str(refuse(f"wants True, False or an initialiser for bias, got {type(bias).__name__}")))
    return constant(0) if bias is True else bias
