"""What stands in the sources of a run: a spec's constants, the caller's table, and what was fed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from topos.engine.state import State
from topos.errors import FeedError, KinshipError
from topos.graph import Parameters
from topos.graph.spec import Row, Spec
from topos.op import Input, Parameter
from topos.tensor import Tensor


class Sources:
    """The sources among some rows, told apart once: where each one's payload comes from."""

    __slots__ = ("_ids", "_inputs", "_leaves", "_slots", "_spec")

    def __init__(self, spec: Spec, rows: Iterable[int]) -> None:
        self._spec = spec
        self._leaves: dict[int, Tensor] = {}
        self._slots: list[tuple[int, Row]] = []
        self._inputs: list[tuple[int, Row]] = []
        self._ids: list[int] = []
        for index in rows:
            row = spec.rows[index]
            if row.operands:
                continue
            if type(row.opcode) is Parameter:
                self._slots.append((index, row))
            elif index in spec.ids:
                self._ids.append(index)
            elif type(row.opcode) is Input:
                self._inputs.append((index, row))
            else:
                self._leaves[index] = spec.payloads[index]

    def payloads(self, table: Parameters | State, fed: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """A tensor for each source: a leaf's constant, a parameter's slot, an input's feed, state or default.

        Raises `FeedError` for a source that nothing provides, `KinshipError` for a table of another spec.
        """
        self.check(table)
        return {**self._leaves, **self.given(table.entries, fed, isinstance(table, State))}

    def check(self, table: object) -> None:
        """Raises where a table is none, or of another spec."""
        if not isinstance(table, (Parameters, State)):  # noqa: UP038 - a union takes three times as long
            raise FeedError(f"run: wants Parameters or a State, got {type(table).__name__}")
        if table.family is not self._spec.family:
            raise KinshipError("run: the table of parameters belongs to another spec")

    def given(self, held: Mapping[int, Tensor | None], fed: Mapping[int, Any], holds_inputs: bool) -> dict[int, Any]:
        """The payloads of all but the leaves: as fed, or out of what a table holds, parameters alone or inputs too."""
        values: dict[int, Any] = {}
        for index, row in self._slots:
            values[index] = self.held(index, held, row)
        for index, row in self._inputs:
            if index in fed:
                values[index] = fed[index]
            else:
                values[index] = self.held(index, held, row) if holds_inputs else self._spec.payloads[index]
        for index in self._ids:
            if index not in fed:
                raise FeedError(f"feed: {self._spec.label(index)} is a selection and must be fed")
            values[index] = fed[index]
        return values

    def constant(self, index: int) -> Tensor:
        """The payload of a leaf."""
        return self._leaves[index]

    def held(self, index: int, held: Mapping[int, Tensor | None], row: Row) -> Tensor:
        """What a table holds for a source. Raises `FeedError` where that is nothing, or does not fit."""
        tensor = held.get(index)
        if tensor is not None and tensor.element is row.element and tuple.__eq__(tensor.shape, row.shape):
            return tensor
        if tensor is None:
            raise FeedError(f"run: the table has no payload for {self._spec.label(index)}")
        raise FeedError(
            f"run: {self._spec.label(index)} wants {row.shape} {row.element}, "
            f"the table holds {tensor.shape} {tensor.element}"
        )
