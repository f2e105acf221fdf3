"""An entry over its network: what it checks, and the two ways to run it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from topos.engine.entry import Entry, listed, mapping
from topos.engine.feeds import read_feeds
from topos.engine.interpreter import execute, owned, steps_of
from topos.engine.liveness import schedule
from topos.engine.numerics import Numerics
from topos.engine.plan import Plan
from topos.engine.report import Watch
from topos.engine.run import Run, Shown
from topos.engine.sources import Sources
from topos.engine.state import State
from topos.errors import KinshipError, ShapeError
from topos.graph import Network, Parameters, Symbol
from topos.graph.spec import Spec
from topos.op import Input, Parameter


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
        return self._with(observe=(*self.entry.observe, *listed(symbols)))

    def numerics(self, numerics: Numerics) -> BoundEntry:
        """Under this posture."""
        return self._with(numerics=numerics)

    def backward(self) -> BoundEntry:
        """Retains every value, so that a run answers `backward` and `field`."""
        return self._with(backward=True)

    def diagnose(self) -> BoundEntry:
        """Watches every value, so that `run.report()` names the first bad one."""
        return self._with(diagnose=True)

    def backends(self, backends: Iterable[Any]) -> BoundEntry:
        """Asks these to compute, in this order, and no others; what all decline lands on the reference."""
        return self._with(backends=backends)

    def carry(self, replacements: Mapping[Any, Symbol]) -> BoundEntry:
        """Also declares `{source: next}`: the value that replaces a parameter or an input after a run."""
        named = {self._source(source): following for source, following in mapping(replacements).items()}
        return self._with(carry={**self.entry.carry, **named})

    def interpret(self, parameters: Parameters | State, feeds: Mapping[Any, Any] | None = None) -> Run:
        """Evaluates what the entry reads, node by node: the oracle. A State is left as it is."""
        spec, entry = self._spec, self.entry
        rows = schedule(spec.rows, [symbol.index for symbol in self._targets()])
        carried = entry.carried if isinstance(parameters, State) else ()
        fed = read_feeds(spec, self._length, feeds, copy=entry.backward, carried=carried)
        values = Sources(spec, rows).payloads(parameters, fed.fixed)
        watch = Watch(spec) if entry.diagnose else None
        execute(steps_of(spec, rows, {}), values, watch)
        readable = frozenset(symbol.index for symbol in entry.results)
        values.update({index: owned(values[index], fed.borrowed) for index in readable})
        kept = values if entry.backward else {index: values[index] for index in readable}
        return Run(Shown(spec, self._length, readable, entry.backward), kept, watch)

    def lower(self) -> Plan:
        """The plan: schedule, keep-set and liveness, derived from the declaration alone."""
        return Plan(self._spec, self._length, self.entry)

    def _targets(self) -> list[Symbol]:
        return [*self.entry.results, *self.entry.carry.values()]

    def _source(self, key: Any) -> Symbol:
        """What a symbol or a name means."""
        spec = self._spec
        if isinstance(key, str):
            if spec.by_name.get(key, self._length) >= self._length:
                raise KinshipError(f"carry: no node is named {key!r}")
            return Symbol(spec.family, spec.by_name[key])
        return Symbol(spec.family, spec.index_of(key, "carry", self._length))

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
