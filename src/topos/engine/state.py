"""What survives from run to run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topos.errors import FeedError, KinshipError
from topos.graph import Family, Network, Parameters, Table
from topos.op import Input, Parameter
from topos.tensor import Tensor


class State(Table):
    """The caller's table of every parameter and every dense input of a network, shared by all its entries.

    `plan.advance` replaces what the entry carries, all of a step at once. `of` is a snapshot: later steps never
    change it.

    >>> from topos import Tape
    >>> network, (count, after) = Tape.record(lambda tape: [count := tape.input(0.0), count + 1])
    >>> state = network.state()
    >>> before = state.of(count)
    >>> run = network.entry(count).carry({count: after}).lower().advance(state, steps=3)
    >>> before, state.of(count)
    (Tensor(0., f32), Tensor(3., f32))
    """

    __slots__ = ("_slots",)

    def __init__(self, family: Family, entries: Mapping[int, Tensor | None], slots: frozenset[int]) -> None:
        super().__init__(family, entries)
        self._slots = slots

    @classmethod
    def of_network(cls, network: Network, parameters: Parameters | None = None) -> State:
        """The initials, or the parameters given, and each dense input's recorded default."""
        spec = network.spec
        if parameters is None:
            parameters = network.parameters()
        if not isinstance(parameters, Parameters):
            raise FeedError(f"state: wants Parameters, got {type(parameters).__name__}")
        if parameters.family is not spec.family:
            raise KinshipError("state: the parameters belong to another spec")
        entries: dict[int, Tensor | None] = {}
        for index, row in enumerate(spec.rows[: len(network)]):
            kind = type(row.opcode)
            if kind is Parameter:
                entries[index] = parameters.get(index)
                if entries[index] is None:
                    raise FeedError(f"state: the parameters have no payload for {spec.label(index)}")
            elif kind is Input and index not in spec.ids:
                entries[index] = spec.payloads[index]
        return cls(spec.family, entries, frozenset(parameters.rows()) & entries.keys())

    def parameters(self) -> Parameters:
        """The parameters as they stand, as a table of their own."""
        return Parameters(self.family, {i: t for i, t in self._entries.items() if i in self._slots})

    def clone(self) -> State:
        """Another State of the same tensors, which goes its own way."""
        return self._with(self._entries)

    def replace(self, payloads: Mapping[int, Tensor]) -> None:
        """Replaces some entries, all at once: a reader sees the table before or after, never between."""
        self._entries = {**self._entries, **payloads}

    def _with(self, entries: Mapping[int, Tensor | None]) -> State:
        return State(self.family, entries, self._slots)

    def __reduce__(self) -> tuple[Any, ...]:
        return State, (self.family, self._entries, self._slots)
