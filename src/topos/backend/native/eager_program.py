"""The program of some work of eager tensors: its steps recorded as a spec, and lowered as a plan is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from topos.backend.native.executable import Executable
from topos.backend.native.layouts import Layout
from topos.backend.native.lowered import executable
from topos.element import Element, f32
from topos.element.element import Array
from topos.graph.spec import Ids, Row, Spec
from topos.op import INPUT, Opcode
from topos.shape import Shape
from topos.tensor import Tensor, services
from topos.tensor.work import Source, Work


class EagerProgram:
    """Native code for one kind of work. Holds no numbers; any number of threads may run it at once."""

    def __init__(self, work: Work, layouts: Sequence[Layout | None]) -> None:
        self._spec = Spec(f32)
        self._sources: list[int] = []
        read = [self._source(source, layout) for source, layout in zip(work.sources, layouts, strict=True)]
        first = len(self._spec.rows)
        for step in work.steps:
            operands = tuple(first + operand if operand >= 0 else read[~operand] for operand in step.operands)
            self._add(step.opcode, operands, step.shape, step.element)
        self._wanted = [first + at for at in work.wanted]
        found = executable(self._spec, range(len(self._spec.rows)), self._wanted, {})
        if isinstance(found, Executable):
            found.keeps = False  # there are hundreds of kinds of work, each seldom done again
        self._executable = found if isinstance(found, Executable) else None
        backend = "SIMD" if len(work.steps) == 1 else "FUSED"
        self._counts = Counter((services.formula_of(step.opcode), backend) for step in work.steps)

    @property
    def native(self) -> bool:
        """Whether there is native code, rather than a reason why not."""
        return self._executable is not None

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """What is wanted, of the sources' dense arrays or ids; each result in a buffer of its own, and counted."""
        results = self.numbers(arrays)
        services.count_all(self._counts)
        return results

    def numbers(self, arrays: Sequence[Array]) -> list[Array]:
        """The same for whoever counts it elsewhere."""
        assert self._executable is not None
        results = self._executable.run(
            {row: self._payload(row, array) for row, array in zip(self._sources, arrays, strict=True)}
        )
        return [results[row].dense(self._spec.element_of(row)) for row in self._wanted]

    # recording
    def _source(self, source: Source, layout: Layout | None) -> int:
        """The row at which a source is read, after the row that stands for it and the movements of its layout."""
        row = len(self._spec.rows)
        self._sources.append(row)
        if layout is None:
            self._spec.ids[row] = Ids(Shape(source.shape[:1]), source.shape[1], -1)
            self._add(INPUT, (), source.shape, None)
            return row
        self._add(INPUT, (), Shape(layout.dense), source.element)
        for opcode, shape in layout.movements():
            self._add(opcode, (len(self._spec.rows) - 1,), shape, source.element)
        return len(self._spec.rows) - 1

    def _add(self, opcode: Opcode, operands: tuple[int, ...], shape: Shape, element: Element | None) -> None:
        self._spec.rows.append(Row(opcode, operands, shape, element, None, None))

    # running
    def _payload(self, row: int, array: Array) -> Tensor:
        ids = self._spec.ids.get(row)
        if ids is not None:
            return Tensor.of_ids(array, ids.vocab, f32)
        return Tensor.of(array, self._spec.element_of(row), self._spec.rows[row].shape)
