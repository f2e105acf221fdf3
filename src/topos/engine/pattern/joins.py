"""Concatenation by padded adds, and rows of a table by ids."""

from __future__ import annotations

from collections.abc import Iterator

from topos.engine.pattern.columns import Columns, zero_addend
from topos.engine.pattern.form import made
from topos.engine.pattern.match import Match
from topos.op import Add, Gather, Pad, Scatter


def found(columns: Columns) -> Iterator[Match]:
    """Every concatenation, every row that is looked up, every row that is added back."""
    for row, recorded in enumerate(columns.rows):
        match = None
        if isinstance(recorded.opcode, Gather):
            table, selection = recorded.operands
            match = made(columns, "embedding", "EMBEDDING", row, [row], {"table": table, "ids": selection}, {}, {})
        elif isinstance(recorded.opcode, Scatter):
            match = _scattered(columns, row, row, [row])
        elif isinstance(recorded.opcode, Add) and Pad in columns.kinds:
            match = _concatenation(columns, row)
        if match is None and isinstance(recorded.opcode, Add) and Scatter in columns.kinds:
            match = _added(columns, row)
        if match is not None:
            yield match


def _added(columns: Columns, row: int) -> Match | None:
    """Rows added back onto the scan's zero."""
    zero = zero_addend(columns, row)
    if zero is None or not isinstance(columns.rows[zero[0]].opcode, Scatter):
        return None
    return _scattered(columns, row, zero[0], [row, zero[0], *zero[1]])


def _scattered(columns: Columns, root: int, scatter: int, rows: list[int]) -> Match:
    cotangent, selection = columns.rows[scatter].operands
    operands = {"cotangent": cotangent, "ids": selection}
    return made(columns, "embedding gradient", "EMBEDDING_GRADIENT", root, rows, operands, {}, {})


def _concatenation(columns: Columns, root: int) -> Match | None:
    """Parts that follow on one another along an axis, from its end to its beginning, each added to those before."""
    rows, parts, row, end = [root], [], root, columns.rows[root].shape
    last = _part(columns, columns.rows[root].operands[1])
    if last is None or last[0].start + last[1] != last[0].full_extent:
        return None
    axis, stop = last[0].axis, end[last[0].axis]
    while True:
        left, right = columns.rows[row].operands if isinstance(columns.rows[row].opcode, Add) else (None, row)
        part = _part(columns, right)
        if part is None or part[0].axis != axis or part[0].start + part[1] != stop:
            return None
        parts.append(columns.rows[right].operands[0])
        rows += [right, row]
        stop = part[0].start
        if left is None:
            break
        row = left
    if stop != 0 or len(parts) < 2:
        return None
    named = {f"part {at}": part for at, part in enumerate(reversed(parts))}
    return made(columns, "concatenation", "CONCATENATION", root, set(rows), named, {}, {"axis": axis})


def _part(columns: Columns, row: int) -> tuple[Pad, int] | None:
    """A pad that stands beside others and is filled with what changes no addend, and the extent of its operand."""
    opcode = columns.rows[row].opcode
    if not isinstance(opcode, Pad) or repr(opcode.fill) != "-0.0":
        return None
    return opcode, columns.rows[columns.rows[row].operands[0]].shape[opcode.axis]
