"""A plan's program, compiled: one call per run, over memory that runs hand back when they are done."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import numpy as np

from topos.backend.native.compiler import compiled
from topos.backend.native.groups import Lowering
from topos.backend.native.pool import pool
from topos.backend.native.program import Call, Program, texts
from topos.backend.native.results import LARGE_BYTES, Answer, Results
from topos.backend.native.table import FIRST_BUFFER, STEPS, TEXT, UNREAD, Table, enter
from topos.backend.native.target import Target
from topos.engine.code import NativeCode
from topos.engine.feeds import Stack
from topos.op import Leaf
from topos.tensor import Tensor
from topos.tensor.memory import address_of

INTERRUPTIBLE_S = 0.02
"""How long many steps run before Python looks for a Ctrl-C."""


class Executable(NativeCode):
    """The schedule of a plan as native code. Any number of threads may run it at once, each over a table of its own.

    `computed` are the results that a run answers: all but sources, whose values the caller has, and among those the
    ones whose values of before a step shows. It keeps the memory of a run for the next one; an owner of many sets
    `keeps` to False.
    """

    keeps = True
    unread = UNREAD

    def __init__(self, lowering: Lowering, program: Program, results: Iterable[int], target: Target) -> None:
        self.lowering = lowering
        self.program = program
        self.library = compiled(texts(program.calls).values(), target) if program.calls else None
        self._enter = enter()
        self._constants = _constants(lowering, program)
        slots = [(row, slot) for slot, row in enumerate(program.buffers, FIRST_BUFFER) if row not in self._constants]
        self.places = {row: slot for row, slot in slots if row >= 0 and not lowering.spec.rows[row].operands}
        facts = [
            (index, slot, lowering.spec.rows[index].shape, lowering.spec.element_of(index))
            for row, slot in slots
            if (index := max(row, ~row)) >= 0 and (row < 0 or lowering.spec.rows[row].operands)
        ]
        written = {index for index, _, shape, _ in facts if shape.volume}
        left = [row for row in results if row not in written and lowering.spec.rows[row].operands]
        self._results = Results(facts, {row: _filled(lowering, row) for row in left})
        self.computed = frozenset(written.union(left))
        self._shares = any(kernel.tiles > 1 for made in program.calls for kernel in made.kernels)
        self._tables: list[Table] = []

    # one run
    def run(self, sources: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """The value of each result of `computed`, for the payload of each source."""
        try:
            table = self._tables.pop()  # one operation: no other thread takes the same
        except IndexError:
            table = self.table()
        self.point(table, sources)
        values = self.ready(table)
        self.enter(table, values)
        if self.keeps or self.program.arena.bytes <= LARGE_BYTES:
            self._tables.append(table)
        return {row: values[row] for row in self.computed}

    def table(self) -> Table:
        """A table with all that stays the same from run to run."""
        table = Table(self.program, self.library.addresses if self.library else {})
        for slot, row in enumerate(self.program.buffers, FIRST_BUFFER):
            if row in self._constants:
                table.words[slot] = self._constants[row].address
        table.small = self._results.placed(table.words)
        return table

    def point(self, table: Table, sources: Mapping[int, Tensor]) -> None:
        """Writes the address of each source's payload."""
        words = table.words
        for row, slot in self.places.items():
            words[slot] = sources[row].address

    def ready(self, table: Table) -> Answer:
        """Memory for what a run answers, and the threads that it may use."""
        if self._shares:
            pool().ready()
        results = self._results
        return results.fresh(table.words, self.keeps) if results.large else Answer(results)

    def enter(self, table: Table, values: Answer) -> None:  # type: ignore[override]
        """Runs once; then `values` has each result."""
        self._enter(table.argument)
        values.numbers = table.small.raw

    # many
    def ready_steps(self, table: Table, sources: Mapping[int, Tensor | Stack], steps: int) -> dict[int, Tensor]:
        """Points a table at what each step reads and writes; a `Stack` gives one payload per step."""
        words, to_stride = table.words, table.strides - FIRST_BUFFER
        for row, slot in self.places.items():
            payload = sources[row]
            if isinstance(payload, Stack):
                numbers = np.require(payload.array, requirements=("C", "ALIGNED"))
                table.moving.append(numbers)
                words[slot] = address_of(numbers)
                words[slot + to_stride] = numbers.nbytes // steps
            else:
                words[slot] = payload.address
        values = self._results.stacked(words, to_stride, steps)
        values.update({row: _filled(self.lowering, row, (steps,)) for row in self._results.known})
        if self._shares:
            pool().ready()
        return values

    def enter_steps(self, table: Table, steps: int) -> None:
        """Runs as many steps, in one native call or in several of `INTERRUPTIBLE_S`."""
        few = 1
        while steps:
            table.words[STEPS] = few = min(few, steps)
            began = time.perf_counter()
            self._enter(table.argument)
            steps -= few
            elapsed_s = max(time.perf_counter() - began, 1e-9)  # a coarse clock may not have moved
            few *= max(1, min(16, int(INTERRUPTIBLE_S / elapsed_s)))

    # told
    def explain(self) -> str:
        """The groups in order, each with its rows, what it reads and stores, its kernels and tiles; then the memory."""
        lines = self.lowering.describe().splitlines()
        told = [f"{line}  {_told(made)}" for line, made in zip(lines, self.program.groups, strict=True)]
        counted = [
            _counted(len(told), "group"),
            _counted(self.program.owners.count(None), "copy", "copies"),
            _counted(len(self.program.kernels), "kernel"),
        ]
        return "\n".join([*told, f"native: {', '.join(counted)}, arena of {self.program.arena.bytes} bytes"])

    def llvm(self) -> str:
        """The text of every kernel once, and of the function that runs them."""
        return "\n".join([*texts(self.program.calls).values(), TEXT])


def _constants(lowering: Lowering, program: Program) -> dict[int, Tensor]:
    """The buffers that never change: leaves, and constants, of which one number is enough where nothing copies them."""
    spec, constants = lowering.spec, lowering.constants
    copied = {origin for origin, _ in program.carry.after}
    found = {row: spec.payloads[row] for row in program.buffers if row >= 0 and type(spec.rows[row].opcode) is Leaf}
    for row in constants.keys() & program.buffers:
        found[row] = _filled(lowering, row) if row in copied else constants[row]
    return found


def _filled(lowering: Lowering, row: int, leading: tuple[int, ...] = ()) -> Tensor:
    """A row that no kernel writes, behind leading axes: one number at every place, or no place at all."""
    element, found = lowering.spec.element_of(row), lowering.constants.get(row)
    number = Tensor(0.0, element) if found is None else found.convert(element)
    return Tensor.filled((*leading, *lowering.spec.rows[row].shape), number, element)


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _told(made: Call) -> str:
    return ", ".join(f"{kernel.name} in {kernel.tiles}" for kernel in made.kernels)
