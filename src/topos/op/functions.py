"""Compositions of several operands as plain functions: `where`, `concat`, `stack` and `einsum`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, TypeVar

import numpy as np

from topos.errors import RecordedError, ShapeError
from topos.op.composites import Composites
from topos.op.elementwise import SELECT

T = TypeVar("T", bound=Composites)


def where(mask: Any, chosen: Any, other: Any) -> Any:
    """`chosen` where the mask is nonzero (NaN is nonzero), else `other`; any of the three may be a plain payload.

    >>> from topos import Tensor
    >>> x = Tensor([-1.0, 0.0, 2.0])
    >>> where(x.step(0.0), x, 9.0)
    Tensor([9., 0., 2.], f32)
    """
    return _payload("where", (mask, chosen, other)).apply(SELECT, (mask, chosen, other))


def concat(values: Iterable[T], axis: int) -> T:
    """The values one after another along an axis.

    Each is padded with `-0.0` to the full extent, then they are added left to right: a copy, bit for bit. Raises
    `ShapeError` where another axis differs, or for no values.

    >>> from topos import Tensor
    >>> concat([Tensor([1, -0.0]), Tensor([3])], axis=0)
    Tensor([ 1., -0.,  3.], f32)
    """
    values = _listed("concat", values)
    first = values[0]
    axis = first.shape.axis(axis, "concat")
    others = first.shape.without_axis(axis)
    for value in values:
        if value.shape.rank != first.shape.rank or value.shape.without_axis(axis) != others:
            raise ShapeError(f"concat: all axes but {axis} must be equal, got {first.shape} and {value.shape}")
    if len(values) == 1:
        return first
    starts = [0]
    for value in values:
        starts.append(starts[-1] + value.shape[axis])
    *starts, full = starts

    def join() -> T:
        padded = [value.pad(axis, start, full, -0.0) for value, start in zip(values, starts, strict=True)]
        return reduce(lambda left, right: left + right, padded)

    return _whole(values, join)


def stack(values: Iterable[T], axis: int) -> T:
    """The values along a new axis, which is axis `axis` of the result; their shapes are equal.

    >>> from topos import Tensor
    >>> stack([Tensor([1, 2]), Tensor([3, 4])], axis=1)
    Tensor([[1., 3.],
            [2., 4.]], f32)
    """
    values = _listed("stack", values)
    first = values[0]
    if any(value.shape != first.shape for value in values):
        raise ShapeError(f"stack: shapes must be equal, got {', '.join(str(value.shape) for value in values)}")
    position = first.shape.gap(axis, "stack")
    return _whole(values, lambda: concat([value.unsqueeze(position) for value in values], position))


def einsum(spec: str, *values: T) -> T:
    """A sum of products over named axes: `einsum("bij,bjk->bik", x, y)`.

    Read left to right: axes that no other operand and no result names are summed first, then each further operand is
    joined by one batched matrix product (named axes of both that the result or a later operand still wants are batch
    axes, the others are contracted), and the result's axes are put in order. Every axis is one letter; an operand
    does not name one twice. Raises `ShapeError`.

    >>> from topos import Tensor
    >>> einsum("ij,j->i", Tensor([[1, 2], [3, 4]]), Tensor([10, 1]))
    Tensor([12., 34.], f32)
    """
    if not isinstance(spec, str):
        raise ShapeError("einsum: wants its axes first, as in 'ij,jk->ik'")
    values = _listed("einsum", values)
    terms, result = _terms(spec, values)
    return _whole(values, lambda: _contract(list(values), terms, result))


def _terms(spec: str, values: Sequence[Composites]) -> tuple[list[str], str]:
    left, arrow, result = spec.replace(" ", "").partition("->")
    terms = left.split(",")
    named = set("".join(terms))
    if not arrow or len(terms) != len(values):
        raise ShapeError(f"einsum: {spec!r} must name the axes of {len(values)} operands and, after ->, of the result")
    if not all(name.isalpha() for name in named) or not set(result) <= named:
        raise ShapeError(f"einsum: axes of {spec!r} are letters, and the result's are named by an operand")
    extents: dict[str, int] = {}
    for term, value in zip(terms, values, strict=True):
        if len(term) != value.shape.rank:
            raise ShapeError(f"einsum: {term!r} names {len(term)} axes of an operand of shape {value.shape}")
        for name, extent in zip(term, value.shape, strict=True):
            if extents.setdefault(name, extent) != extent:
                raise ShapeError(f"einsum: axis {name} has extents {extents[name]} and {extent} in {spec!r}")
    for term in (*terms, result):
        if len(set(term)) != len(term):
            raise ShapeError(f"einsum: {term!r} names an axis twice")
    return terms, result


def _contract(values: list[Any], terms: list[str], result: str) -> Any:
    value, names = values[0], terms[0]
    for position in range(len(values)):
        if position:
            wanted = set(result).union(*terms[position + 1 :])
            value, names = _join(value, names, values[position], terms[position], wanted)
        wanted = set(result).union(*terms[position + 1 :])
        value, names = _sum_out(value, names, wanted)
    return value if names == result else value.permute([names.index(name) for name in result])


def _sum_out(value: Any, names: str, wanted: set[str]) -> tuple[Any, str]:
    for name in [name for name in names if name not in wanted]:
        value, names = value.sum_along(names.index(name)), names.replace(name, "")
    return value, names


def _join(left: Any, left_names: str, right: Any, right_names: str, wanted: set[str]) -> tuple[Any, str]:
    right, right_names = _sum_out(right, right_names, wanted | set(left_names))
    extents = dict(zip(left_names + right_names, (*left.shape, *right.shape), strict=True))
    shared = [name for name in left_names if name in right_names]
    batch = [name for name in shared if name in wanted]
    inner = [name for name in shared if name not in wanted]
    rows = [name for name in left_names if name not in shared]
    columns = [name for name in right_names if name not in shared]
    product = _grouped(left, left_names, (batch, rows, inner), extents) @ _grouped(
        right, right_names, (batch, inner, columns), extents
    )
    names = batch + rows + columns
    return product.reshape([extents[name] for name in names]), "".join(names)


def _grouped(value: Any, names: str, groups: tuple[list[str], ...], extents: dict[str, int]) -> Any:
    """The value with its axes in the groups' order, each group one axis."""
    order = [names.index(name) for group in groups for name in group]
    value = value if order == sorted(order) else value.permute(order)
    shape = [_volume(group, extents) for group in groups]
    return value if value.shape == shape else value.reshape(shape)


def _volume(names: list[str], extents: dict[str, int]) -> int:
    return reduce(lambda volume, name: volume * extents[name], names, 1)


def _payload(rule: str, operands: Sequence[Any]) -> Any:
    for operand in operands:
        if isinstance(operand, Composites):
            return operand
    raise RecordedError(f"{rule}: at least one operand must be a value or a tensor")


def _listed(rule: str, values: Iterable[T]) -> tuple[T, ...]:
    if isinstance(values, set | frozenset | dict | str | np.ndarray) or not isinstance(values, Iterable):
        raise RecordedError(f"{rule}: wants a sequence of values or tensors, got {type(values).__name__}")
    values = tuple(values)
    if not values:
        raise ShapeError(f"{rule}: wants at least one value")
    for value in values:
        if not isinstance(value, Composites):
            raise RecordedError(f"{rule}: wants values or tensors, got {type(value).__name__}")
    return values


def _whole(values: Sequence[T], compose: Callable[[], T]) -> T:
    """Runs a composition that leaves a recording as it was when it fails in the middle."""
    marks = [(value, mark) for value, mark in ((value, value.mark()) for value in values) if mark is not None]
    try:
        return compose()
    except BaseException:
        for value, mark in marks:
            value.reset(mark)
        raise
