"""A stretch of a plan on XLA, for the backend STABLEHLO."""

from __future__ import annotations

from collections.abc import Mapping

from topos.backend.task import Stretch
from topos.emission.xla.client import devices
from topos.emission.xla.translated import Translated
from topos.engine.entry import Entry
from topos.errors import EmissionError
from topos.graph import Symbol
from topos.graph.spec import Row, Spec
from topos.op import INPUT
from topos.tensor import Tensor


def translated(task: Stretch) -> Part | str:
    """What runs the rows that are kept; or a reason why not, where one of them has no text."""
    spec = _apart(task)
    kept = [Symbol(spec.family, row) for row in sorted(task.kept) if spec.rows[row].operands]
    try:
        return Part(Translated(spec, len(spec.rows), Entry(kept), None, devices(None, None)))
    except EmissionError as error:
        return str(error)


def _apart(task: Stretch) -> Spec:
    """The spec with nothing in it but the stretch: its other rows are inputs, which nobody reads."""
    whole, inside = task.spec, set(task.rows)
    part = Spec(whole.element)
    part.family, part.names, part.ids, part.payloads = whole.family, whole.names, whole.ids, whole.payloads
    part.rows = [
        row if index in inside else Row(INPUT, (), row.shape, row.element, row.place, None)
        for index, row in enumerate(whole.rows)
    ]
    return part


class Part:
    """A program that answers the rows that were kept."""

    def __init__(self, program: Translated) -> None:
        self._program = program

    def run(self, sources: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """The kept rows over sources by row."""
        program = self._program
        results, _ = program.run({row: program.put(row, sources[row]) for row in program.arguments})
        return program.tensors(results)

    def explain(self) -> str:
        """Where it runs."""
        return f"XLA on {self._program.devices}"
