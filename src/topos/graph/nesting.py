"""Any nesting of tuples, lists, dicts and dataclasses, with its leaves replaced."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any


def mapped(part: Any, leaf: Callable[[Any], Any]) -> Any:
    """The same nesting with `leaf(part)` for everything that is no container."""
    if isinstance(part, tuple):
        inner = [mapped(item, leaf) for item in part]
        return type(part)(*inner) if hasattr(part, "_fields") else type(part)(inner)
    if isinstance(part, list):
        return [mapped(item, leaf) for item in part]
    if isinstance(part, dict):
        return {leaf(key): mapped(value, leaf) for key, value in part.items()}
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        fields = {
            field.name: mapped(getattr(part, field.name), leaf) for field in dataclasses.fields(part) if field.init
        }
        return dataclasses.replace(part, **fields)
    return leaf(part)
