"""From a schedule to what runs it: native code, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from topos.backend.native.arithmetic import has_arithmetic
from topos.backend.native.executable import Executable, element_of
from topos.backend.native.groups import Group, Lowering, declined
from topos.backend.native.llvm import available
from topos.backend.native.program import assembled
from topos.backend.native.settings import environment
from topos.backend.native.target import current
from topos.backend.native.writers import write
from topos.engine.entry import Entry
from topos.engine.liveness import schedule
from topos.graph.spec import Spec
from topos.op import Movement, Pad


class Interpreted(NamedTuple):
    """A schedule that the interpreter runs, and why; `rows` are those that stand in the way, where they are known."""

    reason: str
    rows: tuple[int, ...] = ()

    def explain(self) -> str:
        """The reason."""
        return f"interpreted: {self.reason}"

    def llvm(self) -> str:
        """No text."""
        return f"; interpreted: {self.reason}\n"


def lowered(spec: Spec, rows: Sequence[int], entry: Entry, stepping: bool) -> Executable | Interpreted:
    """The native form of an entry's run, or of a step that replaces what it carries, compiled."""
    if entry.diagnose:
        return Interpreted("a diagnosed entry watches every value")
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
) -> Executable | Interpreted:
    """The native form of a schedule, compiled, or why there is none.

    `results` are the rows that a run answers, `carried` the row that replaces each carried source. Sources are no
    results of its: the caller knows their values.
    """
    if environment("TOPOS_NATIVE") == "0":
        return Interpreted("TOPOS_NATIVE=0")
    reason = declined(spec, scheduled) or available()
    if reason is not None:
        return Interpreted(reason)
    for row in scheduled:
        if not has_arithmetic(element_of(spec, row)):
            return Interpreted(f"element {element_of(spec, row)} has no native reading", (row,))
    target = current()
    answered = frozenset(results)
    lowering = Lowering(spec, scheduled, answered.union(carried.values()))
    program = assembled(lowering, lambda given, group: write(given, group, target), carried, answered)
    if isinstance(program, Group):
        return Interpreted(f"no kernel for {spec.label(program.rows[-1])}", tuple(program.rows))
    return Executable(lowering, program, answered, target)
