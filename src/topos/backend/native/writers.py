"""One way to write a kernel per kind of group. The code that writes a kind is loaded with the first group of it."""

from __future__ import annotations

from collections.abc import Callable

from topos.backend.native.drafts import WHOLE
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.program import Call
from topos.backend.native.reading import has_reading
from topos.backend.native.target import Target
from topos.backend.native.text import Function
from topos.loading import loaded
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
        from topos.backend.native.cascade_kernel import cascade

        return cascade(lowering, group, target, write)
    writer: Writer = loaded(_writer(lowering, group))
    return writer(lowering, group, target)


def _writer(lowering: Lowering, group: Group) -> str:
    """The name of the function that writes a group of one stage."""
    if group.in_lines:
        return "topos.backend.native.line_kernels.line_kernel"
    if group.axis is None:
        return WRITERS[type(lowering.spec.rows[group.rows[0]].opcode)]
    return "topos.backend.native.whole.whole_group" if group.axis == WHOLE else "topos.backend.native.panels.row_group"


WRITERS = ByKind[str](
    {
        MatMul: "topos.backend.native.contractions.matmul",
        Elementwise: "topos.backend.native.loops.elementwise",
        Cast: "topos.backend.native.loops.elementwise",
        Movement: "topos.backend.native.copies.copy",
        Pad: "topos.backend.native.copies.pad",
        Gather: "topos.backend.native.indexing.gather",
        Scatter: "topos.backend.native.indexing.scatter",
        Fold: "topos.backend.native.windows.fold",
    }
)
"""The function that writes each kind."""
