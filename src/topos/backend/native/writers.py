"""One way to write a kernel per kind of group."""

from __future__ import annotations

from collections.abc import Callable

from topos.backend.native import indexing, loops, windows
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.placement import WHOLE
from topos.backend.native.products import Batch, ProductTask, product
from topos.backend.native.program import Call, Operand
from topos.backend.native.reading import has_reading
from topos.backend.native.reductions import row_group
from topos.backend.native.target import Target
from topos.backend.native.text import Function
from topos.backend.native.views import dense
from topos.backend.native.whole import whole_group
from topos.op import Cast, Elementwise, Fold, Gather, MatMul, Movement, Pad, Scatter

Writer = Callable[[Lowering, Group, Target], Call | None]


def write(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """The kernel of a group, and its operands; `None` where the interpreter has to do it."""
    spec = lowering.spec
    for row in group.rows:
        operands = [spec.rows[operand].element or spec.element for operand in spec.rows[row].operands]
        if not has_reading(spec.rows[row].opcode, spec.rows[row].element or spec.element, operands):
            return None
    if not any(spec.rows[row].shape.volume for row in group.writes):
        return Call((Function().kernel("nothing", 1),), [])
    if group.axis is not None:
        return (whole_group if group.axis == WHOLE else row_group)(lowering, group, target)
    opcode = spec.rows[group.rows[-1]].opcode
    kind = next((base for base in type(opcode).__mro__ if base in WRITERS), None)
    return None if kind is None else WRITERS[kind](lowering, group, target)


def matmul(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """A product, its operands read where they lie."""
    (row,) = group.rows
    recorded = lowering.spec.rows[row]
    left, right = (lowering.view(operand) for operand in recorded.operands)
    if any(lowering.spec.is_selection(view.row) for view in (left, right)):
        return None
    element = recorded.element or lowering.spec.element
    out = dense(row, recorded.shape)
    batch = tuple(
        Batch(recorded.shape[axis], left.strides[axis], right.strides[axis], out.strides[axis])
        for axis in range(recorded.shape.rank - 2)
    )
    rows, columns = recorded.shape[-2:]
    task = ProductTask(
        element.name,
        rows,
        left.shape[-1],
        columns,
        (left.strides[-2], left.strides[-1]),
        (right.strides[-2], right.strides[-1]),
        (out.strides[-2], out.strides[-1]),
        batch,
    )
    item = element.dtype.itemsize
    return Call(product(task, target), [Operand(view.row, view.offset * item) for view in (left, right, out)])


WRITERS: dict[type, Writer] = {
    MatMul: matmul,
    Elementwise: loops.elementwise,
    Cast: loops.elementwise,
    Movement: loops.copy,
    Pad: loops.pad,
    Gather: indexing.gather,
    Scatter: indexing.scatter,
    Fold: windows.fold,
}
