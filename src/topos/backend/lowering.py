"""From an entry's chain to what runs its plan: who computes which rows, decided once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from topos.backend.backend import Backend, Dispatch, told
from topos.backend.chain import asked, default
from topos.backend.election import ALONE, GAIN, gain
from topos.backend.fidelity import Fidelity
from topos.backend.formula import Formula
from topos.backend.served import Claim, Part, Served, Single, Unserved
from topos.backend.stretches import CLAIMED, STRETCH, Order, cut, orders
from topos.backend.task import Declined, Outline, Stretch, Task
from topos.engine.code import Code
from topos.engine.entry import Entry
from topos.engine.numerics import Numerics
from topos.graph.spec import Spec
from topos.loading import loaded
from topos.tensor.services import formula_of


def lowered(spec: Spec, rows: Sequence[int], entry: Entry, stepping: bool) -> Code:
    """What computes an entry's run, or with `stepping` a step that replaces what it carries.

    Native code, as it was made, where all of it is ours; what `serve`s the schedule where several take part; else a
    reason why the interpreter runs it. Raises `BackendUnavailable` for a default chain that names nobody.
    """
    if entry.diagnose:
        return Unserved("a diagnosed entry watches every value")
    chain = default() if entry.backends is None else entry.backends
    statuses = [(backend, backend.status()) for backend in chain]
    if entry.backends is None:
        _warn([f"{backend.name}: {status}" for backend, status in statuses if not status.ready])
    kept = {symbol.index for symbol in (*entry.results, *entry.carry.values())}
    if entry.backward:
        kept.update(row for row in rows if spec.rows[row].operands)
    ready = [backend for backend, status in statuses if status.ready]
    allotment = Allotment(spec, rows, frozenset(kept), ready, entry.numerics)
    allotment.walk(lambda: fused(spec, rows, entry, stepping))
    if allotment.is_refused and entry.backends is None:  # what is not worth compiling is not worth it row by row either
        return Unserved(allotment.reasons[Backend.FUSED.name])
    return allotment.result([f"{backend.name}: {status}" for backend, status in statuses if not status.ready])


@cache
def _warn_once(text: str) -> None:
    warnings.warn(text, RuntimeWarning, 6)


def _warn(unready: Sequence[str]) -> None:
    """Says once per reason why the default chain does not do what it does elsewhere; not what was asked for."""
    for reason in unready:
        if "switched off" not in reason:
            _warn_once(f"plans run without {reason}")


def fused(spec: Spec, rows: Sequence[int], entry: Entry, stepping: bool) -> Any:
    """A whole plan as one native function, which replaces in place what the entry carries; or a reason why not."""
    return loaded("topos.backend.native.lowered.lowered")(spec, rows, entry, stepping)


def given_up(error: Exception) -> Unserved:
    """What is left of a native plan that raised: a reason to interpret it from now on, told once."""
    warnings.warn(f"a plan is interpreted from now on: its native form raised {told(error)}", RuntimeWarning, 6)
    return Unserved(f"its native form raised {told(error)}")


class Allotment:
    """Which rows fall to whom: each backend of a chain is asked for those that nobody before it took."""

    def __init__(
        self, spec: Spec, rows: Sequence[int], kept: frozenset[int], chain: Sequence[Backend], numerics: Numerics
    ) -> None:
        self.spec, self.rows, self.kept, self.chain, self.numerics = spec, list(rows), kept, list(chain), numerics
        self.computed = [row for row in rows if spec.rows[row].operands]
        self.claims: dict[int, Claim] = {}
        self.parts: list[Part] = []
        self.found: dict[int, Order] = {}
        self.reasons: dict[str, str] = {}
        self.whole: Code | None = None
        self.is_refused = False  # as a whole, for no row in particular
        self._tasks: dict[int, Task] = {}

    def walk(self, whole: Callable[[], Any]) -> None:
        """Asks every backend in turn; `whole` makes the native form of the plan, should it be all ours."""
        for position, backend in enumerate(self.chain):
            if self.whole is not None:
                return  # nothing is left for those who come later
            if backend.dispatch is Dispatch.TRANSLATED:
                if not self.parts and self.whole is None:
                    self._translate(backend, whole)
            elif backend.dispatch is Dispatch.ELECTED:
                self._elect(backend, self.chain[position + 1 :])
            else:
                self._offer(backend)

    def result(self, unready: Sequence[str]) -> Code:
        """What the walk has found."""
        reasons = [*(f"{name}: declined: {reason}" for name, reason in self.reasons.items()), *unready]
        if self.whole is not None:
            return self.whole
        if not self.parts and not self.claims:
            return Unserved("; ".join(reasons) or self._uncovered())
        return Served(self.spec, self._ordered(), self.kept, reasons)

    def _uncovered(self) -> str:
        """What nobody takes, of a plan of which nobody takes anything."""
        if not self.chain or not self.computed:
            return "no backend is asked" if self.computed else "nothing is computed"
        tasks = [self._task(row) for row in self.computed]
        return f"no backend takes {', '.join(sorted({f'{task.formula} over {task.element}' for task in tasks}))}"

    # one instruction
    def _task(self, row: int) -> Task:
        found = self._tasks.get(row)
        if found is not None:
            return found
        recorded, spec = self.spec.rows[row], self.spec
        operands = [spec.rows[operand] for operand in recorded.operands]
        outlines = tuple(Outline(operand.shape, operand.element) for operand in operands)
        element = spec.element_of(row)
        formula = Formula(formula_of(recorded.opcode))
        task = self._tasks[row] = Task(formula, recorded.opcode, element, recorded.shape, outlines)
        return task

    def _free(self, backend: Backend, also_offered: bool = False) -> list[int]:
        """The rows that nobody has and this backend takes."""
        had = {row for part in self.parts for row in part.rows}
        left = [row for row in self.computed if row not in had and (also_offered or row not in self.claims)]
        known: dict[Any, bool] = {}
        return [row for row in left if self._takes(backend, row, known)]

    def _takes(self, backend: Backend, row: int, known: dict[Any, bool]) -> bool:
        exact = self.numerics is Numerics.EXACT
        if not backend.by_kind:
            return bool(asked(backend, partial(backend.takes, self._task(row), exact)))
        rows = self.spec.rows
        key = type(rows[row].opcode), rows[row].element, *[rows[operand].element for operand in rows[row].operands]
        if key not in known:
            known[key] = bool(asked(backend, partial(backend.takes, self._task(row), exact)))
        return known[key]

    def _elect(self, backend: Backend, later: Sequence[Backend]) -> None:
        for row in self._free(backend):
            task = self._task(row)
            kernel = asked(backend, partial(backend.offer, task))
            if kernel is None or isinstance(kernel, Declined):
                continue
            note = self._worth(backend, kernel, task, later)
            if note is not None:
                self.claims[row] = Claim(backend, kernel, [], note)

    def _worth(self, backend: Backend, kernel: Callable[..., Any], task: Task, later: Sequence[Backend]) -> str | None:
        """What there is to say for a kernel, or `None` where it departs from the bits and gains too little by it."""
        coverage = backend.coverage(task.formula)
        if coverage is None or coverage.fidelity is not Fidelity.ENVELOPE:
            return "elected"
        ratio = asked(backend, partial(gain, backend, kernel, task, later))
        if ratio is None or ratio < GAIN:
            return None
        return "elected" if ratio == ALONE else f"measured {ratio:.1f} times as fast as the exact kernel"

    def _offer(self, backend: Backend) -> None:
        for row in self._free(backend, also_offered=True):
            held = self.claims.get(row)
            if held is None:
                self.claims[row] = Claim(None, None, [backend], "offered")
            else:
                held.offers.append(backend)

    # many
    def _translate(self, backend: Backend, whole: Callable[[], Any]) -> None:
        """Stretches of what is left; where one is declined for rows that are named, again without those."""
        free = set(self._free(backend))
        while free:
            if backend is Backend.FUSED and len(free) == len(self.computed):
                made = asked(backend, whole)
                if made is not None and not isinstance(made, Declined):
                    self.whole = made
                    return
                standing = self._declined(backend, made)
                self.is_refused = not standing
            else:
                parts, standing = self._translated(backend, free)
                if parts:
                    self.parts = parts
                    return
            free -= standing
            if not standing:
                return

    def _declined(self, backend: Backend, made: Declined | None) -> set[int]:
        """Notes why, and answers the rows that stand in the way."""
        declined = made or Declined("it gave no reason")
        self.reasons[backend.name] = declined.reason
        return set(declined.rows)

    def _translated(self, backend: Backend, free: set[int]) -> tuple[list[Part], set[int]]:
        """A part per stretch of the free rows; where one is declined none, and the rows that stand in the way."""
        stretches: dict[Order, list[int]] = {}
        apart = [row for row in self.computed if row not in free]
        self.found = orders(self.spec, self.rows, apart, self.kept)
        for row, order in self.found.items():
            if order.phase == STRETCH:
                stretches.setdefault(order, []).append(row)
        parts: list[Part] = []
        for own in stretches.values():
            spec, scheduled = cut(self.spec, own) if len(own) < len(self.computed) else (self.spec, self.rows)
            wanted = self._wanted(own)
            task = Stretch(spec, scheduled, wanted, self.numerics)
            native = asked(backend, partial(backend.offer, task))
            if native is None or isinstance(native, Declined):
                standing = self._declined(backend, native) & set(own)
                return [], standing or (set(own) if len(stretches) > 1 else set())
            parts.append(Part(backend, own, scheduled, native, wanted))
        return parts, set()

    def _wanted(self, own: Sequence[int]) -> frozenset[int]:
        """The rows of a stretch that are kept, or read outside it."""
        inside = set(own)
        outside = {o for row in self.computed if row not in inside for o in self.spec.rows[row].operands}
        return frozenset(inside & (outside | self.kept))

    # in order
    def _alone(self) -> list[int]:
        had = {row for part in self.parts for row in part.rows}
        return [row for row in self.computed if row not in had]

    def _ordered(self) -> list[Part | Single]:
        """Parts and single rows, each after what it reads."""
        units: list[tuple[Order, int, Part | Single]] = [
            (self.found[part.rows[0]], part.rows[0], part) for part in self.parts
        ]
        for row in self._alone():
            order = self.found[row] if self.parts else Order(0, CLAIMED)
            units.append((order, row, Single(row, self._task(row), self.claims.get(row))))
        return [unit for _, _, unit in sorted(units, key=lambda unit: unit[:2])]
