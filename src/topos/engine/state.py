"""What survives from run to run."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from topos.errors import FeedError, KinshipError
from topos.graph import Family, Network, Parameters, Table
from topos.op import Input, Parameter
from topos.tensor import Tensor
from topos.tensor.memory import aligned


class State(Table):
    """The caller's table of every parameter and every dense input of a network, shared by all its entries.

    `plan.advance` replaces what the entry carries, all of a step at once. `of` is a snapshot: later steps never
    change it.

    A buffer that nobody has seen is the State's own, and a native step writes the next value into it; one that was
    handed out is left as it is, and the next step takes a copy. `lock` is held by whoever steps: other threads read
    the table before a step or after it.

    >>> from topos import Tape
    >>> network, (count, after) = Tape.record(lambda tape: [count := tape.input(0.0), count + 1])
    >>> state = network.state()
    >>> before = state.of(count)
    >>> run = network.entry(count).carry({count: after}).lower().advance(state, steps=3)
    >>> before, state.of(count)
    (Tensor(0., f32), Tensor(3., f32))
    """

    __slots__ = ("__weakref__", "_own", "_slots", "lock")

    def __init__(self, family: Family, entries: Mapping[int, Tensor | None], slots: frozenset[int]) -> None:
        super().__init__(family, entries)
        self._slots = slots
        self._own: set[int] = set()
        self.lock = threading.RLock()
        with _registering:
            _states.add(self)

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

    @property
    def entries(self) -> Mapping[int, Tensor | None]:
        """What it holds by row, at one moment: no later step changes this mapping or its tensors."""
        return self.seen()[0]

    def seen(self) -> tuple[Mapping[int, Tensor | None], object]:
        """What it holds, as `entries`, and the moment at which it does."""
        with self.lock:
            if self._own:
                self.moment = object()
                self._own.clear()
            return self._entries, self.moment

    def get(self, index: int) -> Tensor | None:
        """The tensor at a row, or `None`."""
        with self.lock:
            if index in self._own:
                self.moment = object()
                self._own.discard(index)
            return self._entries.get(index)

    def parameters(self) -> Parameters:
        """The parameters as they stand, as a table of their own."""
        return Parameters(self.family, {i: t for i, t in self.entries.items() if i in self._slots})

    def clone(self) -> State:
        """Another State of the same tensors, which goes its own way."""
        return self._with(self.entries)

    def replace(self, payloads: Mapping[int, Tensor]) -> None:
        """Replaces some entries, all at once: a reader sees the table before or after, never between."""
        with self.lock:
            self.moment = object()
            self._own.difference_update(payloads)
            self._entries = {**self._entries, **payloads}

    def owning(self, rows: Iterable[int]) -> Mapping[int, Tensor | None]:
        """What it holds, each of `rows` in a buffer that a step may write to; for whoever holds `lock`."""
        if not self._own.issuperset(rows):
            seen = [row for row in rows if row not in self._own]
            copies = {row: _copied(tensor) for row in seen if (tensor := self._entries.get(row)) is not None}
            self.moment = object()
            self._entries = {**self._entries, **copies}
            self._own.update(copies)
        return self._entries

    def _with(self, entries: Mapping[int, Tensor | None]) -> State:
        return State(self.family, entries, self._slots)

    def __reduce__(self) -> tuple[Any, ...]:
        return State, (self.family, self.entries, self._slots)


def _copied(tensor: Tensor) -> Tensor:
    assert tensor.element is not None  # a State holds no selection
    array = aligned(tensor.shape, tensor.element.dtype)
    np.copyto(array, tensor.dense(tensor.element))
    return Tensor.of(array, tensor.element, tensor.shape)


_states: weakref.WeakSet[State] = weakref.WeakSet()
_registering = threading.RLock()
_held_at_fork: list[State] = []


def _before_fork() -> None:
    """A child must not inherit a state in the middle of another thread's step."""
    _registering.acquire()
    _held_at_fork[:] = _states
    for state in _held_at_fork:
        state.lock.acquire()


def _after_fork() -> None:
    for state in _held_at_fork:
        state.lock.release()
    _held_at_fork.clear()
    _registering.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
