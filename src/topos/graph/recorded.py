"""Gradients as ordinary nodes: the reverse scan over traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from topos.errors import ElementError, ShapeError
from topos.graph.reverse import sweep
from topos.graph.symbol import Symbol
from topos.graph.value import Trace, Value

if TYPE_CHECKING:
    from topos.graph.tape import Tape


def recorded_gradients(tape: Tape, target: int, seed: Any, wrt: Sequence[int]) -> list[int]:
    """The rows of the gradients of a target with respect to each row asked for, after everything they need.

    `seed` is the target's cotangent, `None` for one. Rows that the target does not depend on get a zero each, last.
    """
    start = Trace(tape, _seed(tape, target, seed))
    cotangents = sweep(tape.spec.rows, target, start, lambda index: Trace(tape, index), tape.write)
    tape.write(None)
    for index in wrt:
        if index not in cotangents:
            cotangents[index] = Trace(tape, tape.constant(index, 0))
    return [cotangents[index].index for index in wrt]


def _seed(tape: Tape, target: int, seed: Any) -> int:
    if seed is None:
        return tape.constant(target, 1)
    wanted = tape.row(target)
    if not isinstance(seed, Value | Symbol):
        seed = tape.leaf(seed, element=wanted.element)
    index = tape.index_of(seed, "vjp")
    given = tape.row(index)
    if given.shape != wanted.shape:
        raise ShapeError(f"vjp: the seed must have the target's shape {wanted.shape}, got {given.shape}")
    if given.element is not wanted.element and given.element and wanted.element:  # a selection agrees with any
        raise ElementError(f"vjp: the seed must have the target's element {wanted.element}, got {given.element}")
    return index
