"""What each reduction does with the rows of its operand."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from topos.backend.native.arithmetic import Arithmetic
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.loops import readable
from topos.backend.native.nest import Frame, Place, merged, total, weight
from topos.backend.native.program import Call
from topos.backend.native.registers import Integer
from topos.backend.native.rows import LANES, Across, Along, Rows, finite_or_zero, minus
from topos.backend.native.target import Target
from topos.backend.native.views import dense, dense_strides
from topos.backend.native.vocabulary import Lanes
from topos.op import LogSoftmax, LogSumExp, MaxAlong, Opcode, Sum, SumAlong
from topos.op.reduction import AlongAxis

Reduce = Callable[[Rows, "Terms"], None]
ROOM = 4096
"""Block totals that fit on a stack; longer sums take the general path."""


class Terms:
    """A row's terms and where its results go; both in the accumulator's registers."""

    def __init__(
        self, load: Callable[[Integer, int | None], Lanes], put: Callable[[Integer, int | None, Lanes], None]
    ) -> None:
        self.load = load
        self.put = put


def reduction(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """A reduction over rows, with the elementwise rows that only it reads worked out as its terms."""
    row = group.rows[-1]
    recorded = lowering.spec.rows[row]
    opcode = recorded.opcode
    (operand,) = recorded.operands
    shape = lowering.spec.rows[operand].shape
    work = _WORK.get(type(opcode))
    if work is None or not readable(lowering, group):
        return None
    axis = opcode.axis if isinstance(opcode, AlongAxis) else None
    if axis is None:
        return _whole(lowering, group, target, operand, work)
    inner = prod(shape[axis + 1 :])
    extent = shape[axis]
    if extent > ROOM * 512:
        return None
    return _axis(lowering, group, target, operand, work, axis, along=inner == 1)


def _frame(lowering: Lowering, group: Group, target: Target, lanes: int) -> Frame:
    frame = Frame(lowering, group.rows[:-1], target, lanes)
    for row in group.reads:
        frame.read(row)
    return frame


def _terms(frame: Frame, operand: int, place: Place) -> Lanes:
    """The operand's numbers at a place."""
    if operand in frame.rows:
        return frame.evaluate(place)[operand]
    return frame.value(operand, place, frame.element(operand))


def _whole(lowering: Lowering, group: Group, target: Target, operand: int, work: Reduce) -> Call | None:
    """All elements as one row; written out first where some operand does not step through them evenly."""
    frame = _frame(lowering, group, target, LANES)
    reads = frame.reads()
    extents, steps = merged(lowering.spec.rows[operand].shape, [frame.strides(row) for row in reads])
    if total(extents) > ROOM * 512:
        return None
    for row, own in zip(reads, steps, strict=True):
        frame.address(row, own)
    row = group.rows[-1]
    own_m = frame.arithmetic(frame.element(row))
    result = frame.add(dense(row, group.shape), own_m.element.dtype.itemsize)
    m = frame.arithmetic(own_m.element.accumulator)

    def load(index: Integer, count: int | None) -> Lanes:
        return _terms(frame, operand, Place((), index, count))

    scratch_bytes = 0
    if len(extents) > 1:
        scratch_bytes = total(extents) * own_m.element.dtype.itemsize
        load = _written_out(frame, operand, extents, own_m)
    terms = Terms(load, lambda index, count, value: own_m.store(own_m.rounded(value), result, 1))
    work(Along(frame, m, total(extents)), terms)
    return Call((frame.function.kernel("reduction", 1, scratch_bytes),), frame.pointers)


def _written_out(frame: Frame, operand: int, extents: list[int], m: Arithmetic) -> Callable[..., Lanes]:
    """Puts the terms next to one another into scratch, and reads them from there."""
    scratch = frame.function.argument(len(frame.pointers))
    strides = dense_strides(extents)

    def put(outer: tuple[Integer, ...], index: Integer, count: int | None) -> None:
        offset = index
        for position, step in zip(outer, strides, strict=False):
            offset = frame.function.add(offset, frame.function.multiply(position, step))
        m.store(_terms(frame, operand, Place(outer, index, count)), m.offset(scratch, offset), count)

    last = extents[-1]
    frame.nest(
        extents[:-1],
        lambda outer: frame.vectors(0, last, last, lambda index, count: put(outer, index, count)),
    )
    return lambda index, count: m.load(m.offset(scratch, index), count)


def _axis(
    lowering: Lowering, group: Group, target: Target, operand: int, work: Reduce, axis: int, along: bool
) -> Call | None:
    """One axis: its terms in the lanes where it is the last, else neighbouring rows in them."""
    shape = lowering.spec.rows[operand].shape
    row = group.rows[-1]
    element = lowering.spec.rows[row].element or lowering.spec.element
    lanes = LANES if along else target.lanes(element.accumulator.dtype.itemsize)
    frame = _frame(lowering, group, target, lanes)
    reads = frame.reads()
    keeps = isinstance(lowering.spec.rows[row].opcode, LogSoftmax)
    own_m = frame.arithmetic(element)
    m = frame.arithmetic(element.accumulator)
    result = frame.add(dense(row, group.shape), element.dtype.itemsize)
    # Strides of the result over the operand's axes: the reduced one does not move it.
    own = list(dense_strides(group.shape))
    written = own if keeps else [*own[:axis], 0, *own[axis:]]
    strides = [[*frame.strides(read)] for read in reads]
    before, steps_before = merged(shape[:axis], [part[:axis] for part in (*strides, written)])
    after, steps_after = merged(shape[axis + 1 :], [part[axis + 1 :] for part in (*strides, written)])
    for at, read in enumerate(reads):
        if along:
            frame.address(read, [*steps_before[at], strides[at][axis]])
        else:
            frame.address(read, [*steps_before[at], *steps_after[at][:-1], strides[at][axis], steps_after[at][-1]])
    places = [*steps_before[-1], *([] if along else steps_after[-1])]

    def at_rows(outer: tuple[Integer, ...], inner: Integer, count: int | None) -> None:
        rows: Rows = (Along if along else Across)(frame, m, shape[axis])

        def load(index: Integer, present: int | None) -> Lanes:
            place = Place(outer, index, present) if along else Place((*outer, index), inner, count)
            return _terms(frame, operand, place)

        def put(index: Integer, present: int | None, value: Lanes) -> None:
            offset: Integer = frame.function.multiply(index, written[axis])
            for position, step in zip((*outer, inner), places, strict=False):
                offset = frame.function.add(offset, frame.function.multiply(position, step))
            own_m.store(own_m.rounded(value), own_m.offset(result, offset), present if along else count)

        work(rows, Terms(load, put))

    size = total(shape) * weight(lowering, group.rows)
    if along:
        extents = [*before, 1]
        tiles = frame.tiled(extents, size, lambda outer, begin, end: at_rows(outer, 0, None))
        return Call((frame.function.kernel("rows", tiles),), frame.pointers)

    def columns(outer: tuple[Integer, ...], begin: Integer, end: Integer) -> None:
        frame.vectors(begin, end, after[-1], lambda index, count: at_rows(outer, index, count))

    extents = [*before, *after]
    if extents[0] == 1 and len(extents) == 2:
        tiles = frame.tiled([extents[1]], size, lambda outer, begin, end: columns((0,), begin, end))
    else:
        tiles = frame.tiled(extents, size, columns)
    return Call((frame.function.kernel("columns", tiles),), frame.pointers)


# what each does with a row
def _sum(rows: Rows, terms: Terms) -> None:
    terms.put(0, 1, rows.total(terms.load))


def _max(rows: Rows, terms: Terms) -> None:
    terms.put(0, 1, rows.maximum(terms.load))


def _shifted(rows: Rows, terms: Terms) -> tuple[Lanes, Lanes]:
    """The row's finite maximum, and the logarithm of the sum of the exponentials of what lies below it."""
    m = rows.m
    shift = finite_or_zero(m, rows.maximum(terms.load))
    below = minus(m, terms.load, shift)
    return shift, m.ln(rows.total(lambda index, count: m.exp(below(index, count))))


def _logsumexp(rows: Rows, terms: Terms) -> None:
    shift, logarithm = _shifted(rows, terms)
    terms.put(0, 1, rows.m.add(shift, logarithm))


def _log_softmax(rows: Rows, terms: Terms) -> None:
    m = rows.m
    shift, logarithm = _shifted(rows, terms)
    below = minus(m, terms.load, shift)
    rows.each(lambda index, count: terms.put(index, count, m.sub(below(index, count), logarithm)))


_WORK: dict[type[Opcode], Reduce] = {
    Sum: _sum,
    SumAlong: _sum,
    MaxAlong: _max,
    LogSumExp: _logsumexp,
    LogSoftmax: _log_softmax,
}
