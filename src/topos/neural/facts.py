"""All that a rule reads beside what it is given, so that two steps can be told to be the same computation."""

from __future__ import annotations

import builtins
import dis
import math
from collections.abc import Hashable, Iterator, Mapping
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from topos.neural.optimizer import Optimizer

_PLAIN = frozenset((bool, int, float, str, type(None)))
_WRITES = frozenset(("STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "IMPORT_NAME"))
_PURE = frozenset(
    (abs, all, any, bool, dict, enumerate, float, int, isinstance, len, list, map, max, min)
    + (range, reversed, round, set, sorted, str, sum, super, tuple, zip)
)
_MADE_ONCE = ("__init__", "__repr__")


def facts_of(rule: Optimizer) -> tuple[Any, str] | None:
    """The class, the options and the constants of a rule; `None` where these cannot be known or compared.

    Options are numbers and texts. Methods of a user's class may also read constants of their module or class, and
    call functions that do no more; one that changes anything, or reads what may change unseen, has to be asked again
    at each step.
    """
    options = {name: option for name, option in vars(rule).items() if name != "_slots"}
    kind: Any = type(rule)
    reads = _reads_of(kind)
    if reads is None or not all(type(option) in _PLAIN for option in options.values()):
        return None
    constants = []
    for namespace, name, found in reads:
        now = namespace.get(name)
        if type(now) in _PLAIN:
            constants.append((name, now))
        elif now is not found:  # defined anew
            _reads_of.cache_clear()
            return None
    return kind, repr((options, constants))


class _Read(NamedTuple):
    """A name that a function reads; what is found there is the same one later, or a number or text that may change."""

    namespace: Mapping[str, Any]
    name: str
    found: Any


class _Unknown(Exception):
    """A function does what nobody can follow."""


@lru_cache(64)
def _reads_of(kind: type) -> tuple[_Read, ...] | None:
    """What the methods of a class read; `None` where that is unknown. Rules of topos read nothing else."""
    reads: dict[tuple[int, str], _Read] = {}
    try:
        for base in kind.__mro__:
            if not _is_ours(base.__module__) and base is not object:
                for name, member in vars(base).items():
                    if name in _MADE_ONCE or not name.startswith("__"):
                        _follow(_Read(vars(base), name, member), reads, is_called=name not in _MADE_ONCE)
    except _Unknown:
        return None
    return tuple(reads.values())


def _follow(read: _Read, reads: dict[tuple[int, str], _Read], is_called: bool = True) -> None:
    """Notes what is read, and all that is read by it."""
    key = id(read.namespace), read.name
    found = read.found
    if key in reads or (isinstance(found, type | FunctionType) and _is_ours(found.__module__)):
        return
    reads[key] = read
    if type(found) is FunctionType:
        defaults = (*(found.__defaults__ or ()), *(found.__kwdefaults__ or {}).values())
        if not all(type(default) in _PLAIN for default in defaults):
            raise _Unknown
        for name in _globals(found.__code__) if is_called else ():
            if name in found.__globals__:
                _follow(_Read(found.__globals__, name, found.__globals__[name]), reads)
            elif not _is_harmless(getattr(builtins, name, None)):
                raise _Unknown
    elif type(found) not in _PLAIN and not _is_harmless(found):
        raise _Unknown


def _globals(code: CodeType) -> Iterator[str]:
    """The globals that a function reads. Raises `_Unknown` where it does more than compute."""
    if set(code.co_freevars) - {"__class__"} or any(name.startswith("__") for name in code.co_names):
        raise _Unknown
    for instruction in dis.get_instructions(code):
        if instruction.opname in _WRITES:
            raise _Unknown
        if instruction.opname == "LOAD_GLOBAL":
            yield instruction.argval
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _globals(inner)


def _is_harmless(found: Any) -> bool:
    if isinstance(found, ModuleType):
        return found is math or _is_ours(found.__name__)
    is_pure = isinstance(found, Hashable) and found in _PURE
    return is_pure or (isinstance(found, type) and issubclass(found, Exception))


def _is_ours(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] == "topos"
