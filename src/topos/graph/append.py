"""Recording one instruction: operands resolved, rules checked, then rows appended; the hot path of a tape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topos.element import Element
from topos.errors import ElementError, ToposError, restated
from topos.graph.spec import Spec
from topos.graph.symbol import Symbol
from topos.graph.value import Trace
from topos.op import LEAF, Broadcast, Elementwise, Indexing, Opcode
from topos.op.recordable import is_number
from topos.shape import Shape
from topos.tensor import Tensor

if TYPE_CHECKING:
    from topos.graph.recording import Recording


def append(tape: Recording, opcode: Opcode, operands: tuple[Any, ...]) -> int:
    """Appends an instruction, after the leaves that plain operands become; answers its row.

    Everything is checked first: an error leaves the rows as they were and carries a line per operand.
    """
    spec = tape.spec
    length = len(spec.rows)
    indices = []
    for operand in operands:
        if isinstance(operand, Trace) and operand.recording is tape and operand.index < length:
            indices.append(operand.index)
        else:
            return _append_plain(tape, spec, opcode, operands)
    return append_row(spec, opcode, indices, tape.origin)


def append_row(spec: Spec, opcode: Opcode, indices: list[int], origin: int | None) -> int:
    """Appends an instruction over rows of the spec, after its rules have checked them; answers its row."""
    operands = [spec.rows[index] for index in indices]
    try:
        shape = opcode.result_shape([row.shape for row in operands])
        element = opcode.result_element([row.element for row in operands]) or spec.element
        if isinstance(opcode, Indexing) and not spec.is_selection(indices[1]):
            raise ElementError(
                f"{opcode.rule}: the ids must be a selection (tape.selection, or a leaf of Tensor.selection)"
            )
    except ToposError as error:
        raise error.placed(spec.facts(opcode.roles, indices)) from None
    return spec.add(opcode, tuple(indices), shape, element, origin)


def _append_plain(tape: Recording, spec: Spec, opcode: Opcode, operands: tuple[Any, ...]) -> int:
    """The instruction with a number, array, tensor or symbol among its operands."""
    recorded = [tape.index_of(o, opcode.rule) if isinstance(o, Trace | Symbol) else None for o in operands]
    known = {role: index for role, index in zip(opcode.roles, recorded, strict=True) if index is not None}
    try:
        element = opcode.result_element([spec.rows[index].element for index in known.values()]) or spec.element
    except ToposError as error:
        raise error.placed(spec.facts(tuple(known), list(known.values()))) from None
    payloads = [o if i is not None else _tensor(o, element, opcode) for o, i in zip(operands, recorded, strict=True)]
    shapes = [
        spec.rows[index].shape if index is not None else payload.shape
        for payload, index in zip(payloads, recorded, strict=True)
    ]
    spread = _spread(opcode, operands, shapes)
    mark = len(spec.rows)
    try:
        indices = [
            index if index is not None else _leaf(tape, spec, payload, spread if is_number(operand) else None)
            for operand, payload, index in zip(operands, payloads, recorded, strict=True)
        ]
        return append_row(spec, opcode, indices, tape.origin)
    except BaseException:
        spec.truncate(mark)
        raise


def _leaf(tape: Recording, spec: Spec, payload: Tensor, spread: Shape | None) -> int:
    index = tape.place(LEAF, payload)
    return append_row(spec, Broadcast(spread), [index], tape.origin) if spread else index


def _tensor(operand: Any, element: Element, opcode: Opcode) -> Tensor:
    try:
        return Tensor(operand, element)
    except ToposError as error:
        raise restated(error, type(error), f"{opcode.rule}: {error}") from None


def _spread(opcode: Opcode, operands: tuple[Any, ...], shapes: list[Shape]) -> Shape | None:
    """The shape that numbers take beside the other operands of an elementwise instruction."""
    if isinstance(opcode, Elementwise):
        for operand, shape in zip(operands, shapes, strict=True):
            if not is_number(operand):
                return shape
    return None
