"""Norms over the features of each row, or over groups of channels."""

from __future__ import annotations

from topos.element import Element
from topos.graph import Tape, Value
from topos.neural.init import constant
from topos.neural.limits import expect_not_negative
from topos.neural.module import Module
from topos.neural.options import divides, extent
from topos.neural.rows import expect_width
from topos.neural.sources import Sources


class LayerNorm(Module):
    """`(x - mean) / sqrt(variance + epsilon) * gain + bias` over the last axis (Ba, Kiros and Hinton 2016).

    The mean is the sum along the last axis by its `width`, and the variance that of the squares of what is left
    (`mean_along`). `gain` is `[width]` and starts at one, `bias` at zero. Raises `ShapeError` where the last axis is
    not `width`.
    """

    def __init__(
        self,
        tape: Tape,
        width: int,
        *,
        epsilon: float = 1e-5,
        element: Element | None = None,
        name: str | None = None,
    ) -> None:
        sources = Sources(tape, "LayerNorm", name)
        self.path = sources.path
        self.epsilon: float = expect_not_negative(self.called, "epsilon", epsilon)
        width = extent(self.refusal, "width", width)
        self.gain = sources.parameter("gain", [width], constant(1), element)
        self.bias = sources.parameter("bias", [width], constant(0), element)

    def express(self, x: Value) -> Value:
        gain, bias = self.resolve(self.gain, like=x), self.resolve(self.bias, like=x)
        expect_width(self.refusal, x, gain.shape[0])
        normal = normalised(x, x.shape.rank - 1, self.epsilon)
        return normal * gain.broadcast_to(x.shape) + bias.broadcast_to(x.shape)


class RmsNorm(Module):
    """`x / sqrt(mean(x * x) + epsilon) * gain` over the last axis (Zhang and Sennrich 2019).

    `gain` is `[width]` and starts at one. Raises `ShapeError` where the last axis is not `width`.
    """

    def __init__(
        self,
        tape: Tape,
        width: int,
        *,
        epsilon: float = 1e-5,
        element: Element | None = None,
        name: str | None = None,
    ) -> None:
        sources = Sources(tape, "RmsNorm", name)
        self.path = sources.path
        self.epsilon: float = expect_not_negative(self.called, "epsilon", epsilon)
        width = extent(self.refusal, "width", width)
        self.gain = sources.parameter("gain", [width], constant(1), element)

    def express(self, x: Value) -> Value:
        gain = self.resolve(self.gain, like=x)
        width = gain.shape[0]
        expect_width(self.refusal, x, width)
        axis = x.shape.rank - 1
        root = ((x * x).mean_along(axis) + self.epsilon).sqrt()
        return x / root.broadcast_along(axis, width) * gain.broadcast_to(x.shape)


class GroupNorm(Module):
    """Each of `groups` runs of channels of an image by its own mean and deviation (Wu and He 2018).

    `[batch, channels, ...]`, of any number of axes: the channels of a group and all that is in them are one row, in
    row-major order. `gain` is `[channels]` and starts at one, `bias` at zero. Raises `ShapeError` where `groups` do not
    divide `channels`, or for other channels.
    """

    def __init__(
        self,
        tape: Tape,
        channels: int,
        groups: int,
        *,
        epsilon: float = 1e-5,
        element: Element | None = None,
        name: str | None = None,
    ) -> None:
        sources = Sources(tape, "GroupNorm", name)
        self.path = sources.path
        self.epsilon: float = expect_not_negative(self.called, "epsilon", epsilon)
        channels = extent(self.refusal, "channels", channels)
        self.groups = extent(self.refusal, "groups", groups)
        divides(self.refusal, "groups", groups, "channels", channels)
        self.gain = sources.parameter("gain", [channels], constant(1), element)
        self.bias = sources.parameter("bias", [channels], constant(0), element)

    def express(self, x: Value) -> Value:
        gain, bias = self.resolve(self.gain, like=x), self.resolve(self.bias, like=x)
        channels = gain.shape[0]
        if x.shape.rank < 2 or x.shape[1] != channels:
            raise self.refusal(f"wants [batch, {channels}, ...], got {x.shape}")
        batch, *inner = x.shape
        width = x.shape.without_axis(0).volume // self.groups
        normal = normalised(x.reshape([batch, self.groups, width]), 2, self.epsilon).reshape([batch, *inner])
        trailing = [channels, *[1] * (x.shape.rank - 2)]
        return normal * gain.reshape(trailing).broadcast_to(x.shape) + bias.reshape(trailing).broadcast_to(x.shape)


def normalised(x: Value, axis: int, epsilon: float) -> Value:
    """What is left of `x` without its mean along an axis, by its deviation."""
    width = x.shape[axis]
    centred = x - x.mean_along(axis).broadcast_along(axis, width)
    variance = (centred * centred).mean_along(axis)
    return centred / (variance + epsilon).sqrt().broadcast_along(axis, width)
