"""Kernels that walk a shape once, its values in registers."""

from __future__ import annotations

from math import prod

from topos.backend.native.costs import is_dear, lanes_up_to, weight
from topos.backend.native.evaluator import Evaluator, needed
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.nest import Frame
from topos.backend.native.program import Call
from topos.backend.native.reads import Place
from topos.backend.native.registers import Integer
from topos.backend.native.stream import passes_caches, streamed
from topos.backend.native.target import Target
from topos.backend.native.views import dense, dense_strides
from topos.backend.native.vocabulary import Lanes

CLOSE = 1 << 12
"""Elements up to which a kernel of elementary functions is better compiled soon than run fast."""
FAR = 1 << 16
"""Elements from which a chain of elementary functions works on several registers at once: it then pays to compile."""

LONG = 64
"""Bytes of the longest registers, of which there are 32."""


def lanes_for(lowering: Lowering, group: Group, target: Target) -> int:
    """A register's worth of the group's numbers (of the narrower ones where it mixes elements), or no more than exist.

    Several registers side by side hide the latency of a polynomial's steps. Functions of binary32 are worked out in
    binary64, so a register of that compiles in half the time; where registers are long there are also enough of them
    for all of its numbers, and the processor itself works ahead.
    """
    spec = lowering.spec
    wide = all(spec.element_of(row).dtype.itemsize == 8 for row in group.rows)
    dear = any(is_dear(spec, row) for row in group.rows)
    volume = group.shape.volume
    if dear and not wide and (volume < CLOSE or target.vector_bytes == LONG):
        return lanes_up_to(target.lanes(8), volume)
    registers = 1 if not dear or volume < FAR else 2
    return lanes_up_to(registers * target.lanes(8 if wide else 4), volume)


def elementwise(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """A chain of elementwise rows over one shape, each value in a register, the stored ones written as they come."""
    frame = Frame(lowering, target, lanes_for(lowering, group, target))
    for row in group.reads:
        frame.read(row)
    outputs = [(row, frame.add(dense(row, group.shape), frame.element(row).dtype.itemsize)) for row in group.writes]
    extents, (written,) = frame.lay(group.shape, [dense_strides(group.shape)])
    evaluator, rows = Evaluator(frame, group), needed(frame, group)
    passing = [pointer for row, pointer in outputs if len(extents) == 1 and passes_caches(frame, row)]
    # Shorter registers take several times as long for a masked vector: one loop is only less text to compile.
    is_one_loop = target.vector_bytes == LONG or group.shape.volume < CLOSE
    fetched = [read for read in frame.reads.values() if any(is_dear(lowering.spec, row) for row in rows)]

    def body(outer: tuple[Integer, ...], begin: Integer, end: Integer) -> None:
        if passing:
            bounds = begin, end, extents[-1]
            begin = streamed(frame, passing, fetched, bounds, lambda index: at(Place(outer, index, None)))
        frame.vectors(begin, end, extents[-1], lambda index, count: at(Place(outer, index, count)), is_one_loop)

    def at(place: Place) -> None:
        held: dict[int, Lanes] = {}
        evaluator.evaluate(rows, held, evaluator.values(place, held))
        for row, pointer in outputs:
            frame.store(frame.arithmetic(frame.element(row)), held[row], pointer, written, place)

    tiles = frame.tiled(extents, prod(extents) * weight(lowering.spec, rows), body)
    return Call((frame.kernel("elementwise", tiles),), frame.pointers)
