"""A plan's program, compiled: one call per run, over memory that runs hand back when they are done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from topos.backend.native.compiler import Library
from topos.backend.native.manifest import Manifest
from topos.backend.native.pool import pool
from topos.backend.native.results import LARGE_BYTES, Results
from topos.backend.native.table import FIRST_BUFFER, STEPS, Table, enter
from topos.engine.feeds import Stack
from topos.graph.spec import Spec
from topos.op import Leaf
from topos.tensor import Tensor
from topos.tensor.memory import address_of

if TYPE_CHECKING:
    from topos.backend.native.making import Making

INTERRUPTIBLE_S = 0.02
"""How long many steps run before Python looks for a Ctrl-C."""


class Executable:
    """The schedule of a plan as native code. Holds no state: any number of threads may run it at once.

    `computed` are the results that a run answers: all but sources, whose values the caller has, and among those the
    ones whose values of before a step shows. `making` is how the program was lowered and written, which is done again
    where it came from the cache and somebody wants to see it. It keeps the memory of a run for the next one; an owner
    of many sets `keeps` to False.
    """

    keeps = True

    def __init__(
        self,
        spec: Spec,
        manifest: Manifest,
        library: Library | None,
        results: Iterable[int],
        making: Callable[[], Making],
        constants: Mapping[int, Tensor],
    ) -> None:
        self.spec = spec
        self.manifest = manifest
        self.library = library
        self.making = making
        self._enter = enter()
        self._numbers = constants
        self._constants = self._found_constants()
        slots = [(row, slot) for slot, row in enumerate(manifest.buffers, FIRST_BUFFER) if row not in self._constants]
        self._sources = [(row, slot) for row, slot in slots if row >= 0 and not spec.rows[row].operands]
        self._results = Results(
            (index, slot, spec.rows[index].shape, spec.element_of(index))
            for row, slot in slots
            if (index := max(row, ~row)) >= 0 and (row < 0 or spec.rows[row].operands)
        )
        written = self._results.rows()
        left = [row for row in results if row not in written and spec.rows[row].operands]
        self._known = {row: self._filled(row) for row in left}
        self.computed = written.union(left)
        self._shares = any(tiles > 1 for start in manifest.starts for _, tiles in start.kernels)
        self._tables: list[Table] = []

    def run(self, sources: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """The value of each result of `computed`, for the payload of each source."""
        table = self._tables.pop() if self._tables else self.table()
        values = self.fill(table, sources)
        if self._shares:
            pool().ready()
        self._enter(table.address)
        if self.keeps or self.manifest.arena_bytes <= LARGE_BYTES:
            self._tables.append(table)
        if self._known:
            values.update(self._known)
        return values

    def fill(self, table: Table, sources: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Points a table at the sources and at fresh memory for the results that kernels write, which it answers."""
        words = table.words
        for row, slot in self._sources:
            words[slot] = sources[row].address
        return self._results.fresh(words, self.keeps)

    def run_steps(self, sources: Mapping[int, Tensor | Stack], steps: int) -> dict[int, Tensor]:
        """As many runs, one after another; a `Stack` gives one payload per step, each result gains a leading axis."""
        table = self.table()
        words, to_stride = table.words, table.strides - FIRST_BUFFER
        moving = []
        for row, slot in self._sources:
            payload = sources[row]
            if isinstance(payload, Stack):
                numbers = np.require(payload.array, requirements=("C", "ALIGNED"))
                moving.append(numbers)
                words[slot] = address_of(numbers)
                words[slot + to_stride] = numbers.nbytes // steps
            else:
                words[slot] = payload.address
        values = self._results.stacked(words, to_stride, steps)
        values.update({row: self._filled(row, (steps,)) for row in self._known})
        if self._shares:
            pool().ready()
        few = 1
        while steps:
            words[STEPS] = few = min(few, steps)
            began = time.perf_counter()
            self._enter(table.address)
            steps -= few
            elapsed_s = max(time.perf_counter() - began, 1e-9)  # a coarse clock may not have moved
            few *= max(1, min(16, int(INTERRUPTIBLE_S / elapsed_s)))
        return values

    def table(self) -> Table:
        """A table with all that stays the same from run to run."""
        table = Table(self.manifest, self.library.addresses if self.library else {})
        for slot, row in enumerate(self.manifest.buffers, FIRST_BUFFER):
            if row in self._constants:
                table.words[slot] = self._constants[row].address
        return table

    def _found_constants(self) -> dict[int, Tensor]:
        """The buffers that never change: leaves, and constants: one number is enough where nothing copies them."""
        manifest, spec = self.manifest, self.spec
        found = {
            row: spec.payloads[row] for row in manifest.buffers if row >= 0 and type(spec.rows[row].opcode) is Leaf
        }
        for row in manifest.numbers.keys() & manifest.buffers:
            found[row] = self._filled(row) if row in manifest.whole else self._number(row)
        return found

    def _number(self, row: int) -> Tensor:
        if row in self._numbers:  # a user's element may read a Python number otherwise
            return self._numbers[row]
        return Tensor(self.manifest.numbers.get(row, 0.0), self.spec.element_of(row))

    def _filled(self, row: int, leading: tuple[int, ...] = ()) -> Tensor:
        """A row that no kernel writes, behind leading axes: one number at every place, or no place at all."""
        element = self.spec.element_of(row)
        return Tensor.filled((*leading, *self.spec.rows[row].shape), self._number(row).convert(element), element)

    def explain(self) -> str:
        """The groups in order, each with its rows, what it reads and stores, its kernels and tiles; then the memory."""
        return self.making().explain()

    def llvm(self) -> str:
        """The text of every kernel once, and of the function that runs them."""
        return self.making().llvm()
