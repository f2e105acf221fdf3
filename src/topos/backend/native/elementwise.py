"""The plainest kernel: a chain of elementwise instructions over contiguous arrays of one length."""

from __future__ import annotations

from collections.abc import Sequence

from topos.backend.native.arithmetic import Arithmetic, arithmetic
from topos.backend.native.kernel import Kernel
from topos.backend.native.registers import INT64, Integer, Operand
from topos.backend.native.sweep import sweep
from topos.backend.native.target import Target
from topos.backend.native.text import Function
from topos.backend.native.vocabulary import NativeReading
from topos.element import Element
from topos.op.elementwise import Cast, Elementwise

TILE = 1 << 14
"""Elements per tile: worth a thread's attention, and the operands of a chain stay in the L2 cache."""

Step = Elementwise | Cast


def elementwise_kernel(
    chain: Step | Sequence[Step],
    element: Element,
    length: int,
    target: Target,
    lanes: int = 0,
    overlapping: bool = False,
) -> Kernel:
    """A kernel that runs a chain of instructions over arrays of `length` numbers of one element.

    The first instruction takes its operands from the first buffers; each further one takes the result before it, then
    the next buffers. The last buffer is the result's, of the element that the last `Cast` names. `lanes` is two
    registers' worth unless it is given: two vectors side by side hide the latency of a polynomial's steps.
    `overlapping` as in `sweep`, for a result that is no operand's buffer.
    """
    steps = [chain] if isinstance(chain, Elementwise | Cast) else list(chain)
    function = Function()
    lanes = lanes or 2 * target.lanes(max(4, element.dtype.itemsize))
    source = arithmetic(element, NativeReading(function, lanes, target))
    count = 1 + sum(step.arity - 1 for step in steps)
    buffers = [function.argument(position) for position in range(count + 1)]

    def round_at(index: Integer, active: int | None) -> None:
        write_round(steps, source, buffers, index, active)

    tile = TILE // lanes * lanes
    begin: Integer = 0
    if length > tile:
        begin = function.multiply(Operand(INT64, "%tile"), tile)
    sweep(function, length, lanes, round_at, begin, function.add(begin, tile), overlapping)
    return function.kernel("elementwise", max(1, -(-length // tile)))


def write_round(
    steps: Sequence[Step], source: Arithmetic, buffers: Sequence[Operand], index: Integer, count: int | None
) -> None:
    """One vector of the chain: loads, bodies, store; the first `count` lanes only, where given."""
    current = source
    unread = iter(buffers)
    value = source.load(source.offset(next(unread), index), count)
    for step in steps:
        if isinstance(step, Cast):
            wanted = arithmetic(step.element, source.reading)
            value = wanted.cast(value, current)
            current = wanted
            continue
        others = [current.load(current.offset(next(unread), index), count) for _ in range(step.arity - 1)]
        value = step.body(current, value, *others)
    current.store(value, current.offset(next(unread), index), count)
