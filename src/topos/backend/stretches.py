"""How a schedule falls apart where some rows are claimed one by one: what is left, in stretches as long as can be."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from topos.graph.spec import Row, Spec
from topos.op import INPUT, Movement
from topos.records import NamedTuple


class Order(NamedTuple):
    """When a row is computed: after how many claimed rows in a chain, and within that, claimed ones first.

    Views are what moves an operand of claimed rows alone, without a copy: they follow what they look at.
    """

    depth: int
    phase: int


CLAIMED, STRETCH, VIEW = 0, 1, 2


def orders(spec: Spec, rows: Sequence[int], claimed: Collection[int], kept: Collection[int]) -> dict[int, Order]:
    """When each row that is no source is computed.

    Rows of one stretch have the same order: everything that needs as many claimed rows before it runs together.
    """
    if not claimed:
        return {row: Order(0, STRETCH) for row in rows if spec.rows[row].operands}
    views = _views(spec, rows, claimed, kept)
    found: dict[int, Order] = {}
    for row in rows:
        operands = spec.rows[row].operands
        if not operands:
            continue
        before = max((found[operand].depth for operand in operands if operand in found), default=0)
        if row in claimed:
            found[row] = Order(before + 1, CLAIMED)
        else:
            found[row] = Order(before, VIEW if row in views else STRETCH)
    return found


def _views(spec: Spec, rows: Sequence[int], claimed: Collection[int], kept: Collection[int]) -> set[int]:
    """Movements that only claimed rows read: NumPy makes views of them, and a stretch would copy."""
    users: dict[int, list[int]] = {}
    for row in rows:
        for operand in spec.rows[row].operands:
            users.setdefault(operand, []).append(row)
    views: set[int] = set()
    for row in reversed(rows):
        moves = isinstance(spec.rows[row].opcode, Movement) and row not in claimed and row not in kept
        if moves and all(user in claimed or user in views for user in users.get(row, [])):
            views.add(row)
    return views


def cut(spec: Spec, own: Sequence[int]) -> tuple[Spec, list[int]]:
    """A spec in which some rows stand over inputs in place of what they read from elsewhere, and its schedule.

    Rows keep their places; sources that they read stay sources.
    """
    inside = set(own)
    read = {operand for row in own for operand in spec.rows[row].operands} - inside
    part = Spec(spec.element)
    part.family, part.names, part.ids = spec.family, spec.names, spec.ids
    part.payloads = {row: payload for row, payload in spec.payloads.items() if row in read}
    part.rows = list(spec.rows[: max(own) + 1])
    for row in read:
        recorded = spec.rows[row]
        if recorded.operands:
            part.rows[row] = Row(INPUT, (), recorded.shape, recorded.element, recorded.place, None)
    return part, sorted(read | inside)
