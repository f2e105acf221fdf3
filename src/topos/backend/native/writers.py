"""One way to write a kernel per kind of group. The code that writes a kind is loaded with the first group of it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from topos.backend.native.drafts import WHOLE
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.program import Call
from topos.backend.native.reading import has_reading
from topos.backend.native.target import Target
from topos.backend.native.text import Function
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
    if group.axis is not None:
        return _writer("whole.whole_group" if group.axis == WHOLE else "panels.row_group")(lowering, group, target)
    return _writer(WRITERS[type(spec.rows[group.rows[0]].opcode)])(lowering, group, target)


def _writer(name: str) -> Writer:
    module, _, function = name.partition(".")
    found: Writer = getattr(import_module(f"topos.backend.native.{module}"), function)
    return found


WRITERS = ByKind[str](
    {
        MatMul: "contractions.matmul",
        Elementwise: "loops.elementwise",
        Cast: "loops.elementwise",
        Movement: "copies.copy",
        Pad: "copies.pad",
        Gather: "indexing.gather",
        Scatter: "indexing.scatter",
        Fold: "windows.fold",
    }
)
"""The function that writes each kind, after its module."""
