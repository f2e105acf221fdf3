"""Values to symbols, through any nesting."""

from __future__ import annotations

import dataclasses
from typing import Any

from topos.graph.adjoints import Adjoints
from topos.graph.value import Value


def detach(first: Any, *others: Any) -> Any:
    """The same nesting with a symbol for each value; several arguments answer a tuple.

    Goes through tuples (named ones too), lists, dicts, dataclasses and `Adjoints`; anything else stays as it is.
    """
    return tuple(_detached(part) for part in (first, *others)) if others else _detached(first)


def _detached(part: Any) -> Any:
    if isinstance(part, Value):
        return part.symbol()
    if isinstance(part, Adjoints):
        return part.detach()
    if isinstance(part, tuple):
        inner = [_detached(item) for item in part]
        return type(part)(*inner) if hasattr(part, "_fields") else type(part)(inner)
    if isinstance(part, list):
        return [_detached(item) for item in part]
    if isinstance(part, dict):
        return {_detached(key): _detached(value) for key, value in part.items()}
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        fields = {field.name: _detached(getattr(part, field.name)) for field in dataclasses.fields(part) if field.init}
        return dataclasses.replace(part, **fields)
    return part
