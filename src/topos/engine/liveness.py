"""When each value of a schedule is born, last read and freed, and how much lives at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from topos.graph.reverse import ancestors
from topos.graph.spec import Row, Spec


def schedule(rows: list[Row], targets: Sequence[int]) -> list[int]:
    """The rows that the targets depend on, targets included, in recording order."""
    return [index for index, reached in enumerate(ancestors(rows, list(targets))) if reached]


def last_uses(
    rows: list[Row], scheduled: Iterable[int], reads: Mapping[int, Sequence[int]] = MappingProxyType({})
) -> dict[int, int]:
    """The last scheduled row that reads each row; a row that none reads is its own.

    `reads` tells what a row reads where that is not its operands.
    """
    last: dict[int, int] = {}
    for index in scheduled:
        last[index] = index
        for operand in reads.get(index, rows[index].operands):
            last[operand] = index
    return last


def read_by_rules(rows: list[Row], scheduled: Iterable[int]) -> set[int]:
    """The rows whose values a backward sweep reads: operands and outputs that some derivative rule declares."""
    read: set[int] = set()
    for index in scheduled:
        row = rows[index]
        read.update(row.operands[position] for position in row.opcode.reads)
        if row.opcode.reads_output:
            read.add(index)
    return read


def freed_by(freed_after: Mapping[int, int]) -> dict[int, list[int]]:
    """The values that each row frees, from the row after which each value goes."""
    freed: dict[int, list[int]] = {}
    for index, after in freed_after.items():
        freed.setdefault(after, []).append(index)
    return freed


def volume(spec: Spec, index: int) -> int:
    """How many numbers a row's value holds: its elements, or the ids of a selection."""
    return spec.rows[index].shape[0] if spec.is_selection(index) else spec.rows[index].shape.volume


def live_volumes(
    spec: Spec,
    scheduled: Sequence[int],
    freed_after: Mapping[int, int],
    born: Mapping[int, Sequence[int]] = MappingProxyType({}),
) -> list[int]:
    """The elements alive when each scheduled row has just been evaluated, before what it was the last to read goes.

    `freed_after` names the row after which a value is freed; a value it does not name stays. `born` tells which values
    come with a row, where that is not its own alone.
    """
    dying = freed_by(freed_after)
    alive, series = 0, []
    for index in scheduled:
        alive += sum(volume(spec, value) for value in born.get(index, (index,)))
        series.append(alive)
        alive -= sum(volume(spec, dead) for dead in dying.get(index, ()))
    return series
