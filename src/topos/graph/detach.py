"""Values to symbols, through any nesting."""

from __future__ import annotations

from typing import Any

from topos.graph.adjoints import Adjoints
from topos.graph.nesting import mapped
from topos.graph.value import Value


def detach(first: Any, *others: Any) -> Any:
    """The same nesting with a symbol for each value; several arguments answer a tuple.

    Goes through tuples (named ones too), lists, dicts, dataclasses and `Adjoints`; anything else stays as it is.

    >>> from topos import Tape
    >>> x = Tape().input(1.0)
    >>> detach({"x": x, "doubled": [x + x]})
    {'x': %0, 'doubled': [%1]}
    """
    return mapped((first, *others), _symbol) if others else mapped(first, _symbol)


def _symbol(part: Any) -> Any:
    if isinstance(part, Value):
        return part.symbol()
    return part.detach() if isinstance(part, Adjoints) else part
