"""Chains of elementwise instructions as kernels by themselves: what the tests of lanes run."""

from __future__ import annotations

from collections.abc import Sequence

from topos.backend.native.arithmetic import Arithmetic, arithmetic
from topos.backend.native.kernel import Kernel
from topos.backend.native.registers import Integer, Operand
from topos.backend.native.target import Target
from topos.backend.native.text import Function
from topos.backend.native.vocabulary import NativeReading
from topos.element import Element
from topos.op.elementwise import Cast, Elementwise

Step = Elementwise | Cast


def chain_kernel(chain: Step | Sequence[Step], element: Element, length: int, target: Target, lanes: int = 0) -> Kernel:
    """A kernel of one tile that runs a chain of instructions over arrays of `length` numbers of one element.

    The first instruction takes its operands from the first buffers; each further one takes the result before it, then
    the next buffers. The last buffer is the result's, of the element that the last `Cast` names. `lanes` is two
    registers' worth unless it is given.
    """
    steps = [chain] if isinstance(chain, Elementwise | Cast) else list(chain)
    function = Function()
    lanes = lanes or 2 * target.lanes(max(4, element.dtype.itemsize))
    source = arithmetic(element, NativeReading(function, lanes, target))
    buffers = [function.argument(position) for position in range(2 + sum(step.arity - 1 for step in steps))]
    whole = length // lanes * lanes
    function.loop(0, whole, lanes, lambda index: write_round(steps, source, buffers, index, None))
    if whole < length:
        write_round(steps, source, buffers, whole, length - whole)
    return function.kernel("chain", 1)


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
