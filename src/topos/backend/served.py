"""A plan that several compute together: stretches translated, single instructions elected or offered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from topos.backend.backend import Backend
from topos.backend.chain import accepted, asked
from topos.backend.task import Declined, Task
from topos.element.element import Array
from topos.engine.code import Code, Compositions, ServingCode
from topos.errors import ElementError
from topos.graph.spec import Spec
from topos.records import NamedTuple
from topos.tensor import Tensor, services
from topos.tensor.evaluate import kernel_of


class Claim(NamedTuple):
    """Who computes a row: an elected kernel, if any, and then whoever is offered it, in order."""

    backend: Backend | None
    kernel: Callable[..., Any] | None
    offers: list[Backend]
    note: str


class Single(NamedTuple):
    """A row that is computed by itself."""

    row: int
    task: Task
    claim: Claim | None

    @property
    def rows(self) -> Sequence[int]:
        """The row."""
        return (self.row,)

    def compute(self, spec: Spec, values: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Its value: by the first who answers, or the reference."""
        task = self.task
        offered = task._replace(operands=tuple(values[operand] for operand in spec.rows[self.row].operands))
        for backend, question in self._questions(offered):
            result = asked(backend, question)
            if result is not None:
                services.count(task.formula, backend.name)
                return {self.row: result}
        services.count(task.formula, services.REFERENCE)
        return {self.row: _by_reference(self.row, offered)}

    def _questions(self, task: Task) -> list[tuple[Backend, Callable[[], Tensor | None]]]:
        """Who is asked in turn, and what, for a task with its operands."""
        claim = self.claim
        if claim is None:
            return []
        offers: list[tuple[Backend, Callable[[], Tensor | None]]]
        offers = [(backend, partial(_offered, backend, task)) for backend in claim.offers]
        if claim.backend is None or claim.kernel is None:
            return offers
        return [(claim.backend, partial(_elected, claim.kernel, task)), *offers]

    def describe(self, spec: Spec) -> str:
        """The row, who is asked, and why."""
        claim, label = self.claim, f"%{self.row} {self.task.opcode.name} {self.task.shape}"
        if claim is None:
            return f"{services.REFERENCE:11} {label}"
        asked_in_turn = [*([claim.backend] if claim.backend else []), *claim.offers]
        names = ", ".join(backend.name for backend in asked_in_turn)
        return f"{names:11} {label}  {claim.note}"


class Part(NamedTuple):
    """Rows that one backend translated together; `scheduled` adds the sources that they read, `native` runs them.

    `wanted` are the rows that it answers.
    """

    backend: Backend
    rows: Sequence[int]
    scheduled: Sequence[int]
    native: Any
    wanted: frozenset[int]

    def compute(self, spec: Spec, values: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """The values that are wanted of it; by the reference where it raises."""
        inside = set(self.rows)
        sources = {row: values[row] for row in self.scheduled if row not in inside}
        results: dict[int, Tensor] | None = asked(self.backend, partial(self._answered, spec, sources))
        opcodes = [spec.rows[row].opcode for row in self.rows] if services.counting() or results is None else []
        by = services.REFERENCE if results is None else self.backend.name
        services.count_all(Counter((services.formula_of(opcode), by) for opcode in opcodes))
        if results is not None:
            return results
        computed = dict(sources)
        for row in self.rows:
            recorded = spec.rows[row]
            operands = tuple(computed[operand] for operand in recorded.operands)
            computed[row] = _evaluated(row, recorded.opcode, spec.element_of(row), recorded.shape, operands)
        return {row: computed[row] for row in self.rows}

    def _answered(self, spec: Spec, sources: dict[int, Tensor]) -> dict[int, Tensor] | None:
        """What was wanted, checked; `None` where the backend declines. Raises `ElementError` for any other answer."""
        answer = self.native.run(sources)
        if answer is None or isinstance(answer, Declined):
            return None
        if not isinstance(answer, Mapping):
            raise ElementError(f"run: wants a mapping from rows to tensors, got {type(answer).__name__}")
        return {row: _checked(spec, row, answer.get(row)) for row in self.wanted}

    def describe(self, spec: Spec) -> str:
        """How many rows it holds, and what its backend says of them."""
        head = f"{self.backend.name:11} {len(self.rows)} nodes, %{self.rows[0]} to %{self.rows[-1]}"
        told = getattr(self.native, "explain", None)
        return "\n".join([head, *(f"  {line}" for line in str(told()).splitlines())]) if callable(told) else head


class Served(ServingCode):
    """Parts and single rows in order. Holds no state: any number of threads may run it at once."""

    def __init__(
        self, spec: Spec, units: Sequence[Part | Single], kept: frozenset[int], reasons: Sequence[str]
    ) -> None:
        self._spec = spec
        self._units = units
        self._reasons = reasons
        self._kept = kept
        self._dying = _dying(spec, units, kept)

    def serve(self, values: dict[int, Tensor]) -> None:
        """Computes the schedule over the sources in `values`, where each result is put and what is dead goes."""
        with np.errstate(all="ignore"):
            for unit, dying in zip(self._units, self._dying, strict=True):
                values.update(unit.compute(self._spec, values))
                for row in dying:
                    values.pop(row, None)

    def explain(self, compositions: Compositions = ()) -> str:
        """Who computes what, in order, then who declined and why."""
        return "\n".join([*(unit.describe(self._spec) for unit in self._units), *self._reasons])

    def llvm(self) -> str:
        """The LLVM text of the parts that have one."""
        texts = [unit.native.llvm() for unit in self._units if isinstance(unit, Part) and hasattr(unit.native, "llvm")]
        return "\n".join(texts) or "; no part of this plan is LLVM's\n"


class Unserved(Code):
    """A schedule that the interpreter runs, and why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def explain(self, compositions: Compositions = ()) -> str:
        """The reason."""
        return f"interpreted: {self.reason}"

    def llvm(self) -> str:
        """No text."""
        return f"; interpreted: {self.reason}\n"


def _dying(spec: Spec, units: Sequence[Part | Single], kept: frozenset[int]) -> list[list[int]]:
    """The computed rows that each unit is the last to read, or that nobody reads."""
    last: dict[int, int] = {}
    for position, unit in enumerate(units):
        for row in unit.rows:
            last[row] = position
        for row in unit.rows:
            for operand in spec.rows[row].operands:
                if operand in last:
                    last[operand] = position
    dying: list[list[int]] = [[] for _ in units]
    for row, position in last.items():
        if row not in kept:
            dying[position].append(row)
    return dying


def _offered(backend: Backend, task: Task) -> Tensor | None:
    return _taken(backend.offer(task), task)


def _elected(kernel: Callable[..., Any], task: Task) -> Tensor | None:
    return _taken(kernel(*task.arrays()), task)


def _taken(answer: Any, task: Task) -> Tensor | None:
    """What was answered, as a tensor; `None` for who declines."""
    if answer is None or isinstance(answer, Declined):
        return None
    return accepted(answer, task.element, task.shape)


def _checked(spec: Spec, row: int, value: Any) -> Tensor:
    """A row's value as a translated part answered it. Raises `ElementError` where that is none, or another one."""
    recorded = spec.rows[row]
    element = spec.element_of(row)
    if isinstance(value, Tensor) and value.element is element and value.shape == recorded.shape:
        return value
    found = f"{value.shape} {value.element}" if isinstance(value, Tensor) else type(value).__name__
    raise ElementError(f"run: wants {recorded.shape} {element} of row {row}, got {found}")


def _by_reference(row: int, task: Task) -> Tensor:
    operands = tuple(operand for operand in task.operands if isinstance(operand, Tensor))
    return _evaluated(row, task.opcode, task.element, task.shape, operands)


def _evaluated(row: int, opcode: Any, element: Any, shape: Any, operands: tuple[Tensor, ...]) -> Tensor:
    """The defining kernel. Raises `ElementError` that names the node."""
    try:
        array: Array = kernel_of(opcode)(opcode, element, operands)
        return Tensor.of(array, element, shape)
    except ElementError as error:
        raise error.placed([f"node %{row} {opcode.name} {shape}"]) from None
