"""The closed instruction set as a table: for each instruction sample operands, and how to make one for a given shape.

Tests that hold for every instruction are parametrised over it, and whole programs are drawn from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topos import op
from topos.element import bf16, f32, f64
from topos.op import MAPS, MapOperation, Opcode
from topos.records import NamedTuple
from topos.shape import Shape
from topos.testing.samples import Choose, Sample, sample


class Instruction(NamedTuple):
    """One row of the table.

    `made(choose, shape)` is the instruction over a first operand of that shape, with whatever other operands it then
    wants, or `None` where there is none. A source has neither samples nor `made`.
    """

    samples: tuple[Sample, ...]
    made: Callable[[Choose, Shape], Sample | None] | None


# How each is made for a first operand's shape
def _elementwise(opcode: Opcode) -> Callable[[Choose, Shape], Sample]:
    return lambda choose, shape: sample(opcode, *[shape] * opcode.arity)


def _along(kind: Callable[[int], Opcode]) -> Callable[[Choose, Shape], Sample | None]:
    def made(choose: Choose, shape: Shape) -> Sample | None:
        return sample(kind(choose.integer(0, shape.rank - 1)), shape) if shape else None

    return made


def _cast(choose: Choose, shape: Shape) -> Sample:
    return sample(op.Cast(choose.one((f32, bf16, f64))), shape)


def _matmul(choose: Choose, shape: Shape) -> Sample | None:
    if shape.rank < 2:
        return None
    return sample(op.MATMUL, shape, (*shape[:-2], shape[-1], choose.integer(0, 3)))


def _broadcast(choose: Choose, shape: Shape) -> Sample | None:
    if shape:
        return None
    return sample(op.Broadcast([choose.integer(0, 3) for _ in range(choose.integer(0, 3))]), shape)


def _broadcast_along(choose: Choose, shape: Shape) -> Sample:
    return sample(op.BroadcastAlong(choose.integer(0, shape.rank), choose.integer(0, 4)), shape)


def _reshape(choose: Choose, shape: Shape) -> Sample:
    flat = [shape.volume]
    others: list[Sequence[int]] = [flat, [1, *shape], [*shape, 1], tuple(reversed(shape))]
    if shape.volume % 2 == 0:
        others.append([2, shape.volume // 2])
    return sample(op.Reshape(choose.one(others)), shape)


def _permute(choose: Choose, shape: Shape) -> Sample:
    left, order = list(shape.axes), []
    while left:
        order.append(left.pop(choose.integer(0, len(left) - 1)))
    return sample(op.Permute(order), shape)


def _narrow(choose: Choose, shape: Shape) -> Sample | None:
    if not shape:
        return None
    axis = choose.integer(0, shape.rank - 1)
    start = choose.integer(0, shape[axis])
    return sample(op.Narrow(axis, start, choose.integer(0, shape[axis] - start)), shape)


def _pad(choose: Choose, shape: Shape) -> Sample | None:
    if not shape:
        return None
    axis, start, after = choose.integer(0, shape.rank - 1), choose.integer(0, 2), choose.integer(0, 2)
    fill = choose.one((0.0, -0.0, 1.5, float("-inf"), float("nan"), 0.1))
    return sample(op.Pad(axis, start, start + shape[axis] + after, fill), shape)


def _unfold(choose: Choose, shape: Shape) -> Sample | None:
    axes = [axis for axis in shape.axes if shape[axis]]
    if not axes:
        return None
    axis = choose.one(axes)
    size = choose.integer(1, min(3, shape[axis]))
    widest = (shape[axis] - 1) // (size - 1) if size > 1 else 2
    return sample(op.Unfold(axis, size, choose.integer(1, 3), choose.integer(1, widest)), shape)


def _fold(choose: Choose, shape: Shape) -> Sample | None:
    axes = [axis for axis in range(shape.rank - 1) if shape[axis] and shape[axis + 1]]
    if not axes:
        return None
    axis = choose.one(axes)
    count, size = shape[axis], shape[axis + 1]
    step, dilation = choose.integer(1, 3), choose.integer(1, 2)
    least = (count - 1) * step + (size - 1) * dilation + 1
    return sample(op.Fold(axis, size, step, dilation, choose.integer(least, least + step - 1)), shape)


def _gather(choose: Choose, shape: Shape) -> Sample | None:
    return sample(op.GATHER, shape, (choose.integer(0, 4), shape[0]), selection=1) if shape else None


def _scatter(choose: Choose, shape: Shape) -> Sample | None:
    return sample(op.SCATTER, shape, (shape[0], choose.integer(0, 4)), selection=1) if shape else None


def _of(opcode: Opcode, domains: str = "any") -> Instruction:
    """An elementwise instruction: a matrix, a scalar, and nothing at all."""
    shapes = ((2, 3), (), (2, 0))
    samples = tuple(sample(opcode, *[shape] * opcode.arity, domains=domains) for shape in shapes)
    return Instruction(samples, _elementwise(opcode))


def _axes(kind: Callable[[int], Opcode], domains: str = "any") -> Instruction:
    """A reduction along one axis: each axis of a tensor, a long one, and one of no extent."""
    cases = ((0, (2, 3, 4)), (1, (2, 3, 4)), (2, (2, 3, 4)), (0, (37,)), (0, (0, 2)), (1, (2, 0)))
    return Instruction(tuple(sample(kind(axis), shape, domains=domains) for axis, shape in cases), _along(kind))


def _rows(made: Callable[[Choose, Shape], Sample | None], *samples: Sample) -> Instruction:
    return Instruction(samples, made)


_DOMAINS = {MapOperation.LN: "positive", MapOperation.SQRT: "positive", MapOperation.LOG1P: "positive"}
_SOURCE = Instruction((), None)

INSTRUCTIONS: dict[type[Opcode], Instruction] = {
    op.Leaf: _SOURCE,
    op.Parameter: _SOURCE,
    op.Input: _SOURCE,
    op.Add: _of(op.ADD),
    op.Sub: _of(op.SUB),
    op.Mul: _of(op.MUL),
    op.Div: _of(op.DIV, "any positive"),
    op.Neg: _of(op.NEG),
    **{type(MAPS[operation]): _of(MAPS[operation], _DOMAINS.get(operation, "any")) for operation in MapOperation},
    op.Powf: _of(op.POWF, "positive any"),
    op.Maximum: _of(op.MAXIMUM, "apart any"),
    op.Step: _of(op.STEP, "apart any"),
    op.Select: _of(op.SELECT, "mask any any"),
    op.Stop: _of(op.STOP),
    op.Cast: _rows(_cast, *(sample(op.Cast(element), (2, 3)) for element in (f32, f64, bf16))),
    op.MatMul: _rows(
        _matmul,
        sample(op.MATMUL, (2, 3), (3, 4)),
        sample(op.MATMUL, (2, 2, 3), (2, 3, 1)),
        sample(op.MATMUL, (1, 2, 0, 3), (1, 2, 3, 2)),
        sample(op.MATMUL, (2, 0), (0, 3)),
        sample(op.MATMUL, (1, 520), (520, 1)),
    ),
    op.Sum: _rows(
        lambda choose, shape: sample(op.SUM, shape),
        *(sample(op.SUM, shape) for shape in ((), (3,), (2, 3, 4), (0, 2), (600,))),
    ),
    op.SumAlong: _axes(op.SumAlong),
    op.MaxAlong: _axes(op.MaxAlong, "apart"),
    op.LogSumExp: _axes(op.LogSumExp),
    op.LogSoftmax: _axes(op.LogSoftmax),
    op.Broadcast: _rows(_broadcast, *(sample(op.Broadcast(shape), ()) for shape in ((2, 3), (), (0, 2)))),
    op.BroadcastAlong: _rows(
        _broadcast_along,
        sample(op.BroadcastAlong(0, 3), (2,)),
        sample(op.BroadcastAlong(1, 3), (2, 4)),
        sample(op.BroadcastAlong(2, 2), (2, 3)),
        sample(op.BroadcastAlong(0, 2), ()),
        sample(op.BroadcastAlong(0, 0), (2,)),
    ),
    op.Reshape: _rows(
        _reshape,
        sample(op.Reshape((3, 2)), (2, 3)),
        sample(op.Reshape(()), (1, 1)),
        sample(op.Reshape((0,)), (2, 0)),
        sample(op.Reshape((4, 1, 3)), (2, 6)),
    ),
    op.Permute: _rows(
        _permute,
        sample(op.Permute((1, 0)), (2, 3)),
        sample(op.Permute((2, 0, 1)), (2, 3, 4)),
        sample(op.Permute(()), ()),
        sample(op.Permute((0, 1)), (2, 0)),
    ),
    op.Narrow: _rows(
        _narrow,
        sample(op.Narrow(1, 1, 2), (2, 4)),
        sample(op.Narrow(0, 0, 2), (2, 3)),
        sample(op.Narrow(0, 2, 0), (3, 2)),
    ),
    op.Pad: _rows(
        _pad,
        sample(op.Pad(1, 1, 5), (2, 3)),
        sample(op.Pad(0, 0, 2, -0.0), (2, 3)),
        sample(op.Pad(0, 2, 4, float("-inf")), (1, 2)),
        sample(op.Pad(0, 1, 2, 0.1), (0, 2)),
    ),
    op.Unfold: _rows(
        _unfold,
        sample(op.Unfold(0, 3, 1, 1), (5,)),
        sample(op.Unfold(1, 2, 2, 2), (2, 7)),
        sample(op.Unfold(0, 1, 3, 2), (4, 2)),
    ),
    op.Fold: _rows(
        _fold,
        sample(op.Fold(0, 3, 1, 1, 5), (3, 3)),
        sample(op.Fold(1, 2, 2, 2, 7), (2, 3, 2)),
        sample(op.Fold(0, 1, 3, 2, 4), (2, 1, 2)),
    ),
    op.Gather: _rows(
        _gather,
        sample(op.GATHER, (4, 3), (5, 4), selection=1),
        sample(op.GATHER, (4,), (2, 4), selection=1),
        sample(op.GATHER, (3, 2, 2), (0, 3), selection=1),
    ),
    op.Scatter: _rows(
        _scatter,
        sample(op.SCATTER, (5, 3), (5, 4), selection=1),
        sample(op.SCATTER, (4,), (4, 2), selection=1),
        sample(op.SCATTER, (0, 2), (0, 3), selection=1),
    ),
}
"""Every instruction by its class, in the order in which the vocabulary lists them."""


def every_sample() -> list[Sample]:
    """The samples of all instructions, in the table's order."""
    return [one for instruction in INSTRUCTIONS.values() for one in instruction.samples]
