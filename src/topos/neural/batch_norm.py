"""The norm over a batch, with statistics that move while it trains."""

from __future__ import annotations

from math import prod

from topos.element import Element
from topos.errors import RecordedError
from topos.graph import Tape, Value
from topos.neural.init import constant
from topos.neural.limits import expect_not_negative, expect_part
from topos.neural.module import Module
from topos.neural.options import extent
from topos.neural.sources import Sources


class BatchNorm(Module):
    """Each channel by its mean and deviation: over a batch in training, by moved ones after (Ioffe and Szegedy 2015).

    `x` is `[batch, channels]`, `[batch, channels, length]` or `[batch, channels, height, width]`. `gain` is
    `[channels]` and starts at one, `bias` at zero: parameters. `mean` and `variance` are inputs that a State holds;
    they start at zero and one.

    `train(x)` answers `(y, carry)`: `y` is `(x - m) / sqrt(v + epsilon) * gain + bias`, where `m` is the mean of a
    channel over the batch and all places, and `v` that of the squares around it. An entry that carries `carry` moves
    `mean` to `mean * (1 - momentum) + m * momentum`, and `variance` so towards `v * n / (n - 1)`, the estimate with
    divisor `n - 1`. `infer(x)` takes `mean` and `variance` instead. Calling it is refused: one of the two has to be
    meant. Raises `ShapeError` for other shapes, and in training for one element of each channel, which has no variance.
    """

    def __init__(
        self,
        tape: Tape,
        channels: int,
        *,
        epsilon: float = 1e-5,
        momentum: float = 0.1,
        element: Element | None = None,
        name: str | None = None,
    ) -> None:
        sources = Sources(tape, "BatchNorm", name)
        self.path = sources.path
        self.epsilon: float = expect_not_negative(self.called, "epsilon", epsilon)
        self.momentum: float = expect_part(self.called, "momentum", momentum)
        channels = extent(self.refusal, "channels", channels)
        self.gain = sources.parameter("gain", [channels], constant(1), element)
        self.bias = sources.parameter("bias", [channels], constant(0), element)
        self.mean = sources.input("mean", [channels], constant(0), element)
        self.variance = sources.input("variance", [channels], constant(1), element)

    def express(self, x: Value) -> Value:
        raise RecordedError(
            f"{self.called}: call train(x), which answers (y, carry), or infer(x); "
            "a module that holds it overrides both"
        )

    def train(self, x: Value) -> tuple[Value, dict[Value, Value]]:
        rows = self._rows(x)
        count = rows.shape[0]
        if count < 2:
            raise self.refusal(f"wants two elements of each channel or more to train on, got {x.shape}")
        mean = rows.mean_along(0)
        centred = rows - mean.broadcast_along(0, count)
        variance = (centred * centred).mean_along(0)
        normal = centred / (variance + self.epsilon).sqrt().broadcast_along(0, count)
        tape = x.tape
        kept = tape.resolve(self.mean), tape.resolve(self.variance)
        found = mean, variance * (count / (count - 1))
        carry = {source: self._moved(source, statistic) for source, statistic in zip(kept, found, strict=True)}
        return self._affine(normal, x), carry

    def infer(self, x: Value) -> Value:
        rows = self._rows(x)
        count = rows.shape[0]
        mean, variance = self.resolve(self.mean, like=x), self.resolve(self.variance, like=x)
        centred = rows - mean.broadcast_along(0, count)
        return self._affine(centred / (variance + self.epsilon).sqrt().broadcast_along(0, count), x)

    def _rows(self, x: Value) -> Value:
        """A row of channels for each place of each image."""
        channels = self.tape_of(x).resolve(self.gain).shape[0]
        if x.shape.rank not in (2, 3, 4) or x.shape[1] != channels:
            raise self.refusal(f"wants [batch, {channels}], with one axis or two after it or none, got {x.shape}")
        if x.shape.rank == 2:
            return x
        batch, _, *places = x.shape
        return x.permute([0, *range(2, x.shape.rank), 1]).reshape([batch * prod(places), channels])

    def _affine(self, normal: Value, x: Value) -> Value:
        count = normal.shape[0]
        gain, bias = self.resolve(self.gain, like=x), self.resolve(self.bias, like=x)
        y = normal * gain.broadcast_along(0, count) + bias.broadcast_along(0, count)
        if x.shape.rank == 2:
            return y
        batch, channels, *places = x.shape
        return y.reshape([batch, *places, channels]).permute([0, x.shape.rank - 1, *range(1, x.shape.rank - 1)])

    def _moved(self, source: Value, statistic: Value) -> Value:
        assert source.element is not None
        return source * (1 - self.momentum) + statistic.to(source.element) * self.momentum
