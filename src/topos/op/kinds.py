"""Facts that a stage has per kind of instruction."""

from __future__ import annotations

from typing import TypeVar

Fact = TypeVar("Fact")


class ByKind(dict[type, Fact]):
    """A fact for some kinds; any other class has that of its nearest base among them, found once.

    Raises `KeyError` for a class without such a base.
    """

    def __missing__(self, kind: type) -> Fact:
        base = next((base for base in kind.__mro__ if base in self), None)
        if base is None:
            raise KeyError(kind)
        fact = self[kind] = self[base]
        return fact
