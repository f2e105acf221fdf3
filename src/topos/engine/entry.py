"""What to read from a run: the declaration that licenses everything a plan leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from topos.engine.feeds import carried_rows, read_feeds, source_payloads, symbol_of
from topos.engine.interpreter import execute, owned, steps_of
from topos.engine.liveness import schedule
from topos.engine.numerics import Numerics
from topos.engine.plan import Plan
from topos.engine.report import Watch
from topos.engine.run import Run
from topos.engine.state import State
from topos.errors import KinshipError, RecordedError, ShapeError
from topos.graph import Adjoints, Network, Parameters, Symbol
from topos.graph.nesting import visit
from topos.graph.spec import Spec
from topos.graph.symbol import what_it_is
from topos.op import Input, Parameter, Recordable


class Entry:
    """A detached, frozen declaration over one family: bound late by `network.compile(entry)`.

    `roots` and then `observe` are the results, in order, each a symbol or any nesting of symbols; `carry` maps a
    parameter or an input to the value that replaces it after a run; `backward` retains every value; `numerics` is the
    posture; `diagnose` watches values.

    >>> from topos import Tape
    >>> network, (weight, double) = Tape.record(lambda tape: [weight := tape.parameter(0.5), weight + weight])
    >>> network.compile(Entry(double, observe=weight)).forward(network.parameters()).of([double, weight])
    [Tensor(1., f32), Tensor(0.5, f32)]
    """

    __slots__ = ("backward", "carry", "diagnose", "numerics", "observe", "roots")
    roots: tuple[Symbol, ...]
    observe: tuple[Symbol, ...]
    carry: Mapping[Symbol, Symbol]
    backward: bool
    numerics: Numerics
    diagnose: bool

    def __init__(
        self,
        roots: Any,
        observe: Any = (),
        carry: Mapping[Symbol, Symbol] | None = None,
        backward: bool = False,
        numerics: Numerics = Numerics.FAST,
        diagnose: bool = False,
    ) -> None:
        held = MappingProxyType(dict(_mapping(carry if carry is not None else {})))
        facts = (_listed(roots), _listed(observe), held, backward, numerics, diagnose)
        if not isinstance(numerics, Numerics):
            raise RecordedError(f"entry: numerics is Numerics.EXACT or Numerics.FAST, got {numerics!r}")
        for name, fact in zip(("roots", "observe", "carry", "backward", "numerics", "diagnose"), facts, strict=True):
            object.__setattr__(self, name, fact)

    def replaced(self, **facts: Any) -> Entry:
        """The same declaration with some facts replaced."""
        return Entry(**{name: facts.get(name, getattr(self, name)) for name in (*_FACTS,)})

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("Entry is frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("Entry is frozen")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and all(getattr(self, name) == getattr(other, name) for name in _FACTS)

    def __hash__(self) -> int:
        carry = frozenset(self.carry.items())
        return hash((self.roots, self.observe, carry, self.backward, self.numerics, self.diagnose))

    def __reduce__(self) -> tuple[Any, ...]:
        return Entry, (self.roots, self.observe, dict(self.carry), self.backward, self.numerics, self.diagnose)

    def __repr__(self) -> str:
        return f"Entry({', '.join(f'{name}={getattr(self, name)}' for name in _FACTS)})"


_NO_LIST = dict, str, np.ndarray, Adjoints, Recordable

_FACTS = ("roots", "observe", "carry", "backward", "numerics", "diagnose")


class BoundEntry:
    """An entry over its network; each method answers another one. `interpret` is the oracle, `lower` the plan.

    >>> from topos import Numerics, Tape
    >>> network, (weight, root) = Tape.record(lambda tape: [weight := tape.parameter(2.0), weight.sqrt()])
    >>> bound = network.entry(root).observe(weight).numerics(Numerics.EXACT)
    >>> bound.interpret(network.parameters()).of(root)
    Tensor(1.4142135, f32)
    >>> bound.lower()
    Plan(2 of 2 nodes, 2 readable)
    """

    __slots__ = ("_length", "_spec", "entry")

    def __init__(self, spec: Spec, length: int, entry: Entry) -> None:
        self._spec = spec
        self._length = length
        self.entry = entry

    @classmethod
    def of(cls, network: Network, roots: Any) -> BoundEntry:
        """The entry with those roots and nothing else declared."""
        return cls.bind(network, Entry(roots))

    @classmethod
    def bind(cls, network: Network, entry: Entry) -> BoundEntry:
        """A detached entry over a network that covers all its symbols."""
        if not isinstance(entry, Entry):
            raise KinshipError(f"compile: wants an Entry, got {type(entry).__name__}")
        bound = cls(network.spec, len(network), entry)
        bound._check()
        return bound

    def observe(self, symbols: Any) -> BoundEntry:
        """Also reads these nodes, after the roots."""
        return self._with(observe=(*self.entry.observe, *_listed(symbols)))

    def numerics(self, numerics: Numerics) -> BoundEntry:
        """Under this posture."""
        return self._with(numerics=numerics)

    def backward(self) -> BoundEntry:
        """Retains every value, so that a run answers `backward` and `field`."""
        return self._with(backward=True)

    def diagnose(self) -> BoundEntry:
        """Watches every value, so that `run.report()` names the first bad one."""
        return self._with(diagnose=True)

    def carry(self, replacements: Mapping[Any, Symbol]) -> BoundEntry:
        """Also declares `{source: next}`: the value that replaces a parameter or an input after a run."""
        spec = self._spec
        named = {
            Symbol(spec.family, symbol_of(spec, source, "carry", self._length)): following
            for source, following in _mapping(replacements).items()
        }
        return self._with(carry={**self.entry.carry, **named})

    def interpret(self, parameters: Parameters | State, feeds: Mapping[Any, Any] | None = None) -> Run:
        """Evaluates what the entry reads, node by node: the oracle. A State is left as it is."""
        spec, entry = self._spec, self.entry
        rows = schedule(spec.rows, [symbol.index for symbol in self._targets()])
        carried = carried_rows(entry.carry, parameters)
        fed = read_feeds(spec, self._length, feeds, copy=entry.backward, carried=carried)
        sources = [index for index in rows if not spec.rows[index].operands]
        values = source_payloads(spec, sources, parameters, fed.fixed)
        watch = Watch(spec) if entry.diagnose else None
        execute(steps_of(spec, rows, {}), values, watch)
        readable = frozenset(symbol.index for symbol in (*entry.roots, *entry.observe))
        values.update({index: owned(values[index], fed.borrowed) for index in readable})
        kept = values if entry.backward else {index: values[index] for index in readable}
        return Run(spec, self._length, kept, readable, entry.backward, watch)

    def lower(self) -> Plan:
        """The plan: schedule, keep-set and liveness, derived from the declaration alone."""
        return Plan(self._spec, self._length, self.entry)

    def _targets(self) -> list[Symbol]:
        return [*self.entry.roots, *self.entry.observe, *self.entry.carry.values()]

    def _with(self, **facts: Any) -> BoundEntry:
        bound = BoundEntry(self._spec, self._length, self.entry.replaced(**facts))
        bound._check()
        return bound

    def _check(self) -> None:
        spec = self._spec
        for symbol in self._targets():
            spec.index_of(symbol, "entry", self._length)
        for source, following in self.entry.carry.items():
            index = spec.index_of(source, "carry", self._length)
            row, after = spec.rows[index], spec.rows[following.index]
            if type(row.opcode) not in (Parameter, Input) or index in spec.ids:
                raise ShapeError(f"carry: {spec.label(index)} is neither a parameter nor a dense input")
            if after.shape != row.shape or after.element is not row.element:
                facts = spec.facts(("source", "next"), [index, following.index])
                raise ShapeError(
                    f"carry: a replacement has its source's shape and element, got {after.shape} {after.element} "
                    f"for {row.shape} {row.element}"
                ).placed(facts)

    def __copy__(self) -> BoundEntry:
        return self

    def __deepcopy__(self, memo: Any) -> BoundEntry:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a BoundEntry holds its spec and is not pickled; pickle bound.entry and network.compile it")

    def __repr__(self) -> str:
        return f"BoundEntry({self.entry!r})"


def _mapping(carry: Any) -> Mapping[Any, Symbol]:
    if not isinstance(carry, Mapping):
        raise KinshipError(f"carry: wants a mapping from sources to symbols, got {type(carry).__name__}")
    return carry


def _listed(symbols: Any) -> tuple[Symbol, ...]:
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
