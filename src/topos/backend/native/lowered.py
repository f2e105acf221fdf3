"""From a schedule to what runs it: native code, or the reason why there is none."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from topos.backend.native.arithmetic import has_arithmetic
from topos.backend.native.cascades import with_cascades
from topos.backend.native.compiler import CompilationError
from topos.backend.native.destinations import with_destinations
from topos.backend.native.executable import Executable
from topos.backend.native.groups import Group, Lowering, declined
from topos.backend.native.llvm import available
from topos.backend.native.program import Call, assembled
from topos.backend.native.replacing import replaced, replaces_rows
from topos.backend.native.settings import environment
from topos.backend.native.target import Target, current
from topos.backend.native.writers import write
from topos.backend.task import Declined
from topos.engine.entry import Entry
from topos.engine.liveness import schedule
from topos.graph.spec import Spec
from topos.op import Movement, Pad


def lowered(spec: Spec, rows: Sequence[int], entry: Entry, stepping: bool) -> Executable | Declined:
    """The native form of an entry's run, or of a step that replaces what it carries, compiled."""
    if entry.backward:  # a movement is a view of its operand: nothing to compute
        every = [row for row in rows if spec.rows[row].operands and not _is_view(spec, row)]
        return executable(spec, rows, every, {})
    results = [symbol.index for symbol in entry.results]
    if not stepping:
        return executable(spec, schedule(spec.rows, results), results, {})
    carried = {source.index: following.index for source, following in entry.carry.items()}
    return executable(spec, rows, results, carried)


def _is_view(spec: Spec, row: int) -> bool:
    opcode = spec.rows[row].opcode
    return isinstance(opcode, Movement) and not isinstance(opcode, Pad)


def executable(
    spec: Spec, scheduled: Sequence[int], results: Iterable[int], carried: Mapping[int, int]
) -> Executable | Declined:
    """The native form of a schedule, compiled, or why there is none.

    `results` are the rows that a run answers, `carried` the row that replaces each carried source. Sources are no
    results of its: the caller knows their values.
    """
    if environment("TOPOS_NATIVE") == "0":
        return Declined("TOPOS_NATIVE=0")
    reason = declined(spec, scheduled) or available()
    if reason is not None:
        return Declined(reason)
    for row in scheduled:
        if not has_arithmetic(spec.element_of(row)):
            return Declined(f"element {spec.element_of(row)} has no native reading", (row,))
    target = current()
    answered = frozenset(results)
    lowering = Lowering(spec, scheduled, answered.union(carried.values()))
    lowering.groups = with_cascades(lowering, lowering.groups)
    lowering.groups = with_destinations(lowering, lowering.groups, answered.difference(carried.values()))
    program = assembled(lowering, partial(_written, target), carried, answered)
    if isinstance(program, Group):
        return Declined(f"no kernel for {spec.label(program.rows[-1])}", tuple(program.rows))
    try:
        return Executable(lowering, program, answered, target)
    except CompilationError as error:  # a fault of ours: the bits are the interpreter's all the same
        warnings.warn(f"a plan is interpreted: its native code does not compile: {error}", RuntimeWarning, 2)
        return Declined(f"its native code does not compile: {error}")


def _written(target: Target, lowering: Lowering, group: Group, in_place: Mapping[int, int]) -> Call | None:
    """The kernels of a group; where it replaces a few rows of a carried buffer, of those alone."""
    if in_place and replaces_rows(lowering, group, in_place):
        return replaced(lowering, group, target, in_place)
    return write(lowering, group, target)
