"""One way to write a kernel per kind of group."""

from __future__ import annotations

from collections.abc import Callable

from topos.backend.native import indexing, loops
from topos.backend.native.arithmetic import has_arithmetic
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.loops import Written
from topos.backend.native.reductions import reduction
from topos.backend.native.target import Target
from topos.backend.native.text import Function
from topos.op import Cast, Elementwise, Fold, Gather, Movement, Pad, Reduction, Scatter

Writer = Callable[[Lowering, Group, Target], Written | None]


def write(lowering: Lowering, group: Group, target: Target) -> Written | None:
    """The kernel of a group, and its operands; `None` where the interpreter has to do it."""
    spec = lowering.spec
    for row in (*group.rows, *group.reads):
        if not has_arithmetic(spec.rows[row].element or spec.element):
            return None
    if not any(spec.rows[row].shape.volume for row in group.writes):
        return Function().kernel("nothing", 1), []
    opcode = spec.rows[group.rows[-1]].opcode
    kind = next((base for base in type(opcode).__mro__ if base in WRITERS), None)
    return None if kind is None else WRITERS[kind](lowering, group, target)


WRITERS: dict[type, Writer] = {
    Elementwise: loops.elementwise,
    Cast: loops.elementwise,
    Movement: loops.copy,
    Pad: loops.pad,
    Gather: indexing.gather,
    Scatter: indexing.scatter,
    Fold: indexing.fold,
    Reduction: reduction,
}
