"""The derived schedule of an entry: which rows, in which order, kept or freed when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from topos.element.machine import check_arithmetic
from topos.engine import liveness
from topos.engine.code import ServingCode
from topos.engine.entry import Entry
from topos.engine.feeds import Feeds, input_index, read_feeds
from topos.engine.interpreter import execute, owned, steps_of
from topos.engine.native import Native
from topos.engine.pattern.match import Pattern
from topos.engine.reading import Reading
from topos.engine.report import Watch
from topos.engine.run import Run, Shown
from topos.engine.sources import Sources
from topos.engine.state import State
from topos.engine.stepping import checked_steps, stacked
from topos.errors import FeedError, UnobservedError
from topos.graph import Node, Parameters, Symbol, Table
from topos.graph.node import Nodes
from topos.graph.spec import Spec
from topos.loading import loaded
from topos.tensor import Tensor


class Plan:
    """What an entry's declaration leaves to be done. Holds no state; usable from several threads at once.

    >>> from topos import Tape
    >>> network, (weight, half) = Tape.record(lambda tape: [weight := tape.parameter(8.0), weight / 2])
    >>> plan = network.entry(weight).carry({weight: half}).lower()
    >>> print(plan.describe())
       0  Parameter                         []           kept
       1  Leaf                              []           freed after 2
       2  Div            0, 1               []           carries 0
    plan: forward; 3 of 3 nodes evaluated, 1 readable
    live volume: peak 3 elements at node 2, retain-all 3
    >>> state = network.state()
    >>> plan.advance(state, steps=3).of(weight), state.of(weight)
    (Tensor([8., 4., 2.], f32), Tensor(1., f32))
    """

    __slots__ = (
        "_carried",
        "_kept",
        "_length",
        "_native",
        "_readable",
        "_reading",
        "_rows",
        "_shown",
        "_sources",
        "_spec",
        "_steps",
        "entry",
    )

    def __init__(self, spec: Spec, length: int, entry: Entry) -> None:
        self._spec = spec
        self._length = length
        self.entry = entry
        self._carried = entry.carried
        self._readable = frozenset(symbol.index for symbol in entry.results)
        kept = self._kept = self._readable.union(after.index for after in entry.carry.values())
        self._shown = Shown(spec, length, self._readable, entry.backward)
        self._rows = liveness.schedule(spec.rows, sorted(kept))
        self._sources = Sources(spec, self._rows)
        self._native = Native(spec, self._rows, entry, self._sources)
        self._reading = Reading(spec, length, self._rows, entry)
        last = {} if entry.backward else liveness.last_uses(spec.rows, self._rows)
        self._steps = steps_of(spec, self._rows, {i: after for i, after in last.items() if i not in kept})

    # running
    def forward(self, parameters: Parameters | State, feeds: Mapping[Any, Any] | None = None) -> Run:
        """Runs once over the caller's table; unfed inputs take a State's entry, or their recorded default.

        A State is left as it is. Raises `FeedError` before anything runs.
        """
        form, feeds = self._native.run, {} if feeds is None else feeds
        if form is not None and isinstance(parameters, Table) and type(feeds) is dict:
            values = form.run_again(parameters, tuple(feeds), tuple(feeds.values()))
            if values is not None:
                return Run(self._shown, values)
        return self._answer(*self._evaluated(parameters, self._read(parameters, feeds)))

    def advance(self, state: State, feeds: Mapping[Any, Any] | None = None, steps: int | None = None) -> Run:
        """Runs and then replaces what the entry carries, all of a step at once; results show values from before.

        With `steps=n` a feed of its node's shape serves every step, one of `[n] + shape` gives one per step, and each
        result gains a leading axis n. An error before the first step leaves the state as it was, an interrupt after a
        whole number of steps.
        """
        if not isinstance(state, State):
            raise FeedError(f"advance: wants a State (network.state()), got {type(state).__name__}")
        form, feeds = self._native.step, {} if feeds is None else feeds
        if form is not None and type(feeds) is dict and (steps is None or (type(steps) is int and steps > 0)):
            values = form.step_again(state, tuple(feeds), tuple(feeds.values()), steps)
            if values is not None:
                return Run(self._shown, values)
        return self._advance(state, feeds, None if steps is None else checked_steps(self._spec, self.entry, steps))

    def function(self, inputs: Sequence[Symbol | str], outputs: Sequence[Symbol]) -> Callable[..., tuple[Tensor, ...]]:
        """A positional callable `f(parameters, *arrays)`: one array per input, a tuple of one tensor per output."""
        spec, length = self._spec, self._length
        for what, listed in (("inputs", inputs), ("outputs", outputs)):
            if isinstance(listed, str | np.ndarray) or not isinstance(listed, Iterable):
                raise FeedError(f"function: wants a sequence of {what}, got {type(listed).__name__}")
        outputs = tuple(outputs)
        keys = tuple([Symbol(spec.family, input_index(spec, key, length)) for key in inputs])
        if len(set(keys)) != len(keys):
            raise FeedError("function: an input is named twice")
        for output in outputs:
            if output not in self.entry.results:
                raise UnobservedError(f"function: {spec.label(spec.index_of(output, 'function', length))} is no result")

        rows, native = [output.index for output in outputs], self._native

        def call(parameters: Parameters | State, *arrays: Any) -> tuple[Tensor, ...]:
            if len(arrays) != len(keys):
                raise FeedError(f"function: wants {len(keys)} arrays after the parameters, got {len(arrays)}")
            values, form = None, native.run
            if form is not None and isinstance(parameters, Table):
                values = form.run_again(parameters, keys, arrays)
            if values is None:
                values, _ = self._evaluated(parameters, self._read(parameters, dict(zip(keys, arrays, strict=True))))
            return tuple(map(values.__getitem__, rows))

        return call

    # reading
    @property
    def prefix(self) -> tuple[Spec, int]:
        """The spec and how many of its rows the plan covers: for later stages."""
        return self._spec, self._length

    def nodes(self) -> list[Node]:
        """The scheduled nodes, in order."""
        nodes = Nodes(self._spec, self._length)
        return [nodes[index] for index in self._rows]

    @property
    def results(self) -> list[Symbol]:
        """What a run answers: roots, then what is observed, first occurrence kept."""
        return list(self.entry.results)

    @property
    def can_backward(self) -> bool:
        """Whether its runs retain what a backward sweep reads."""
        return self.entry.backward

    def patterns(self, formulas: str | Iterable[str] | None = None) -> list[Pattern]:
        """The compositions that the plan computes as a whole, in order of their roots.

        Of `formulas`, one or several of `Formula`, those that somebody would take who computes them in any element; by
        default what the backends of the entry do. A plan with the backward posture takes none. Raises `SettingError`
        for a name that is no formula.
        """
        reading = self._reading
        if formulas is None:
            return reading.patterns(reading.election)
        return reading.patterns(reading.elected_by([formulas] if isinstance(formulas, str) else formulas))

    def live_series(self) -> list[tuple[Symbol, int]]:
        """Each scheduled node and the elements alive when it has just been evaluated, under release."""
        return [(Symbol(self._spec.family, index), volume) for index, volume in self._reading.live_series()]

    def describe(self, *, names: bool = False, lines: bool = False) -> str:
        """One line per scheduled node with its fate, then what is evaluated and how much lives at once."""
        return self._reading.describe(names, lines)

    def prepare(self) -> Plan:
        """Compiles the plan now rather than at its first run; answers itself. Of an entry that carries, its step."""
        self._native.code(stepping=True)
        return self

    def explain(self) -> str:
        """Who computes what, and the native groups: which nodes share a kernel; or why the plan is interpreted.

        A line per group: the shape of its loop and the axis that it sums along; its nodes; what they read from memory
        and store there; of which compositions it computes nodes; why its first node did not join an earlier group; its
        kernels, each with the number of tiles that threads share. Of an entry that carries, the groups of a step.
        """
        code = self._native.code(stepping=True)
        return str(code.explain([(match.kind, match.nodes) for match in self._reading.election.matches]))

    def llvm(self) -> str:
        """The LLVM text of the plan's kernels and of the function that calls them."""
        return str(self._native.code(stepping=True).llvm())

    def emit_stablehlo(
        self,
        *,
        raises: bool | Iterable[str] = True,
        locations: bool = False,
        mesh: Any = None,
        shardings: Any = None,
        shardy: bool = True,
    ) -> str:
        """The plan as the text of a StableHLO module, whose function `main` computes one run of it.

        Arguments are the scheduled sources that a caller provides, parameters first, then inputs, each in recording
        order; a selection's are its ids. Results stand as declared, and after them what replaces each carried source.
        Node 5 is `%v5`. Convolutions, pools and norms over a batch are one operation each, unless `raises` is off or
        names the formulas for which they are. `locations` adds the user's file and line to each operation.
        `mesh={"data": 4}` names axes of devices, `shardings` which of them cut which axis of a source,
        `{weight: (None, "data")}`: in Shardy's words, or without `shardy` in older ones. Raises `EmissionError` that
        names the node for what cannot be written.
        """
        asked = loaded("topos.emission.attributes.laid_out")(self._spec, self._length, mesh, shardings, shardy)
        emitted = loaded("topos.emission.module.emitted")
        return str(emitted(self._spec, self._length, self._rows, self.entry, raises, locations, asked))

    def profile(self, parameters: Parameters | State, feeds: Mapping[Any, Any] | None = None) -> Any:
        """Where the time of a native run goes, group by group; against a State, that of a step on a copy of it.

        Prints as a table; `groups` has a row per group, `elapsed_s` is a whole run's time. Raises `PostureError` where
        the plan is interpreted.
        """
        return self._native.profile(parameters, self._read(parameters, feeds))

    # inner
    def _read(self, table: Parameters | State, feeds: Mapping[Any, Any] | None, steps: int | None = None) -> Feeds:
        carried = self._carried if isinstance(table, State) else ()
        return read_feeds(self._spec, self._length, feeds, steps=steps, copy=self.entry.backward, carried=carried)

    def _evaluated(self, table: Parameters | State, fed: Feeds) -> tuple[dict[int, Tensor], Watch | None]:
        """What a run answers, by the native form where there is one, and who watched it."""
        form = self._native.form(stepping=False)
        values = None if form is None else self._native.forward(form, table, fed)
        return (values, None) if values is not None else self._step(table, fed, None, stepping=False)

    def _advance(self, state: State, feeds: Mapping[Any, Any] | None, count: int | None) -> Run:
        """Steps, whoever computes them."""
        fed = self._read(state, feeds, count)
        form = None if self.entry.backward else self._native.form(stepping=True)
        answered = None if form is None else self._native.advance(form, state, fed, count)
        if answered is not None:
            return Run(self._shown, answered)
        if count is not None:
            return self._advance_many(state, fed, count)
        values, watch = self._evaluated(state, fed) if self.entry.backward else self._step(state, fed)
        state.replace(self._following(values))
        return self._answer(values, watch)

    def _step(
        self, table: Parameters | State, fed: Feeds, step: int | None = None, stepping: bool = True
    ) -> tuple[dict[int, Tensor], Watch | None]:
        """One evaluation, row by row or by whoever serves rows: what is left of its values, and who watched them."""
        values = self._sources.payloads(table, fed.at(step or 0))
        watch = Watch(self._spec, step) if self.entry.diagnose else None
        code = self._native.code(stepping)
        if isinstance(code, ServingCode):
            check_arithmetic()
            code.serve(values)
        else:
            execute(self._steps, values, watch)
        for index in self._kept:
            values[index] = owned(values[index], fed.borrowed)
        return values, watch

    def _following(self, values: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """The replacement of each carried row."""
        return {source.index: values[after.index] for source, after in self.entry.carry.items()}

    def _answer(self, values: Mapping[int, Tensor], watch: Watch | None) -> Run:
        shown = values if self.entry.backward else {index: values[index] for index in self._readable}
        return Run(self._shown, shown, watch)

    def _advance_many(self, state: State, fed: Feeds, steps: int) -> Run:
        series: dict[int, list[Tensor]] = {index: [] for index in self._readable}
        watched: Watch | None = None
        for step in range(steps):
            values, watch = self._step(state, fed, step)
            state.replace(self._following(values))
            for index, tensors in series.items():
                tensors.append(values[index])
            if watched is None or watched.report() is None:  # the first step that met a bad value, or the last
                watched = watch
        return self._answer({index: stacked(tensors) for index, tensors in series.items()}, watched)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Plan is neither copied nor pickled; topos.save(path, network, entries=...) writes what it is made of"
        )

    def __repr__(self) -> str:
        return f"Plan({len(self._rows)} of {self._length} nodes, {len(self._readable)} readable)"
