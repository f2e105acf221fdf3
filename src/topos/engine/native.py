"""A plan's runs in native code: one form for a run, one for a step that replaces what the entry carries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from topos.element import Element
from topos.element.machine import check_arithmetic
from topos.engine.entry import Entry
from topos.engine.feeds import Feeds, Stack
from topos.engine.interpreter import owned
from topos.engine.liveness import schedule
from topos.engine.sources import Sources
from topos.engine.state import State
from topos.errors import PostureError
from topos.graph import Parameters
from topos.graph.spec import Spec
from topos.op import Movement
from topos.tensor import Tensor, services
from topos.tensor.evaluate import kernel_of


class Form(NamedTuple):
    """What runs natively, and what it leaves to do.

    `code` runs (`run`, `run_steps`), serves in place of the interpreter's steps (`serve`), or can only `explain` why it
    does neither. `sources` are the results that a run does not compute; `unread` are the sources that a step replaces
    and does not read.
    """

    code: Any
    runs: bool
    sources: tuple[int, ...]
    unread: tuple[int, ...]


class Native:
    """The native forms of a schedule, each made on first use. What they need is a later stage, reached by its name."""

    __slots__ = ("_carried", "_entry", "_forms", "_readable", "_rows", "_sources", "_spec")

    def __init__(self, spec: Spec, rows: Sequence[int], entry: Entry, sources: Sources) -> None:
        self._spec = spec
        self._rows = rows
        self._entry = entry
        self._sources = sources
        self._readable = [symbol.index for symbol in entry.results]
        self._carried = tuple(source.index for source in entry.carry)
        self._forms: dict[bool, Form] = {}

    def form(self, stepping: bool) -> Form:
        """The form of a run, or of a step that replaces what is carried; compiled when it is first asked for."""
        stepping = stepping and bool(self._carried)
        found = self._forms.get(stepping)
        if found is None:
            found = self._forms[stepping] = self._made(stepping)
        return found

    def failed(self, error: Exception) -> None:
        """Gives the native forms up for what one of them raised, unless it was for want of memory."""
        if not isinstance(error, MemoryError):
            code = import_module("topos.backend.lowering").given_up(error)
            self._forms = {stepping: Form(code, False, (), ()) for stepping in (False, True)}

    def _count(self, stepping: bool, steps: int = 1) -> None:
        """Tells whoever keeps a tally what a run has computed."""
        if services.counting():
            rows = self._rows if stepping else schedule(self._spec.rows, self._readable)
            opcodes = [self._spec.rows[index].opcode for index in rows if self._spec.rows[index].operands]
            services.count_all(Counter((services.formula_of(opcode), "FUSED") for opcode in opcodes * steps))

    def _made(self, stepping: bool) -> Form:
        check_arithmetic()  # constants are written out as this thread reads them
        code = import_module("topos.backend.lowering").lowered(self._spec, self._rows, self._entry, stepping)
        if not hasattr(code, "run"):
            return Form(code, False, (), ())
        scheduled = set(self._rows)
        sources = tuple(index for index in self._readable if index not in code.computed)
        unread = tuple(index for index in self._carried if index not in scheduled) if stepping else ()
        return Form(code, True, sources, unread)

    def forward(self, form: Form, table: Parameters | State, fed: Feeds) -> dict[int, Tensor]:
        """The values that a run answers."""
        self._sources.check(table)
        given = self._sources.given(table.entries, fed.fixed, isinstance(table, State))
        values: dict[int, Tensor] = form.code.run(given, is_settled=True)
        self._count(self._entry.backward)
        if self._entry.backward:
            return self._retained(values, given)
        for index in form.sources:
            values[index] = owned(self._source(index, given), fed.borrowed)
        return values

    def _retained(self, values: dict[int, Tensor], given: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Every value of the schedule; a movement is a view of its operand's."""
        for index in self._rows:
            row = self._spec.rows[index]
            if isinstance(row.opcode, Movement) and index not in values:
                element = self._spec.element_of(index)
                moved = kernel_of(row.opcode)(row.opcode, element, [values[row.operands[0]]])
                values[index] = Tensor.of(moved, element, row.shape)
            elif index not in values:
                values[index] = self._source(index, given)
        return values

    def advance(self, form: Form, state: State, fed: Feeds, steps: int | None) -> dict[int, Tensor]:
        """The values that a step answers, its replacements left in the State's own buffers by the native call.

        So there is no moment at which an interrupt could find half a step.
        """
        self._sources.check(state)
        fixed: Mapping[int, Any] = {**fed.fixed, **fed.stacked} if fed.stacked else fed.fixed
        with state.lock:
            held = state.owning(self._carried)
            given = self._given(form, held, fixed, True)
            values: dict[int, Tensor] = form.code.run(given) if steps is None else form.code.run_steps(given, steps)
            for index in form.sources:  # within the lock: a source's buffer may be the State's own
                payload, element = self._source(index, given), self._spec.rows[index].element
                values[index] = owned(payload, fed.borrowed) if steps is None else _repeated(payload, element, steps)
        self._count(True, steps or 1)
        return values

    def profile(self, table: Parameters | State, fed: Feeds) -> Any:
        """Where the time of a run goes, or of a step on a copy of the State."""
        stepping = isinstance(table, State)
        form = self.form(stepping)
        if not form.runs:
            raise PostureError(f"profile: this plan has no native code to time; {form.code.explain()}")
        self._sources.check(table)
        held = table.clone().owning(self._carried) if isinstance(table, State) else table.entries
        given = self._given(form, held, fed.fixed, stepping)
        return import_module("topos.backend.native.profile").profiled(form.code, given)

    def _given(
        self, form: Form, held: Mapping[int, Tensor | None], fed: Mapping[int, Any], holds_inputs: bool
    ) -> dict[int, Any]:
        """The payloads of a step's sources, those that it only replaces among them."""
        given = self._sources.given(held, fed, holds_inputs)
        for index in form.unread:
            given[index] = self._sources.held(index, held, self._spec.rows[index])
        return given

    def _source(self, index: int, given: Mapping[int, Any]) -> Any:
        """What stood in a source during a run."""
        return given[index] if index in given else self._sources.constant(index)


def _repeated(payload: Tensor | Stack, element: Element | None, steps: int) -> Tensor:
    """A source's payload of every step."""
    assert element is not None  # a selection is no result of several steps
    if isinstance(payload, Stack):
        return Tensor.of(np.array(payload.array), element)
    return Tensor.of(np.repeat(payload.dense(element)[np.newaxis], steps, axis=0), element)
