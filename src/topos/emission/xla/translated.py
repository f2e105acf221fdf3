"""A schedule as a program of XLA: its text, its compiled form once it is needed, and where its arrays lie."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from topos.emission.attributes import Attributes, carried
from topos.emission.mesh import Layout, extents
from topos.emission.module import emitted
from topos.emission.sources import argument, arguments
from topos.emission.words import DTYPES
from topos.emission.xla.client import Devices, Place, fetched, wait
from topos.emission.xla.programs import Program, program
from topos.engine.entry import Entry
from topos.engine.liveness import schedule
from topos.graph.spec import Spec
from topos.tensor import Tensor

_turn = threading.Lock()


class Translated:
    """A run of `entry`, or a step where that carries; what replaces a source takes the memory of its argument.

    `arguments` are the rows that it reads, in order.
    """

    def __init__(self, spec: Spec, length: int, entry: Entry, layout: Layout | None, devices: Devices) -> None:
        self._spec, self._layout, self.devices = spec, layout, devices
        self._computed = [symbol.index for symbol in entry.results]
        self._carried = [source.index for source in carried(entry)]
        rows = schedule(spec.rows, [*self._computed, *(after.index for after in entry.carry.values())])
        self.text = emitted(spec, length, rows, entry, attributes=Attributes(layout, donates=True))
        self.arguments = [row for row, _ in arguments(spec, rows)]
        named = {row: argument(spec, row, 0) for row in self.arguments}
        self._places = {row: self._place(row, DTYPES[value.type]) for row, value in named.items()}
        self._lie = [
            *(Place(devices, tuple(spec.rows[row].shape), spec.element_of(row).dtype, ()) for row in self._computed),
            *(self._place(row, spec.element_of(row).dtype) for row in self._carried),
        ]
        self._lock = threading.Lock()
        self._program: Program | None = None

    @property
    def program(self) -> Program:
        """The compiled form. Raises `EngineError` with what XLA says of the text."""
        with self._lock:
            if self._program is None:
                self._program = program(self.text, self.devices, self._layout is None or self._layout.is_shardy)
        return self._program

    def put(self, row: int, payload: Tensor) -> Any:
        """A source's payload on the devices."""
        place = self._places[row]
        if payload.ids is not None:
            return place.put(payload.ids.astype(place.dtype).reshape(place.shape))
        return place.put(payload.dense(self._spec.element_of(row)))

    def run(self, arrays: Mapping[int, Any]) -> tuple[list[Any], dict[int, Any]]:
        """The results in order, and what replaces each carried source, still on the devices."""
        answered = self._answered(self.program, [arrays[row] for row in self.arguments])
        joined = [place.joined(parts) for place, parts in zip(self._lie, answered, strict=True)]
        count = len(self._computed)
        return joined[:count], dict(zip(self._carried, joined[count:], strict=True))

    def tensors(self, results: Sequence[Any]) -> dict[int, Tensor]:
        """The results by row, once they are computed."""
        return {row: self._tensor(row, array) for row, array in zip(self._computed, results, strict=True)}

    def gathered(self, arrays: Mapping[int, Any]) -> dict[int, Tensor]:
        """What replaces sources, whole: what lies in other processes too comes here."""
        return {row: self._tensor(row, self._whole(row, array)) for row, array in arrays.items()}

    def _tensor(self, row: int, array: Any) -> Tensor:
        return Tensor.of(fetched(array), self._spec.element_of(row), self._spec.rows[row].shape)

    def _whole(self, row: int, array: Any) -> Any:
        place = self._lie[len(self._computed) + self._carried.index(row)]
        if place.is_whole:
            return array
        assert self._layout is not None
        value = argument(self._spec, row, 0)
        cut, whole = (self._layout.attribute_of(source, value.shape) for source in (row, None))
        lines = [
            "module @gather {",
            *self._layout.header(),
            f"  func.func @main(%arg0: {value.tensor} {{{cut}}}) -> ({value.tensor} {{{whole}}}) {{",
            f"    return %arg0 : {value.tensor}",
            "  }",
            "}",
        ]
        parts = self._answered(program("\n".join(lines), self.devices, self._layout.is_shardy), [array])
        return Place(self.devices, value.shape, DTYPES[value.type], ()).joined(parts[0])

    def _answered(self, program: Program, arrays: Sequence[Any]) -> list[list[Any]]:
        """What a program answers. Over several devices, each has to meet the same programs in the same order."""
        if self._layout is None:
            return program.form.run(arrays)
        with _turn:
            answered = program.form.run(arrays)
            if self.devices.is_shared_processor:  # programs in flight would wait for each other's threads
                wait(answered)
        return answered

    def _place(self, row: int, dtype: Any) -> Place:
        cuts = () if self._layout is None else self._layout.cuts.get(row, ())
        return Place(self.devices, extents(self._spec, row), dtype, cuts)
