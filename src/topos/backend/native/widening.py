"""Casts that products do themselves: an operand that is stored narrower is widened as it is read, exactly."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from topos.element import bf16, f32, f64
from topos.graph.spec import Spec
from topos.op import Broadcast, BroadcastAlong, Cast, MatMul, Narrow, Permute

_WIDER = {(bf16, f32), (bf16, f64), (f32, f64)}
_VIEWS = Broadcast, BroadcastAlong, Narrow, Permute


def widened_by_products(spec: Spec, scheduled: Sequence[int], kept: Collection[int]) -> set[int]:
    """The widening casts that nobody but products reads, directly or through movements that are always views."""
    others: set[int] = set()
    for row in reversed(scheduled):
        recorded = spec.rows[row]
        passes = isinstance(recorded.opcode, _VIEWS) and row not in others and row not in kept
        if not passes and not isinstance(recorded.opcode, MatMul):
            others.update(recorded.operands)
    return {
        row
        for row in scheduled
        if isinstance(spec.rows[row].opcode, Cast)
        and row not in others
        and row not in kept
        and (spec.rows[spec.rows[row].operands[0]].element, spec.rows[row].element) in _WIDER
    }
