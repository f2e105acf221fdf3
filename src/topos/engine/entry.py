"""What to read from a run: the declaration that licenses everything a plan leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from topos.engine.numerics import Numerics
from topos.errors import BackendUnavailable, KinshipError, RecordedError
from topos.graph import Adjoints, Symbol
from topos.graph.nesting import visit
from topos.graph.symbol import what_it_is
from topos.op import Recordable


class Entry:
    """A detached, frozen declaration over one family: bound late by `network.compile(entry)`.

    `roots` and then `observe` are the results, in order, each a symbol or any nesting of symbols; `carry` maps a
    parameter or an input to the value that replaces it after a run; `backward` retains every value; `numerics` is the
    posture; `diagnose` watches values; `backends` is the chain of those who are asked to compute, in order (`None` for
    the default one, an empty one for the interpreter alone).

    >>> from topos import Tape
    >>> network, (weight, double) = Tape.record(lambda tape: [weight := tape.parameter(0.5), weight + weight])
    >>> network.compile(Entry(double, observe=weight)).forward(network.parameters()).of([double, weight])
    [Tensor(1., f32), Tensor(0.5, f32)]
    """

    __slots__ = ("roots", "observe", "carry", "backward", "numerics", "diagnose", "backends")
    roots: tuple[Symbol, ...]
    observe: tuple[Symbol, ...]
    carry: Mapping[Symbol, Symbol]
    backward: bool
    numerics: Numerics
    diagnose: bool
    backends: tuple[Any, ...] | None

    def __init__(
        self,
        roots: Any,
        observe: Any = (),
        carry: Mapping[Symbol, Symbol] | None = None,
        backward: bool = False,
        numerics: Numerics = Numerics.FAST,
        diagnose: bool = False,
        backends: Iterable[Any] | None = None,
    ) -> None:
        held = MappingProxyType(dict(mapping(carry if carry is not None else {})))
        chain = None if backends is None else chained(backends)
        facts = (listed(roots), listed(observe), held, backward, numerics, diagnose, chain)
        if not isinstance(numerics, Numerics):
            raise RecordedError(f"entry: numerics is Numerics.EXACT or Numerics.FAST, got {numerics!r}")
        for name, fact in zip(self.__slots__, facts, strict=True):
            object.__setattr__(self, name, fact)

    @property
    def results(self) -> tuple[Symbol, ...]:
        """What a run answers: roots, then what is observed, each once, where it stands first."""
        return tuple(dict.fromkeys((*self.roots, *self.observe)))

    @property
    def carried(self) -> frozenset[int]:
        """The rows that it carries."""
        return frozenset(source.index for source in self.carry)

    def replaced(self, **facts: Any) -> Entry:
        """The same declaration with some facts replaced."""
        return Entry(**{**self._facts(), **facts})

    def _facts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError("Entry is frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("Entry is frozen")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash(tuple({**self._facts(), "carry": frozenset(self.carry.items())}.values()))

    def __reduce__(self) -> tuple[Any, ...]:
        return Entry, tuple({**self._facts(), "carry": dict(self.carry)}.values())

    def __repr__(self) -> str:
        return f"Entry({', '.join(f'{name}={fact}' for name, fact in self._facts().items())})"


_NO_LIST = dict, str, np.ndarray, Adjoints, Recordable


def chained(backends: Iterable[Any]) -> tuple[Any, ...]:
    """A chain of backends, each once. Raises `BackendUnavailable` for what is no backend."""
    if isinstance(backends, str) or not isinstance(backends, Iterable):
        raise BackendUnavailable(f"entry: backends wants a sequence of backends, got {backends!r}")
    chain = tuple(dict.fromkeys(backends))
    for backend in chain:
        wanted = ("name", "dispatch", "status", "takes", "offer")
        if isinstance(backend, type) or not all(hasattr(backend, name) for name in wanted):
            raise BackendUnavailable(f"entry: wants objects of a subclass of Backend, got {backend!r}")
    return chain


def mapping(carry: Any) -> Mapping[Any, Symbol]:
    """What a carry has to be. Raises `KinshipError` for anything else."""
    if not isinstance(carry, Mapping):
        raise KinshipError(f"carry: wants a mapping from sources to symbols, got {type(carry).__name__}")
    return carry


def listed(symbols: Any) -> tuple[Symbol, ...]:
    """Every symbol of a nesting, in order, first occurrence kept; of adjoints, their roots."""
    found: dict[Symbol, None] = {}

    def take(part: Any) -> None:
        if isinstance(part, Adjoints):
            found.update(dict.fromkeys(part.roots()))
        elif isinstance(part, Symbol):
            found[part] = None
        else:
            hint = "; take value.symbol() before sealing" if hasattr(part, "symbol") else ""
            raise KinshipError(f"entry: wants symbols, got {what_it_is(part)}{hint}")

    plain = isinstance(symbols, Iterable) and not isinstance(symbols, _NO_LIST)
    visit(list(symbols) if plain else symbols, take)
    return tuple(found)
