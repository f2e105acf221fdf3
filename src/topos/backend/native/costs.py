"""What rows cost, and how wide a kernel of them should be."""

from __future__ import annotations

from collections.abc import Sequence

from topos.graph.spec import Spec


def weight(spec: Spec, rows: Sequence[int]) -> int:
    """What a chain of rows costs an element, in plain operations: an elementary function counts for many."""
    return sum(12 if is_dear(spec, row) else 1 for row in rows) or 1


def is_dear(spec: Spec, row: int) -> bool:
    """Whether a row takes an elementary function of every number."""
    return spec.rows[row].opcode.name in _DEAR


_DEAR = {
    "Exp",
    "Ln",
    "Tanh",
    "Sin",
    "Cos",
    "Log1p",
    "Expm1",
    "Erf",
    "ErfDerivative",
    "Powf",
    "LogSumExp",
    "LogSoftmax",
}


def lanes_up_to(most: int, extent: int) -> int:
    """The least power of two that holds an extent, and at most so many."""
    lanes = 1
    while lanes < min(most, extent):
        lanes *= 2
    return lanes
