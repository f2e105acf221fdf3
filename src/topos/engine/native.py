"""A plan's runs in native code: one form for a run, one for a step that replaces what the entry carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from topos.element import Element
from topos.element.machine import check_arithmetic
from topos.engine.code import Code, NativeCode
from topos.engine.entry import Entry
from topos.engine.feeds import Feeds, Stack
from topos.engine.form import Form, Values
from topos.engine.interpreter import owned
from topos.engine.liveness import schedule
from topos.engine.sources import Sources
from topos.engine.state import State
from topos.errors import PostureError, ToposError
from topos.graph import Parameters
from topos.graph.spec import Spec
from topos.loading import loaded
from topos.op import Movement
from topos.tensor import Tensor
from topos.tensor.evaluate import kernel_of


class Native:
    """What a schedule becomes, made on first use. What makes it is a later stage, reached by its name.

    `run` and `step` are its native forms, where there are any and they retain nothing, once they have been used.
    """

    __slots__ = ("_carried", "_codes", "_entry", "_forms", "_readable", "_rows", "_sources", "_spec", "run", "step")

    def __init__(self, spec: Spec, rows: Sequence[int], entry: Entry, sources: Sources) -> None:
        self._spec = spec
        self._rows = rows
        self._entry = entry
        self._sources = sources
        self._readable = [symbol.index for symbol in entry.results]
        self._carried = tuple(source.index for source in entry.carry)
        self._codes: dict[bool, Code] = {}
        self._forms: dict[bool, Form] = {}
        self.run: Form | None = None
        self.step: Form | None = None

    # what is made
    def code(self, stepping: bool) -> Code:
        """What computes a run, or a step that replaces what is carried; compiled when it is first asked for."""
        stepping = stepping and bool(self._carried)
        found = self._codes.get(stepping)
        if found is None:
            check_arithmetic()  # constants are written out as this thread reads them
            lowered = loaded("topos.backend.lowering.lowered")
            found = self._codes[stepping] = lowered(self._spec, self._rows, self._entry, stepping)
        return found

    def form(self, stepping: bool) -> Form | None:
        """The native form of a run or a step, if it has one."""
        code, replacing = self.code(stepping), stepping and bool(self._carried)
        if not isinstance(code, NativeCode):
            return None
        form = self._forms.get(replacing) or self._forms.setdefault(replacing, self._made(code, replacing))
        if not self._entry.backward:
            setattr(self, "step" if stepping else "run", form)
        return form

    def _made(self, code: NativeCode, replacing: bool) -> Form:
        answered = [index for index in self._readable if index not in code.computed]
        replaced = set(self._carried).difference(self._rows) if replacing else ()
        whole = replacing or self._entry.backward
        rows = self._rows if whole else schedule(self._spec.rows, self._readable)
        return Form(self._spec, rows, code, answered, tuple(replaced))

    def _failed(self, error: Exception) -> None:
        """Gives the native forms up for what one of them raised, unless it was for want of memory."""
        if not isinstance(error, MemoryError):
            code = loaded("topos.backend.lowering.given_up")(error)
            self._codes, self._forms = {stepping: code for stepping in (False, True)}, {}
            self.run = self.step = None

    # running
    def forward(self, form: Form, table: Parameters | State, fed: Feeds) -> Values | None:
        """The values that a run answers; `None` where it raised, and the interpreter has to run in its place."""
        try:
            return self._forward(form, table, fed)
        except ToposError:
            raise
        except Exception as error:  # the interpreter has the same bits
            self._failed(error)
            return None

    def _forward(self, form: Form, table: Parameters | State, fed: Feeds) -> Values:
        self._sources.check(table)
        held, moment = table.seen()
        given = self._sources.given(held, fed.fixed, isinstance(table, State))
        values, enter = form.prepared(given, moment, fed, None, is_settled=True)
        enter()
        form.count(1)
        if self._entry.backward:
            return self._retained({row: values[row] for row in form.code.computed}, given)
        for index in form.answered:
            values[index] = owned(self._source(index, given), fed.borrowed)
        return values

    def _retained(self, values: Values, given: Mapping[int, Tensor]) -> Values:
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

    def advance(self, form: Form, state: State, fed: Feeds, steps: int | None) -> Values | None:
        """The values that a step answers, its replacements left in the State's own buffers by the native call.

        So there is no moment at which an interrupt could find half a step. `None` where it raised before the call, and
        the interpreter has to step in its place; what raises afterwards, when the State has taken its steps, is raised.
        """
        begun = False
        try:
            self._sources.check(state)
            with state.lock:
                given = self._given(form, state.owning(self._carried), fed, True)
                values, enter = form.prepared(given, state.moment, fed, steps)
                begun = True
                enter()
                for index in form.answered:  # within the lock: a source's buffer may be the State's own
                    values[index] = self._answered(index, given, fed, steps)
        except ToposError:
            raise
        except Exception as error:
            if begun:
                raise
            self._failed(error)
            return None
        form.count(steps or 1)
        return values

    def _answered(self, index: int, given: Mapping[int, Any], fed: Feeds, steps: int | None) -> Tensor:
        """What a step answers for a source, in a buffer of its own."""
        payload = self._source(index, given)
        return (
            owned(payload, fed.borrowed) if steps is None else _repeated(payload, self._spec.rows[index].element, steps)
        )

    def profile(self, table: Parameters | State, fed: Feeds) -> Any:
        """Where the time of a run goes, or of a step on a copy of the State."""
        stepping = isinstance(table, State)
        form = self.form(stepping)
        if form is None:
            raise PostureError(f"profile: this plan has no native code to time; {self.code(stepping).explain()}")
        self._sources.check(table)
        held = table.clone().owning(self._carried) if isinstance(table, State) else table.entries
        given = self._given(form, held, fed, stepping)
        return loaded("topos.backend.native.profile.profiled")(form.code, given)

    def _given(self, form: Form, held: Mapping[int, Tensor | None], fed: Feeds, holds_inputs: bool) -> dict[int, Any]:
        """The payloads of a step's sources, those that it only replaces among them."""
        stacked: Mapping[int, Any] = {**fed.fixed, **fed.stacked} if fed.stacked else fed.fixed
        given = self._sources.given(held, stacked, holds_inputs)
        for index in form.replaced:
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
