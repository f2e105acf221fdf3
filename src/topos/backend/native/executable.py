"""A plan's program, compiled: one call per run, over memory that runs hand back when they are done."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from topos.backend.native.compiler import Library, compiled
from topos.backend.native.emission import CompilationError
from topos.backend.native.entering import enter
from topos.backend.native.manifest import Manifest
from topos.backend.native.pool import pool
from topos.backend.native.results import LARGE_BYTES, Answer, Results, Series
from topos.backend.native.table import FIRST_BUFFER, OWN, STEPS, UNREAD, Table
from topos.backend.native.weights import Weights
from topos.engine.code import Compositions, NativeCode
from topos.graph.spec import Spec
from topos.op import Leaf
from topos.tensor import Tensor

if TYPE_CHECKING:
    from topos.backend.native.making import Making

INTERRUPTIBLE_S = 0.02
"""How long many steps run before Python looks for a Ctrl-C."""
WORTH_STEPS = 1 << 14
"""So many steps, asked for several at once, pay for a function of their own, where a program may have one."""
MOST_FASTER = 16
"""The steps of one native call grow by this factor at most: few of them are timed too coarsely to tell more."""


class Executable(NativeCode):
    """The schedule of a plan as native code. Any number of threads may run it at once, each over a table of its own.

    `computed` are the results that a run answers: all but sources, whose values the caller has, and among those the
    ones whose values of before a step shows. `making` is how the program was lowered and written, which is done again
    where it came from the cache and somebody wants to see it. It keeps the memory of a run for the next one; an owner
    of many sets `keeps` to False.
    """

    keeps = True
    unread = UNREAD

    def __init__(
        self,
        spec: Spec,
        manifest: Manifest,
        library: Library | None,
        results: Iterable[int],
        making: Callable[[], Making],
    ) -> None:
        self.spec = spec
        self.manifest = manifest
        self.library = library
        self.making = making
        self._enter = enter()
        self._constants = self._found_constants()
        slots = [(row, slot) for slot, row in enumerate(manifest.buffers, FIRST_BUFFER) if row not in self._constants]
        self.places = {row: slot for row, slot in slots if row >= 0 and not spec.rows[row].operands}
        facts = [
            (index, slot, spec.rows[index].shape, spec.element_of(index))
            for row, slot in slots
            if (index := max(row, ~row)) >= 0 and (row < 0 or spec.rows[row].operands)
        ]
        written = {index for index, _, shape, _ in facts if shape.volume}
        left = [row for row in results if row not in written and spec.rows[row].operands]
        self._results = Results(facts, {row: self._filled(row) for row in left})
        self.computed = frozenset(written.union(left))
        self._shares = any(tiles > 1 for start in manifest.starts for _, tiles in start.kernels)
        packable = [start.packable for start in manifest.starts if start.packable is not None]
        self._weights = Weights(packable, self._constants, making)
        self._tables: list[Table] = []
        self._repeated = manifest.repeated
        self._repeating: Library | None = None
        self._steps = 0  # asked for so far, several at once
        self._together = 1  # steps that one native call takes: about `INTERRUPTIBLE_S` of them

    # one run
    def run(self, sources: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """The value of each result of `computed`, for the payload of each source."""
        try:
            table = self._tables.pop()  # one operation: no other thread takes the same
        except IndexError:
            table = self.table()
        self._point(table, sources)
        values = self.ready(table)
        self.enter(table, values)
        if self.keeps or self.manifest.arena_bytes <= LARGE_BYTES:
            self._tables.append(table)
        return {row: values[row] for row in self.computed}

    def table(self) -> Table:
        """A table with all that stays the same from run to run."""
        table = Table(self.manifest, self.library.addresses if self.library else {})
        for slot, row in enumerate(self.manifest.buffers, FIRST_BUFFER):
            if row in self._constants:
                table.words[slot] = self._constants[row].address
        table.small = self._results.memory()
        self._results.place(table.words, table.small)
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
        element, digits = self.spec.element_of(row), self.manifest.numbers.get(row)
        if digits is None:
            return Tensor(0.0, element)
        return Tensor.of(np.frombuffer(bytes.fromhex(digits), element.dtype).reshape(()), element)

    def _filled(self, row: int, leading: tuple[int, ...] = ()) -> Tensor:
        """A row that no kernel writes, behind leading axes: one number at every place, or no place at all."""
        return Tensor.filled((*leading, *self.spec.rows[row].shape), self._number(row), self.spec.element_of(row))

    def move(self, table: Table, word: int, step_bytes: int) -> None:
        """Says how far a source's payloads lie apart from step to step."""
        if word != UNREAD:
            table.words[word + table.strides - FIRST_BUFFER] = step_bytes

    def point(self, table: Table, sources: Mapping[int, Any], is_settled: bool) -> bool:
        """Writes the address of each source's payload; the panels of some live as long as they."""
        if table.repeats:
            table.settle()
            self._results.place(table.words, table.small)
        self._point(table, sources)
        return self._weights.point(table, sources if is_settled else {}) if self._weights else True

    def _point(self, table: Table, sources: Mapping[int, Any]) -> None:
        words = table.words
        for row, slot in self.places.items():
            words[slot] = sources[row].address

    def ready(self, table: Table, steps: int | None = None) -> Answer | Series:
        """Memory for what a run or each step answers, and the threads that it may use."""
        if self._shares:
            pool().ready()
        if steps is not None:
            return self._series(table, steps)
        values = Answer()
        values.results = self._results
        if self._results.large:
            self._results.hold(values, table.words, self.keeps)
        return values

    def enter(self, table: Table, values: Any, steps: int | None = None) -> None:
        """Runs once or as many steps; then `values` has each result."""
        if steps is not None:
            self._enter_steps(table, steps)
        else:
            self._enter(table.argument)
            values.numbers = table.small.raw

    # many
    def _series(self, table: Table, steps: int) -> Series:
        table.repeats = True
        self._steps += steps
        if self._repeated and self._steps >= WORTH_STEPS:
            table.words[OWN] = self._own()
        values = self._results.series(table.words, table.strides - FIRST_BUFFER, steps)
        values.update({row: self._filled(row, (steps,)) for row in self._results.known})
        return values

    def _own(self) -> int:
        """Where the function is that runs the steps of this program alone; 0 where LLVM refuses it."""
        if self._repeating is None:
            try:
                self._repeating = compiled(self._repeated, self.library.target if self.library else None)
            except CompilationError as error:  # a fault of ours: its kernels one after another have the same bits
                self._repeated = ""
                warnings.warn(f"many steps run kernel by kernel: {error}", RuntimeWarning, 2)
                return 0
        (address,) = self._repeating.addresses.values()
        return address

    def _enter_steps(self, table: Table, steps: int) -> None:
        """In one native call or in several of `INTERRUPTIBLE_S`."""
        while steps:
            together = self._together  # another thread may enter too
            table.words[STEPS] = few = min(together, steps)
            began = time.perf_counter()
            self._enter(table.argument)
            steps -= few
            elapsed_s = max(time.perf_counter() - began, 1e-9)  # a coarse clock may not have moved
            self._together = max(1, min(MOST_FASTER * together, int(few * INTERRUPTIBLE_S / elapsed_s)))

    # told
    def explain(self, compositions: Compositions = ()) -> str:
        """The groups in order, each with its rows, what it reads and stores, its kernels and tiles; then the memory."""
        return self.making().explain(compositions)

    def llvm(self) -> str:
        """The text of every kernel once, and of the function that runs them."""
        return self.making().llvm()
