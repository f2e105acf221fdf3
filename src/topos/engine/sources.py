"""What stands in the sources of a run: a spec's constants, the caller's table, and what was fed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from topos.engine.state import State
from topos.errors import FeedError, KinshipError
from topos.graph import Parameters
from topos.graph.spec import Spec
from topos.op import Input, Parameter
from topos.tensor import Tensor


def sources_of(spec: Spec, rows: Iterable[int]) -> list[int]:
    """The rows that are sources."""
    return [index for index in rows if not spec.rows[index].operands]


def source_payloads(
    spec: Spec, sources: Iterable[int], table: Parameters | State, fed: Mapping[int, Tensor]
) -> dict[int, Tensor]:
    """A tensor for each source: a leaf's constant, a parameter's slot, an input's feed, state or default.

    Raises `FeedError` for a source that nothing provides, `KinshipError` for a table of another spec.
    """
    if not isinstance(table, Parameters | State):
        raise FeedError(f"run: wants Parameters or a State, got {type(table).__name__}")
    if table.family is not spec.family:
        raise KinshipError("run: the table of parameters belongs to another spec")
    held, inputs_too = table.entries, isinstance(table, State)  # once: a State's are replaced all together
    return {index: _source(spec, index, held, inputs_too, fed) for index in sources}


def _source(
    spec: Spec, index: int, held: Mapping[int, Tensor | None], inputs_too: bool, fed: Mapping[int, Tensor]
) -> Tensor:
    kind = type(spec.rows[index].opcode)
    if kind is Parameter:
        return _held(spec, index, held)
    if kind is Input:
        if index in fed:
            return fed[index]
        if index in spec.ids:
            raise FeedError(f"feed: {spec.label(index)} is a selection and must be fed")
        if inputs_too:
            return _held(spec, index, held)
    return spec.payloads[index]


def _held(spec: Spec, index: int, held: Mapping[int, Tensor | None]) -> Tensor:
    tensor, row = held.get(index), spec.rows[index]
    if tensor is None:
        raise FeedError(f"run: the table has no payload for {spec.label(index)}")
    if tensor.shape != row.shape or tensor.element is not row.element:
        raise FeedError(
            f"run: {spec.label(index)} wants {row.shape} {row.element}, the table holds {tensor.shape} {tensor.element}"
        )
    return tensor
