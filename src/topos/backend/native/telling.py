"""What a lowering says of its groups: texts for a reader who knows the program, with its numbers of nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from topos.backend.native.drafts import WHOLE
from topos.backend.native.groups import Group, Lowering
from topos.engine.code import Compositions


def told_groups(lowering: Lowering, compositions: Compositions = ()) -> list[str]:
    """One line per group: its shape and axis, what it computes, reads and stores, why it is no part of another.

    It is told of which compositions a group computes any node.
    """
    lines = []
    for at, (group, work) in enumerate(zip(lowering.groups, told_work(lowering), strict=True)):
        stored = [lowering.written_as.get(row, row) for row in group.writes]
        reads, writes = (
            ", ".join(dict.fromkeys(str(lowering.recorded(row)) for row in part)) for part in (group.reads, stored)
        )
        axis = "" if group.axis is None else " whole" if group.axis == WHOLE else f" along {group.axis}"
        why = re.sub(r"%(\d+)", lambda named: f"%{lowering.recorded(int(named[1]))}", group.why)
        told = f"{at:>4}  {group.shape!s:13}{axis}  {work}  reads {reads or 'nothing'}  stores {writes}"
        kinds = _kinds(lowering, group, compositions)
        lines.append(f"{told}  of {', '.join(kinds)}  ({why})" if kinds else f"{told}  ({why})")
    return lines


def _kinds(lowering: Lowering, group: Group, compositions: Compositions) -> list[str]:
    """The compositions of which a group computes any node."""
    packed = [row for prologue in group.prologues.values() for row in prologue.rows]
    rows = set(map(lowering.recorded, [*group.rows, *packed])) if compositions else set()
    return list(dict.fromkeys(kind for kind, nodes in compositions if not rows.isdisjoint(nodes)))


def told_work(lowering: Lowering) -> list[str]:
    """What each group computes: its nodes by stage, those of packed operands, and what is computed again."""
    before: set[int] = set()
    told = []
    for group in lowering.groups:
        work = " | ".join(_told(lowering, stage.rows) for stage in group.stages or [group])
        for position, prologue in sorted(group.prologues.items()):
            work += f"  {'left' if position == 0 else 'right'} operand packed as {_told(lowering, prologue.rows)}"
        nodes = list(map(lowering.recorded, group.rows))
        again = ", ".join(str(node) for node in dict.fromkeys(nodes) if node in before)
        told.append(f"{work}  works out {again} again" if again else work)
        before.update(nodes)
    return told


def _told(lowering: Lowering, rows: Iterable[int]) -> str:
    """Some rows, each by its number and its instruction."""
    return " ".join(f"{lowering.recorded(row)}:{lowering.spec.rows[row].opcode.name}" for row in rows)
