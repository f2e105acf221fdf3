"""One form of a plan as native code, and the short way through it: a call that is like the one before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from topos.engine.binding import Binding
from topos.engine.code import NativeCode
from topos.engine.feeds import Feeds
from topos.engine.state import State
from topos.graph import Parameters
from topos.graph.spec import Spec
from topos.tensor import Tensor, services

Values = dict[int, Tensor]


class Form:
    """A run, or a step that replaces what the entry carries. `rows` are what it evaluates.

    `answered` are the results that are sources, whose values the code does not compute; `replaced` are the sources that
    a step replaces and does not read.
    """

    __slots__ = ("_idle", "_rows", "_spec", "answered", "code", "replaced")

    def __init__(
        self, spec: Spec, rows: Sequence[int], code: NativeCode, answered: Sequence[int], replaced: Sequence[int]
    ) -> None:
        self._spec = spec
        self._rows = rows
        self.code = code
        self.answered = answered
        self.replaced = replaced
        self._idle: list[Binding] = []  # those of no call that is under way

    # the short way; `payloads` keeps alive what is fed, whatever becomes of the caller's mapping meanwhile
    def run_again(self, table: Parameters | State, keys: tuple[Any, ...], payloads: tuple[Any, ...]) -> Values | None:
        """The values of a run like the one before; `None`, and nothing is done, where anything has to be looked up."""
        seen = table.seen()
        binding = self._like(seen[1], keys)
        if binding is None:
            return None
        return self._entered(binding, (seen, binding.feed(payloads)))

    def step_again(
        self, state: State, keys: tuple[Any, ...], payloads: tuple[Any, ...], steps: int | None
    ) -> Values | None:
        """The values of a step, or of `steps`, like the one before; `None`, as above, and nothing is done."""
        binding = self._like(state.moment, keys, steps is not None)
        if binding is None:
            return None
        # Before the lock is taken: an object that is fed may do anything.
        made = binding.feed(payloads, steps)
        with state.lock:
            if binding.moment is state.moment:
                return self._entered(binding, made, steps)
        self._idle.append(binding)
        return None

    def _like(self, moment: object, keys: tuple[Any, ...], repeats: bool = False) -> Binding | None:
        """A binding of this moment for feeds of this kind, for one step or for many."""
        try:
            binding = self._idle.pop()  # one operation: no other call takes the same
        except IndexError:
            return None
        if binding.moment is moment and binding.keys == keys and binding.repeats is repeats:
            return binding
        self._idle.append(binding)
        return None

    def _entered(self, binding: Binding, alive: object, steps: int | None = None) -> Values | None:
        """The values of the call that a binding is ready for; what its table points at stays `alive` for that long."""
        code, table = self.code, binding.table
        try:
            values = code.ready(table, steps)
        except Exception:  # whoever goes the long way meets it again, and tells
            return None
        code.enter(table, values, steps)
        self._idle.append(binding)
        if services.counting():
            self.count(steps or 1)
        return values

    # the long way
    def prepared(
        self, given: Mapping[int, Any], moment: object, fed: Feeds, steps: int | None, is_settled: bool = False
    ) -> tuple[Values, Callable[[], None]]:
        """What a call answers, and the call, after which it is there. Until then nothing is changed.

        `is_settled` says that nobody writes to the payloads given any more.
        """
        code = self.code
        try:
            binding = self._idle.pop()
        except IndexError:
            binding = Binding(self._spec, code)
        # Results that are sources need those payloads each time.
        binding.bind(given, fed, None if self.answered else moment, is_settled, steps is not None)
        values = code.ready(binding.table, steps)
        return values, partial(self._enter, binding, values, steps)

    def _enter(self, binding: Binding, values: Values, steps: int | None) -> None:
        self.code.enter(binding.table, values, steps)
        self._idle.append(binding)

    def count(self, steps: int) -> None:
        """Tells whoever keeps a tally what so many runs have computed."""
        if services.counting():
            opcodes = [self._spec.rows[index].opcode for index in self._rows if self._spec.rows[index].operands]
            services.count_all(Counter((services.formula_of(opcode), "FUSED") for opcode in opcodes * steps))
