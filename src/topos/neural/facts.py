"""All that a function reads beside what it is given, as one value: where that is the same, so is the computation.

The value is worked out anew whenever it is asked for, from what is there at that moment: the code, the defaults, what
is around the function, what it names in its module, and the same of every function among these. Numbers and texts stand
in it as they are, so nothing has to be watched. A function that does more than compute, or that reads what can change
in place, has no such value.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Hashable, Mapping
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from topos.element import bf16, f32, f64
from topos.graph import Symbol
from topos.neural.pure import around, has_plain_spaces, is_as_made, is_pure, names_of

if TYPE_CHECKING:
    from topos.neural.optimizer import Optimizer

_PLAIN = frozenset((bool, int, str, type(None)))
_NOT_ASKED = frozenset(
    ("__init__", "__repr__", "__module__", "__qualname__", "__doc__", "__annotations__", "__dict__", "__weakref__")
    + ("__firstlineno__", "__static_attributes__", "__annotate__", "__annotate_func__", "__annotations_cache__")
)
"""What a class has and no step reads."""


class Reads(NamedTuple):
    """What a function reads: what stays, and floats; where both are the same it is the same computation."""

    what: Hashable
    floats: tuple[float, ...]

    @property
    def whole(self) -> Hashable:
        """Both as one fact, each float by its bits."""
        return self.what, struct.pack(f"{len(self.floats)}d", *self.floats)


def reads_of(function: Any) -> Reads | None:
    """What a plain function reads; `None` where that cannot be known or compared.

    The floats are those that stand by themselves in a default, around a function or in its module.
    """
    reading = _Reading()
    return reading.whole(reading.value, function, True) if type(function) is FunctionType else None


def facts_of(rule: Optimizer) -> Hashable | None:
    """The class, the options and the constants of a rule; `None` where these cannot be known or compared.

    Rules of topos read nothing but their options. A user's class may read constants of its module and of its own, and
    call functions that do no more; one that changes anything, or reads what may change unseen, has to be asked again
    at each step.
    """
    reading = _Reading(type(rule).__mro__)
    reads = reading.whole(reading.rule, rule)
    return None if reads is None else reads.whole


class _Unknown(Exception):
    """Something is read that nobody can follow."""


class _Reading:
    """A walk through all that is read."""

    def __init__(self, classes: tuple[type, ...] = ()) -> None:
        self.found: list[Hashable] = []
        self.floats: list[float] = []
        self._classes = classes
        self._functions: dict[tuple[int, bool], int] = {}
        self._names: dict[str, None] = {}
        self._spaces: dict[int, Mapping[str, Any]] = {}
        self._seen: set[tuple[int, str]] = set()

    def whole(self, note: Callable[..., None], *what: Any) -> Reads | None:
        """What `note(*what)` reads; `None` where something cannot be followed."""
        if not is_as_made():
            return None
        try:
            note(*what)
            if self._spaces:
                self._finish()
        except (_Unknown, ValueError, KeyError, RecursionError):  # there may be nothing in a cell, or under a name, yet
            return None
        return Reads(tuple(self.found), tuple(self.floats))

    def rule(self, rule: Optimizer) -> None:
        """Notes what an optimizer's methods read."""
        kind: Any = type(rule)
        self.found.append(kind)
        for name, option in vars(rule).items():
            if name != "_slots":
                self.found.append(name)
                self.value(option, True)
        for base in self._classes:
            if base is not object and base.__module__.partition(".")[0] != "topos":
                for name, member in vars(base).items():
                    if name not in _NOT_ASKED:
                        self.found.append(name)
                        self.value(member, True)

    def value(self, found: Any, is_open: bool) -> None:
        """Notes one thing; a float only where it is open, and so can be another, is one of `floats`."""
        kind = type(found)
        if kind is FunctionType and not is_pure(found):
            self._function(found, is_open)
        elif kind is float and is_open:
            self.found.append(float)
            self.floats.append(found)
        elif kind in _PLAIN:
            self.found.append((kind, found))
        elif kind is tuple:
            self.found.append((tuple, len(found)))
            for part in found:
                self.value(part, is_open)
        else:
            self._thing(found)

    def _thing(self, found: Any) -> None:
        """Notes what stays as it is, but for what it may hold under some name."""
        kind = type(found)
        if kind is float:
            self.found.append((kind, struct.pack("d", found)))
        elif isinstance(found, np.number):
            self.found.append((kind, found.tobytes()))
        elif kind is Symbol:
            self.found.append((kind, id(found.family), found.index))  # a plan does not keep the family that keeps it
        elif kind is ModuleType or any(found is element for element in (f32, f64, bf16)):
            self._spaces[id(found)] = vars(found)
            self.found.append(found)
        elif is_pure(found) or any(found is base for base in self._classes):
            self.found.append(found)
        else:
            raise _Unknown

    def _function(self, found: FunctionType, is_open: bool) -> None:
        key = id(found), is_open
        if key in self._functions:
            self.found.append(self._functions[key])
            return
        names = names_of(found.__code__)
        if names is None or not has_plain_spaces(found):
            raise _Unknown
        self._functions[key] = len(self._functions)
        self.found.append(found.__code__)
        self.value(found.__defaults__, is_open)
        for name, default in (found.__kwdefaults__ or {}).items():
            self.found.append(name)
            self.value(default, is_open)
        for cell in found.__closure__ or ():
            self.value(cell.cell_contents, is_open)
        for name in names.globals:
            self.value(around(found, name), is_open)
        self._names.update(names.all)
        if found.__dict__:
            self._spaces[id(found)] = found.__dict__

    def _finish(self) -> None:
        """Notes what modules and the like hold under the names that functions say, until nothing is new."""
        before = -1
        while before != (before := len(self._seen) + len(self._names) + len(self._spaces)):
            for place, space in list(self._spaces.items()):
                if "__getattr__" in space and space is not vars(sys.modules["topos"]):  # which makes up nothing
                    raise _Unknown
                for name in list(self._names):
                    if name in space and (place, name) not in self._seen:
                        self._seen.add((place, name))
                        self.found.append(name)
                        self.value(space[name], False)
