"""From a schedule to what runs it: native code, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from topos.backend.native.arithmetic import has_arithmetic
from topos.backend.native.executable import Executable, element_of
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.llvm import available
from topos.backend.native.program import assembled
from topos.backend.native.settings import environment
from topos.backend.native.target import current
from topos.backend.native.writers import write
from topos.graph.spec import Spec


class NoKernel(NamedTuple):
    """Why a schedule has no native form, and the rows that stand in its way, where they are known."""

    reason: str
    rows: tuple[int, ...] = ()


def executable(
    spec: Spec, scheduled: Sequence[int], results: Iterable[int], carried: Mapping[int, int]
) -> Executable | NoKernel:
    """The native form of a schedule, compiled, or why there is none.

    `results` are the rows that a run answers, `carried` the row that replaces each carried source. Sources are no
    results of its: the caller knows their values.
    """
    if environment("TOPOS_NATIVE") == "0":
        return NoKernel("TOPOS_NATIVE=0")
    reason = available()
    if reason is not None:
        return NoKernel(reason)
    for element in {element_of(spec, row) for row in scheduled}:
        if not has_arithmetic(element):
            return NoKernel(f"element {element} has no native reading")
    target = current()
    answered = frozenset(results)
    lowering = Lowering(spec, scheduled, answered.union(carried.values()))
    program = assembled(lowering, lambda given, group: write(given, group, target), carried, answered)
    if isinstance(program, Group):
        return NoKernel(f"no kernel for {spec.label(program.rows[-1])}", tuple(program.rows))
    return Executable(lowering, program, answered, target)
