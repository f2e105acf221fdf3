"""The reverse scan: the one place where cotangents are accumulated, over tensors or over traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topos.graph.spec import Row


def ancestors(rows: list[Row], targets: list[int]) -> bytearray:
    """A mark per row up to the last target: whether a target depends on it (targets included)."""
    reached = bytearray(max(targets, default=-1) + 1)
    for target in targets:
        reached[target] = 1
    for index in range(len(reached) - 1, -1, -1):
        if reached[index]:
            for operand in rows[index].operands:
                reached[operand] = 1
    return reached


def sweep(
    rows: list[Row],
    target: int,
    seed: Any,
    payload: Callable[[int], Any],
    at: Callable[[int], None] = lambda index: None,
) -> dict[int, Any]:
    """The cotangent of every row that the target depends on and a rule answers for, by row.

    Rows are taken in descending order. At each, the rule of its instruction answers the cotangents of all operands,
    which are then added in operand order, each row's first one onto a zero; the target's own seed is not added.
    `payload(row)` is a row's value, `at(row)` is told whose rule runs next.
    """
    reached = ancestors(rows, [target])
    cotangents: dict[int, Any] = {target: seed}
    for index in range(target, -1, -1):
        row = rows[index]
        if not reached[index] or not row.operands or index not in cotangents:
            continue
        at(index)
        operands = [payload(operand) for operand in row.operands]
        answers = row.opcode.vjp(operands, payload(index), cotangents[index])
        for operand, value, answer in zip(row.operands, operands, answers, strict=True):
            if answer is not None:
                held: Any = cotangents.get(operand)
                held = value.zero_like() if held is None else held
                # The operand's own element, but for a selection, which several elements read.
                cotangents[operand] = held + answer.to(held.element)
    return cotangents
