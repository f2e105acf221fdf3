"""Detached names of nodes, valid through every later phase."""

from __future__ import annotations

import os
from threading import Lock
from typing import Any, NoReturn
from weakref import WeakValueDictionary


class Family:
    """The identity that a tape, its network, and the tape reopened from it share. One object per identity.

    `forgone_ns` is what a plan would have saved in the steps over its tables so far, roughly.
    """

    __slots__ = ("__weakref__", "identity", "forgone_ns")
    identity: str
    forgone_ns: float
    _known: WeakValueDictionary[str, Family] = WeakValueDictionary()
    _meeting = Lock()

    def __new__(cls, identity: str | None = None) -> Family:
        if identity is None:
            return cls._met(os.urandom(16).hex())
        with cls._meeting:  # symbols that several threads unpickle at once
            return cls._known.get(identity) or cls._met(identity)

    @classmethod
    def _met(cls, identity: str) -> Family:
        family = object.__new__(cls)
        family.identity = identity
        family.forgone_ns = 0.0
        cls._known[identity] = family
        return family

    def __reduce__(self) -> tuple[Any, ...]:
        return Family, (self.identity,)

    def __copy__(self) -> Family:
        return self

    def __deepcopy__(self, memo: Any) -> Family:
        return self

    def __repr__(self) -> str:
        return f"Family({self.identity[:8]})"


class Symbol:
    """A node's name apart from its tape: family and position (`index`); hashable, the currency of every later phase.

    >>> from topos import Tape
    >>> network, weight = Tape.record(lambda tape: tape.parameter(0.5, name="weight"))
    >>> weight, weight.index, network.symbol("weight") == weight
    (%0, 0, True)
    """

    __slots__ = ("family", "index")
    family: Family
    index: int

    def __init__(self, family: Family, index: int) -> None:
        object.__setattr__(self, "family", family)
        object.__setattr__(self, "index", index)

    def __setattr__(self, attribute: str, value: Any) -> NoReturn:
        raise AttributeError("Symbol is frozen")

    def __delattr__(self, attribute: str) -> NoReturn:
        raise AttributeError("Symbol is frozen")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Symbol) and self.index == other.index and self.family is other.family

    def __hash__(self) -> int:
        return hash((id(self.family), self.index))

    def __reduce__(self) -> tuple[Any, ...]:
        return Symbol, (self.family, self.index)

    def __repr__(self) -> str:
        return f"%{self.index}"


def what_it_is(part: object) -> str:
    """What stands where a symbol is wanted, and how to come by the symbol, for a message."""
    if isinstance(part, str):
        return f"str; a sealed network finds a name's: network.symbol({part!r})"
    return type(part).__name__
