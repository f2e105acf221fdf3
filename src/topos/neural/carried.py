"""What parts of a model carry, together."""

from __future__ import annotations

from typing import Any

from topos.errors import KinshipError, SettingError
from topos.graph import Value
from topos.neural.module import Module


def expect_parts(called: str, parts: Any) -> None:
    """Raises `SettingError` for a part that is neither a module nor a function."""
    for at, part in enumerate(parts):
        if not callable(part):
            opened = "; open it: *parts" if isinstance(part, list | tuple) else ""
            raise SettingError(f"{called}: part {at} wants a module or a function, got {type(part).__name__}{opened}")


def trained(part: Any, x: Any) -> tuple[Any, dict[Value, Value]]:
    """What a part answers in training, and what it carries; a plain function carries nothing."""
    return part.train(x) if isinstance(part, Module) else (part(x), {})


def inferred(part: Any, x: Any) -> Any:
    """What a part answers once training is over."""
    return part.infer(x) if isinstance(part, Module) else part(x)


def merge(carry: dict[Value, Value], moved: dict[Value, Value]) -> None:
    """Adds what one more part carries. Raises `KinshipError` where a source is carried already: which one, then?"""
    for source in moved:
        if source in carry:
            raise KinshipError(f"train: {source} is carried by two parts; a norm that moves is used once in a step")
    carry.update(moved)
