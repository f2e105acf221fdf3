"""A plan that runs on XLA, with the surface of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NoReturn

from topos.emission.mesh import Layout
from topos.emission.xla.client import Devices, is_gone
from topos.emission.xla.translated import Translated
from topos.engine.entry import Entry
from topos.engine.feeds import Feeds, read_feeds
from topos.engine.liveness import schedule
from topos.engine.numerics import Numerics
from topos.engine.plan import Plan
from topos.engine.run import Run, Shown
from topos.engine.sources import Sources
from topos.engine.state import State
from topos.engine.stepping import checked_steps, stacked
from topos.errors import ExactnessError, FeedError, PostureError
from topos.graph import Parameters
from topos.tensor import Tensor


class Executable:
    """A plan on XLA. Holds no state; usable from several threads at once. Numbers are as XLA rounds them.

    What it last took out of a table stays on the devices, for another run over the same.
    """

    def __init__(self, plan: Plan, layout: Layout | None, devices: Devices) -> None:
        self.plan = plan
        self._layout, self._devices = layout, devices
        self._spec, self._length = plan.prefix
        entry = plan.entry
        _expect_plain(entry)
        readable = frozenset(symbol.index for symbol in entry.results)
        rows = schedule(self._spec.rows, [*readable, *(after.index for after in entry.carry.values())])
        self._resident: dict[int, tuple[Tensor, Any]] = {}
        self._shown = Shown(self._spec, self._length, readable, False)
        self._sources = Sources(self._spec, rows)
        self._computed = [symbol for symbol in entry.results if not self._spec.is_selection(symbol.index)]
        self._taken = [row for row in readable if self._spec.is_selection(row)]

    # running
    def forward(self, parameters: Parameters | State, feeds: Mapping[Any, Any] | None = None) -> Run:
        """Runs once over the caller's table; unfed inputs take a State's entry, or their recorded default.

        A State is left as it is. Raises `FeedError` before anything runs, `EngineError` for what XLA raises.
        """
        fed = self._read(parameters, feeds, None)
        given = self._sources.given(parameters.entries, fed.fixed, isinstance(parameters, State))
        values: dict[int, Tensor] = {}
        if self._computed:
            results, _ = self._run.run({row: self._there(self._run, row, given, fed) for row in self._run.arguments})
            values = self._run.tensors(results)
        return Run(self._shown, {**values, **self._selections(given)})

    def advance(self, state: State, feeds: Mapping[Any, Any] | None = None, steps: int | None = None) -> Run:
        """Runs and then replaces what the entry carries, all of a step at once; results show values from before.

        With `steps=n` a feed of its node's shape serves every step, one of `[n] + shape` gives one per step, and each
        result gains a leading axis n. What is carried stays on the devices from step to step, each taking the memory of
        the one before, and comes back into the State at the end. An error leaves the State as it was, an interrupt
        after a whole number of steps.
        """
        if not isinstance(state, State):
            raise FeedError(f"advance: wants a State (network.state()), got {type(state).__name__}")
        count = None if steps is None else checked_steps(self._spec, self.plan.entry, steps)
        fed = self._read(state, feeds, count)
        given = self._sources.given(state.entries, fed.at(0), True)  # raises before anything is compiled
        if not self._computed and not self.plan.entry.carry:
            return Run(self._shown, self._selections(given))
        self.prepare()
        with state.lock:
            series = self._stepped(state, fed, count or 1)
        if count is None:
            return Run(self._shown, series[0])
        return Run(self._shown, {row: stacked([values[row] for values in series]) for row in series[0]})

    # reading
    @property
    def text(self) -> str:
        """The module that it runs: of an entry that carries, that of a step."""
        return self._step.text

    def prepare(self) -> Executable:
        """Compiles now rather than at the first run; answers itself. Of an entry that carries, its step."""
        _ = self._step.program
        return self

    def explain(self) -> str:
        """Where it runs, and whether it was compiled here or loaded from the cache."""
        return f"XLA on {self._devices}: {self._step.program.origin}, {len(self.text.splitlines())} lines of StableHLO"

    # inner
    @cached_property
    def _run(self) -> Translated:
        return Translated(self._spec, self._length, Entry(self._computed), self._layout, self._devices)

    @cached_property
    def _step(self) -> Translated:
        carry = self.plan.entry.carry
        if not carry:
            return self._run
        return Translated(self._spec, self._length, Entry(self._computed, carry=carry), self._layout, self._devices)

    def _read(self, table: Parameters | State, feeds: Mapping[Any, Any] | None, steps: int | None) -> Feeds:
        self._sources.check(table)
        carried = self.plan.entry.carried if isinstance(table, State) else ()
        return read_feeds(self._spec, self._length, feeds, steps=steps, copy=False, carried=carried)

    def _stepped(self, state: State, fed: Feeds, count: int) -> list[dict[int, Tensor]]:
        """The results of every step; the State holds what the last one left."""
        step, carried = self._step, self.plan.entry.carried
        given = self._sources.given(state.entries, fed.at(0), True)
        held = {row: step.put(row, given[row]) for row in step.arguments if row in carried}
        same = [row for row in step.arguments if row not in carried and row not in fed.stacked]
        alike = {row: self._there(step, row, given, fed) for row in same}
        answers: list[list[Any]] = []
        try:
            for number in range(count):
                payloads = fed.at(number)
                own = {row: step.put(row, payloads[row]) for row in step.arguments if row in fed.stacked}
                results, held = step.run({**alike, **own, **held})
                answers.append(results)
        except KeyboardInterrupt:
            if answers and not any(map(is_gone, held.values())):
                state.replace(step.gathered(held))
            raise
        tensors = [step.tensors(results) for results in answers]
        if held:
            state.replace(step.gathered(held))
        return [{**one, **self._selections(given)} for one in tensors]

    def _there(self, program: Translated, row: int, given: Mapping[int, Tensor], fed: Feeds) -> Any:
        """A source on the devices, for a program that does not replace it; out of a table it is put there once."""
        if row in fed.fixed:
            return program.put(row, given[row])
        held, array = self._resident.get(row, (None, None))
        if held is not given[row]:
            array = program.put(row, given[row])
            self._resident[row] = given[row], array
        return array

    def _selections(self, given: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """The results that are selections, which no program answers."""
        return {row: given[row] if row in given else self._sources.constant(row) for row in self._taken}

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Executable is derived from its plan and is neither copied nor pickled")

    def __repr__(self) -> str:
        return f"Executable({self.plan!r}, {self._devices})"


def _expect_plain(entry: Entry) -> None:
    """Refuses what XLA cannot promise."""
    if entry.backward:
        raise PostureError("xla: a plan with the backward posture retains every value; lower without backward()")
    if entry.diagnose:
        raise PostureError("xla: a diagnosed plan watches every value; lower without diagnose()")
    if entry.numerics is Numerics.EXACT:
        raise ExactnessError("xla: the entry asks for Numerics.EXACT, and XLA rounds in its own order")
