"""The sealed spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from topos.errors import ConsumedError, KinshipError
from topos.graph.describe import counted, described_spec
from topos.graph.node import Node, Nodes
from topos.graph.place import here, line
from topos.graph.spec import Spec
from topos.graph.symbol import Symbol
from topos.graph.table import Parameters
from topos.loading import loaded
from topos.op import Parameter
from topos.tensor import Tensor

if TYPE_CHECKING:
    from topos.engine import BoundEntry, Entry, Plan, Run, State
    from topos.graph.tape import Tape


class Network:
    """The sealed spec: structure, shapes, initials and input defaults, and no live weights.

    Safe to share between threads; neither copied nor pickled. `into_tape` consumes it.

    >>> from topos import Tape
    >>> network, total = Tape.record(lambda tape: tape.input([1, 2], name="x").sum())
    >>> print(network.describe(names=True))
       0  Input                             [2]          x
       1  Sum            0                  []
    network: 2 nodes, 0 parameters, 1 input
    >>> network.entry(total).interpret(network.parameters(), {"x": [3, 4]}).of(total)
    Tensor(7., f32)
    """

    __slots__ = ("_consumed", "_length", "_spec")

    def __init__(self, spec: Spec) -> None:
        self._spec: Spec | None = spec
        self._length = spec.sealed = len(spec.rows)
        self._consumed = ""

    def nodes(self) -> Nodes:
        """Every node in recording order."""
        return Nodes(self.spec, self._length)

    def node(self, symbol: Symbol) -> Node:
        """The node that a symbol names."""
        return self.nodes()[self.spec.index_of(symbol, "node", self._length)]

    def symbol(self, name: str) -> Symbol:
        """The symbol of a named node. Raises `KinshipError` for an unknown name."""
        spec = self.spec
        index = spec.by_name.get(name) if isinstance(name, str) else None
        if index is None:
            known = ", ".join(sorted(spec.by_name)) or "none"
            raise KinshipError(f"symbol: no node is named {name!r}; named are: {known}")
        return Symbol(spec.family, index)

    def payload(self, symbol: Symbol) -> Tensor:
        """What a source was recorded with: a leaf's constant, a parameter's initial, an input's default."""
        return self.spec.payload(self.spec.index_of(symbol, "payload", self._length))

    def parameters(self) -> Parameters:
        """The table of initials, a slot per parameter in recording order."""
        spec = self.spec
        slots = (index for index in range(self._length) if type(spec.rows[index].opcode) is Parameter)
        return Parameters(spec.family, {index: spec.payloads[index] for index in slots})

    def describe(self, *, names: bool = False, lines: bool = False) -> str:
        """One line per node, with names and source lines on request; the last line counts them."""
        return described_spec(self.spec, self._length, "network", names, lines)

    @property
    def fingerprint(self) -> str:
        """A digest of the structure, the shapes and every recorded payload; not of names and places."""
        import hashlib  # 7 ms that only a fingerprint needs

        spec = self.spec
        digest = hashlib.sha256()
        for index, row in enumerate(spec.rows[: self._length]):
            digest.update(f"{row.opcode!r} {row.operands} {row.shape} {row.element} {spec.ids.get(index)}\n".encode())
            payload = spec.payloads.get(index)
            if payload is not None:
                digest.update(_pattern(payload))
        return digest.hexdigest()

    def into_tape(self) -> Tape:
        """Reopens the spec and consumes the network; symbols keep their nodes, old plans and runs stay valid."""
        from topos.graph.tape import Tape

        spec = self.spec
        self._spec, self._consumed = None, line(here())
        return Tape.over(spec)

    def __len__(self) -> int:
        self.spec  # noqa: B018 - raises where consumed
        return self._length

    # what later stages make of it, which this one may not import: only the methods' names are here
    def entry(self, roots: Any) -> BoundEntry:
        """What to read from a run: the roots (a symbol, or any nesting), to which the entry's methods add."""
        bound: BoundEntry = loaded("topos.engine.bound.BoundEntry").of(self, roots)
        return bound

    def compile(self, entry: Entry) -> Plan:
        """The plan of a detached entry over this spec."""
        plan: Plan = loaded("topos.engine.bound.BoundEntry").bind(self, entry).lower()
        return plan

    def state(self, parameters: Parameters | None = None) -> State:
        """A table of every parameter (the initials, or copies of those given) and every dense input (its default)."""
        state: State = loaded("topos.engine.state.State").of_network(self, parameters)
        return state

    def forward(self, parameters: Parameters | State, feeds: Mapping[Any, Any] | None = None) -> Run:
        """Evaluates the whole spec, exact; every node is readable and the run answers `backward`."""
        run: Run = loaded("topos.engine.interpreter.whole")(self, parameters, feeds)
        return run

    @property
    def spec(self) -> Spec:
        """The rows. Raises `ConsumedError` that names the line that consumed the network."""
        if self._spec is None:
            raise ConsumedError(f"network: consumed{' at ' + self._consumed if self._consumed else ''} by into_tape")
        return self._spec

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Network is neither copied nor pickled; topos.save(path, network) writes it to a file")

    def __repr__(self) -> str:
        return (
            "Network(consumed)"
            if self._spec is None
            else f"Network({counted(self._length, 'node')}, {self._spec.element})"
        )


def _pattern(payload: Tensor) -> bytes:
    """A payload's bits, once where one number fills every place, however it is stored."""
    if payload.ids is not None:
        return payload.ids.tobytes()
    array = payload.numpy()
    first = array[(slice(0, 1),) * array.ndim].tobytes()
    if payload.as_constant() is None:
        whole = array.tobytes()
        return first if whole[-len(first) :] == first and whole == first * array.size else whole
    return first
