"""One way to write a kernel per kind of group."""

from __future__ import annotations

from collections.abc import Callable

from topos.backend.native import contractions, copies, indexing, loops, windows
from topos.backend.native.cascade_kernel import cascade
from topos.backend.native.drafts import WHOLE
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.panels import row_group
from topos.backend.native.program import Call
from topos.backend.native.reading import has_reading
from topos.backend.native.target import Target
from topos.backend.native.text import Function
from topos.backend.native.whole import whole_group
from topos.op import Cast, Elementwise, Fold, Gather, MatMul, Movement, Pad, Scatter
from topos.op.kinds import ByKind

Writer = Callable[[Lowering, Group, Target], Call | None]


def write(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """The kernel of a group, and its operands; `None` where the interpreter has to do it."""
    spec = lowering.spec
    for row in group.rows:
        operands = [spec.element_of(operand) for operand in spec.rows[row].operands]
        if not has_reading(spec.rows[row].opcode, spec.element_of(row), operands):
            return None
    if not any(spec.rows[row].shape.volume for row in group.writes):
        return Call((Function().kernel("nothing", 1),), [])
    if group.stages:
        return cascade(lowering, group, target, write)
    if group.axis is not None:
        return (whole_group if group.axis == WHOLE else row_group)(lowering, group, target)
    return WRITERS[type(spec.rows[group.rows[0]].opcode)](lowering, group, target)


WRITERS = ByKind[Writer](
    {
        MatMul: contractions.matmul,
        Elementwise: loops.elementwise,
        Cast: loops.elementwise,
        Movement: copies.copy,
        Pad: copies.pad,
        Gather: indexing.gather,
        Scatter: indexing.scatter,
        Fold: windows.fold,
    }
)
