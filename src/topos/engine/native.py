"""A plan's runs in native code: one form for a run, one for a step that replaces what the entry carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from topos.engine.entry import Entry
from topos.engine.feeds import Feeds, Stack
from topos.engine.interpreter import owned
from topos.engine.sources import Sources
from topos.engine.state import State
from topos.graph import Parameters
from topos.graph.spec import Spec
from topos.tensor import Tensor


class Native:
    """The native forms of a schedule, each made on first use. What they need is a later stage, reached by its name."""

    __slots__ = ("_carried", "_entry", "_forms", "_readable", "_rows", "_sources", "_spec")

    def __init__(self, spec: Spec, rows: Sequence[int], entry: Entry, sources: Sources) -> None:
        self._spec = spec
        self._rows = rows
        self._entry = entry
        self._sources = sources
        self._readable = frozenset(symbol.index for symbol in entry.results)
        self._carried = {source.index: following.index for source, following in entry.carry.items()}
        self._forms: dict[bool, Any] = {}

    def form(self, stepping: bool) -> Any:
        """What runs natively, or the reason why the interpreter runs: both can `explain`, the first can `run`."""
        stepping = stepping and bool(self._carried)
        found = self._forms.get(stepping)
        if found is None:
            found = self._forms[stepping] = import_module("topos.backend.native.lowered").lowered(
                self._spec, self._rows, self._entry, stepping
            )
        return found

    def ready(self, stepping: bool) -> Any:
        """The form that runs, or `None`."""
        form = self.form(stepping)
        return form if hasattr(form, "run") else None

    def forward(self, form: Any, table: Parameters | State, fed: Feeds) -> dict[int, Tensor]:
        """The values that a run answers."""
        self._sources.check(table)
        given = self._sources.given(table.entries, fed.fixed, isinstance(table, State))
        values: dict[int, Tensor] = form.run(given)
        for index in self._readable - values.keys():
            values[index] = owned(self._known(form, index, given), fed.borrowed)
        return values

    def advance(self, form: Any, state: State, fed: Feeds, steps: int | None) -> dict[int, Tensor]:
        """The values that a step answers, its replacements left in the State's own buffers by the native call.

        So there is no moment at which an interrupt could find half a step.
        """
        with state.lock:
            held = state.owning(self._carried)
            fixed: Mapping[int, Any] = fed.fixed if steps is None else {**fed.fixed, **fed.stacked}
            given: dict[int, Any] = self._sources.given(held, fixed, True)
            for index in self._carried.keys() - given.keys():
                given[index] = self._sources.held(index, held)
            values: dict[int, Tensor] = form.run(given) if steps is None else form.run_steps(given, steps)
        for index in self._readable - values.keys():
            known = self._known(form, index, given)
            values[index] = owned(known, fed.borrowed) if steps is None else _repeated(known, steps)
        return values

    def _known(self, form: Any, index: int, given: Mapping[int, Any]) -> Any:
        """A result that no kernel computes: a source, or one number at every place."""
        if index in given:
            return given[index]
        return form.known[index] if index in form.known else self._sources.constant(index)


def _repeated(payload: Tensor | Stack, steps: int) -> Tensor:
    """A source's payload of every step."""
    if isinstance(payload, Stack):
        return payload.part(np.array(payload.array))
    assert payload.element is not None  # a selection is no result of several steps
    array = payload.dense(payload.element)
    return Tensor.of(np.repeat(array[np.newaxis], steps, axis=0), payload.element)
