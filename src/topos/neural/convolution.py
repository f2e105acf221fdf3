"""Convolutions: products over the windows of signals and images."""

from __future__ import annotations

from math import prod

from topos.element import Element
from topos.graph import Tape, Value
from topos.neural.module import Module
from topos.neural.options import Refuse, bias_start, divides, extent, extents, operand, refusing
from topos.neural.sources import Init, Sources
from topos.neural.windows import Extents, Steps
from topos.shape import Shape


def conv1d(
    x: Value,
    weights: Value,
    bias: Value | None = None,
    *,
    stride: Extents = 1,
    padding: Extents = 0,
    dilation: Extents = 1,
    groups: int = 1,
) -> Value:
    """`[batch, channels, length]` by `[filters, channels, kernel]`, as `conv2d` along one axis."""
    refuse = refusing("conv1d")
    return _convolved(refuse, x, weights, bias, Steps(refuse, 1, stride, padding, dilation), groups)


def conv2d(
    x: Value,
    weights: Value,
    bias: Value | None = None,
    *,
    stride: Extents = 1,
    padding: Extents = 0,
    dilation: Extents = 1,
    groups: int = 1,
) -> Value:
    """`[batch, channels, height, width]` by `[filters, channels, kernel height, kernel width]`: a cross-correlation.

    One product: a row for each place of each image, whose terms are in the order (channel, kernel row, kernel column).
    The result is `[batch, filters, ...]` with `(extent + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1`
    places along each axis; `padding` is of zeros, before and after; `bias` is `[filters]`. An option is one integer or
    a pair. With `groups` channels and filters are as many runs, each a convolution of its own: weights are `[filters,
    channels / groups, ...]`. Raises `ShapeError` where shapes do not fit, or no place is left.
    """
    refuse = refusing("conv2d")
    return _convolved(refuse, x, weights, bias, Steps(refuse, 2, stride, padding, dilation), groups)


class _Convolution(Module):
    """A convolution along as many axes as a subclass says, with its weights and bias."""

    _axes: int

    def __init__(
        self,
        tape: Tape,
        channels: int,
        filters: int,
        kernel: Extents,
        init: Init,
        *,
        stride: Extents = 1,
        padding: Extents = 0,
        dilation: Extents = 1,
        groups: int = 1,
        bias: bool | Init = True,
        element: Element | None = None,
        name: str | None = None,
    ) -> None:
        sources = Sources(tape, type(self).__name__, name)
        self.path = sources.path
        channels, filters = extent(self.refusal, "channels", channels), extent(self.refusal, "filters", filters)
        self.groups = extent(self.refusal, "groups", groups)
        divides(self.refusal, "groups", groups, "channels", channels)
        divides(self.refusal, "groups", groups, "filters", filters)
        sizes = extents(self.refusal, "kernel", kernel, self._axes)
        self.steps = Steps(self.refusal, self._axes, stride, padding, dilation)
        starts = bias_start(self.refusal, bias)
        self.weight = sources.parameter("weight", [filters, channels // groups, *sizes], init, element)
        self.bias = sources.parameter("bias", [filters], starts, element) if starts else None

    def express(self, x: Value) -> Value:
        weight = self.resolve(self.weight, like=x)
        bias = None if self.bias is None else self.resolve(self.bias, like=x)
        return _convolved(self.refusal, x, weight, bias, self.steps, self.groups)


class Conv1d(_Convolution):
    """`conv1d` with its `weight`, `[filters, channels / groups, kernel]`, as `init` says, and its `bias`.

    `bias` starts at zero, or as an initialiser says that is given for it; with `bias=False` it is `None`.
    """

    _axes = 1


class Conv2d(_Convolution):
    """`conv2d` with its `weight`, `[filters, channels / groups, kernel, kernel]`, as `init` says, and its `bias`.

    `kernel`, `stride`, `padding` and `dilation` are one integer or a pair, (height, width). `bias` starts at zero, or
    as an initialiser says that is given for it; with `bias=False` it is `None`.
    """

    _axes = 2


def _convolved(refuse: Refuse, x: Value, weights: Value, bias: Value | None, steps: Steps, groups: int) -> Value:
    for given in (x, weights) if bias is None else (x, weights, bias):
        operand(refuse, given)
    _fit(refuse, x.shape, weights.shape, bias, steps, groups)
    filters, channels, *kernel = weights.shape
    places, inner = steps.places(refuse, x.shape[2:], kernel), channels * prod(kernel)
    terms, rows = _windows(steps.padded(x, 0.0), kernel, steps), x.shape[0] * prod(places)
    if groups == 1:
        y = terms.reshape([rows, inner]) @ weights.reshape([filters, inner]).transpose()
    else:
        apart = terms.reshape([rows, groups, inner]).permute([1, 0, 2])
        products = apart @ weights.reshape([groups, filters // groups, inner]).transpose()
        y = products.permute([1, 0, 2]).reshape([rows, filters])
    if bias is not None:
        y = y + bias.broadcast_along(0, rows)
    axes = len(places)
    return y.reshape([x.shape[0], *places, filters]).permute([0, axes + 1, *range(1, axes + 1)])


def _windows(x: Value, kernel: list[int], steps: Steps) -> Value:
    """`[batch, places ..., channels, size ...]`; an axis of which the windows are its places has no size."""
    order, sizes, axis = [0], [], 2
    is_windowed = [size > 1 or stride > 1 for size, stride in zip(kernel, steps.stride, strict=True)]
    for at in reversed(range(len(kernel))):
        if is_windowed[at]:
            x = x.unfold(at + 2, kernel[at], steps.stride[at], steps.dilation[at])
    for within in is_windowed:
        order.append(axis)
        sizes += [axis + 1] * within
        axis += 1 + within
    return x.permute([*order, 1, *sizes])


def _fit(refuse: Refuse, x: Shape, weights: Shape, bias: Value | None, steps: Steps, groups: int) -> None:
    """Refuses a picture that is not one of the weights' channels."""
    names = ", ".join(steps.names)
    rank = 2 + len(steps.names)
    if weights.rank != rank:
        kernel = ", ".join(f"kernel {name}" for name in steps.names)
        raise refuse(f"wants weights of [filters, channels, {kernel}], got {weights}")
    divides(refuse, "groups", extent(refuse, "groups", groups), "filters", weights[0])
    if x.rank != rank or x[1] != groups * weights[1]:
        raise refuse(f"wants [batch, {groups * weights[1]}, {names}], got {x}")
    if bias is not None and bias.shape != [weights[0]]:
        raise refuse(f"wants a bias of [{weights[0]}], got {bias.shape}")
