"""What code says by name, and what it may call: enough to know that a function computes and does nothing else."""

from __future__ import annotations

import builtins
import dis
import math
from collections.abc import Iterator
from functools import lru_cache
from types import BuiltinFunctionType, CodeType
from typing import Any, NamedTuple

from topos.op import concat, einsum, stack, where
from topos.shape import Shape
from topos.tensor import Tensor

_PYTHON = (
    "abs all any bool dict enumerate float int len list map max min range reversed round set sorted str sum super"
    " tuple zip"
)
_PURE = frozenset(map(id, (concat, einsum, stack, where, *map(vars(builtins).get, _PYTHON.split()))))
_MORE = frozenset(
    ("STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF", "IMPORT_NAME")
    + ("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "PUSH_EXC_INFO", "MATCH_CLASS", "IS_OP")
)
"""What writes; and what could tell a value from a tensor: by an error that it answers, by its class, by which it is."""
_STATES = frozenset(("mark", "reset", "tables", "_slots"))
"""What a recording, or an optimizer, says of itself."""
_MADE = {kind: dict(vars(kind)) for kind in (*Tensor.__mro__[:-1], Shape)}
"""What a rule calls without saying so in its module: the operators and methods of what it is given."""


class Names(NamedTuple):
    """The names that code says: those that it reads of its module, and all of them."""

    globals: tuple[str, ...]
    all: dict[str, None]


@lru_cache(256)
def names_of(code: CodeType) -> Names | None:
    """The names that code and the functions inside it say; `None` where it does more than compute."""
    parts = list(_nested(code))
    said = dict.fromkeys(name for part in parts for name in part.co_names)
    instructions = [instruction for part in parts for instruction in dis.get_instructions(part)]
    if any(name.startswith("__") for name in said) or not _STATES.isdisjoint(said):
        return None
    if any(instruction.opname in _MORE for instruction in instructions):
        return None
    found = dict.fromkeys(i.argval for i in instructions if i.opname == "LOAD_GLOBAL")
    return Names(tuple(found), said)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _nested(part)


def is_pure(found: Any) -> bool:
    """Whether this is of Python's or topos's own and only computes: a function, or an error to raise."""
    if id(found) in _PURE:
        return True
    if isinstance(found, BuiltinFunctionType):
        return found.__self__ is math
    is_error = isinstance(found, type) and issubclass(found, Exception)
    return is_error and found.__module__.partition(".")[0] in ("builtins", "topos")


def is_as_made() -> bool:
    """Whether tensors and shapes have the methods that they came with: a recorded value has no others."""
    return all(vars(kind) == made for kind, made in _MADE.items())


def around(function: Any, name: str) -> Any:
    """What a function finds in its module, or in Python's own."""
    space = function.__globals__
    return space[name] if name in space else function.__builtins__[name]


def has_plain_spaces(function: Any) -> bool:
    """Whether what is around a function lies in dictionaries; a mapping of another class may answer anything."""
    return type(function.__globals__) is dict and type(function.__builtins__) is dict
