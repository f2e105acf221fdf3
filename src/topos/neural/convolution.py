"""Convolutions: products over the windows of signals and images."""

from __future__ import annotations

from math import prod

from topos.element import Element
from topos.graph import Tape, Value
from topos.neural.module import Module
from topos.neural.options import Refuse, bias_start, extent, extents, operand, refusing
from topos.neural.sources import Init, Sources
from topos.shape import Shape

Extents = int | tuple[int, ...]
"""One integer for every axis, or one for each."""

NAMES = {1: ["length"], 2: ["height", "width"]}


def conv1d(
    x: Value,
    weights: Value,
    bias: Value | None = None,
    *,
    stride: Extents = 1,
    padding: Extents = 0,
    dilation: Extents = 1,
) -> Value:
    """`[batch, channels, length]` by `[filters, channels, kernel]`, as `conv2d` along one axis."""
    return _convolved(refusing("conv1d"), x, weights, bias, _Steps(refusing("conv1d"), 1, stride, padding, dilation))


def conv2d(
    x: Value,
    weights: Value,
    bias: Value | None = None,
    *,
    stride: Extents = 1,
    padding: Extents = 0,
    dilation: Extents = 1,
) -> Value:
    """`[batch, channels, height, width]` by `[filters, channels, kernel height, kernel width]`: a cross-correlation.

    One product: a row for each place of each image, whose terms are in the order (channel, kernel row, kernel column).
    The result is `[batch, filters, ...]` with `(extent + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1`
    places along each axis; `padding` is of zeros, before and after; `bias` is `[filters]`. An option is one integer or
    a pair. Raises `ShapeError` where shapes do not fit, or no place is left.
    """
    return _convolved(refusing("conv2d"), x, weights, bias, _Steps(refusing("conv2d"), 2, stride, padding, dilation))


class _Steps:
    """How windows lie along each axis of an image: the options of a convolution, checked."""

    def __init__(self, refuse: Refuse, axes: int, stride: Extents, padding: Extents, dilation: Extents) -> None:
        self.stride = extents(refuse, "stride", stride, axes)
        self.padding = extents(refuse, "padding", padding, axes, 0)
        self.dilation = extents(refuse, "dilation", dilation, axes)


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
        bias: bool | Init = True,
        element: Element | None = None,
        name: str | None = None,
    ) -> None:
        sources = Sources(tape, type(self).__name__, name)
        self.path = sources.path
        channels, filters = extent(self.refusal, "channels", channels), extent(self.refusal, "filters", filters)
        sizes = extents(self.refusal, "kernel", kernel, self._axes)
        self.steps = _Steps(self.refusal, self._axes, stride, padding, dilation)
        starts = bias_start(self.refusal, bias)
        self.weight = sources.parameter("weight", [filters, channels, *sizes], init, element)
        self.bias = sources.parameter("bias", [filters], starts, element) if starts else None

    def express(self, x: Value) -> Value:
        weight = self.resolve(self.weight, like=x)
        bias = None if self.bias is None else self.resolve(self.bias, like=x)
        return _convolved(self.refusal, x, weight, bias, self.steps)


class Conv1d(_Convolution):
    """`conv1d` with its `weight`, `[filters, channels, kernel]`, which starts as `init` says, and its `bias`.

    `bias` starts at zero, or as an initialiser says that is given for it; with `bias=False` it is `None`.
    """

    _axes = 1


class Conv2d(_Convolution):
    """`conv2d` with its `weight`, `[filters, channels, kernel, kernel]`, which starts as `init` says, and its `bias`.

    `kernel`, `stride`, `padding` and `dilation` are one integer or a pair, (height, width). `bias` starts at zero, or
    as an initialiser says that is given for it; with `bias=False` it is `None`.
    """

    _axes = 2


def _convolved(refuse: Refuse, x: Value, weights: Value, bias: Value | None, steps: _Steps) -> Value:
    for given in (x, weights) if bias is None else (x, weights, bias):
        operand(refuse, given)
    places = _places(refuse, x.shape, weights.shape, steps)
    if bias is not None and bias.shape != [weights.shape[0]]:
        raise refuse(f"wants a bias of [{weights.shape[0]}], got {bias.shape}")
    axes, (filters, channels, *kernel) = len(places), weights.shape
    terms = _windows(x, kernel, steps).reshape([x.shape[0] * prod(places), channels * prod(kernel)])
    y = terms @ weights.reshape([filters, channels * prod(kernel)]).transpose()
    if bias is not None:
        y = y + bias.broadcast_along(0, y.shape[0])
    return y.reshape([x.shape[0], *places, filters]).permute([0, axes + 1, *range(1, axes + 1)])


def _windows(x: Value, kernel: list[int], steps: _Steps) -> Value:
    """`[batch, places ..., channels, size ...]`; an axis of which the windows are its places has no size."""
    for axis, padding in enumerate(steps.padding, 2):
        if padding:
            x = x.pad(axis, padding, x.shape[axis] + 2 * padding)
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


def _places(refuse: Refuse, x: Shape, weights: Shape, steps: _Steps) -> list[int]:
    """How many windows there are along each axis, once all shapes were checked."""
    names = NAMES[len(steps.stride)]
    rank = 2 + len(names)
    if weights.rank != rank:
        raise refuse(
            f"wants weights of [filters, channels, {', '.join(f'kernel {name}' for name in names)}], got {weights}"
        )
    if x.rank != rank or x[1] != weights[1]:
        raise refuse(f"wants [batch, {weights[1]}, {', '.join(names)}], got {x}")
    return places(refuse, names, x[2:], weights[2:], steps.stride, steps.padding, steps.dilation)


def places(
    refuse: Refuse,
    names: list[str],
    given: tuple[int, ...],
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    paddings: tuple[int, ...],
    dilations: tuple[int, ...],
) -> list[int]:
    """How many windows of a size there are along each axis; refuses an axis that is shorter than one."""
    counts = []
    for name, own, size, stride, padding, dilation in zip(
        names, given, sizes, strides, paddings, dilations, strict=True
    ):
        reach, full = dilation * (size - 1) + 1, own + 2 * padding
        if full < reach:
            raise refuse(f"wants a {name} of at least {reach - 2 * padding} for its windows, got {own}")
        counts.append((full - reach) // stride + 1)
    return counts
