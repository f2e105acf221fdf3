"""Initialisers whose scale follows from how many numbers go into a weight and come out of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from topos.errors import SettingError, ShapeError
from topos.neural.init.seeded import Array, Draw, Seeded
from topos.neural.limits import expect_number
from topos.neural.stream import Stream, expect_seed
from topos.shape import Shape


class Fans(NamedTuple):
    """How many inputs one output is a sum over, and how many outputs one input goes into."""

    inputs: int
    outputs: int


def fans(shape: Shape) -> Fans:
    """The fans of a weight: `[inputs, outputs]` of a dense layer, `[filters, channels, ...]` of a convolution.

    Raises `ShapeError` for a rank below 2.
    """
    if shape.rank < 2:
        raise ShapeError(f"fans: wants a weight of rank 2 or more, got {shape}")
    if shape.rank == 2:
        return Fans(shape[0], shape[1])
    window = math.prod(shape[2:])
    return Fans(shape[1] * window, shape[0] * window)


def xavier(seed: int, gain: float = 1.0, *, distribution: str = "uniform") -> Seeded:
    """As much variance forwards as backwards: a standard deviation of `gain * sqrt(2 / (inputs + outputs))`.

    Uniform over `gain * sqrt(6 / (inputs + outputs))` to either side, or normal. For layers between activations that
    are about linear at 0 (Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural
    networks", 2010).
    """
    seed, gain = expect_seed(seed), expect_number("init.xavier", "gain", gain)

    def scale(fan: Fans, spread: float) -> float:
        return gain * math.sqrt(spread * 2.0 / (fan.inputs + fan.outputs))

    return _scaled("xavier", seed, distribution, scale)


def kaiming(seed: int, gain: float = math.sqrt(2.0), *, fan: str = "inputs", distribution: str = "normal") -> Seeded:
    """The variance stays: a standard deviation of `gain * sqrt(1 / inputs)`; the gain as is stands for `relu`.

    Normal, or uniform over `gain * sqrt(3 / inputs)` to either side. With `fan="outputs"` it is the variance of
    gradients that stays (He, Zhang, Ren and Sun, "Delving deep into rectifiers", 2015). An activation's `gain` may be
    given for another one.
    """
    seed, gain = expect_seed(seed), expect_number("init.kaiming", "gain", gain)
    if fan not in ("inputs", "outputs"):
        raise SettingError(f"init.kaiming: fan is 'inputs' or 'outputs', got {fan!r}")

    def scale(found: Fans, spread: float) -> float:
        return gain * math.sqrt(spread / (found.inputs if fan == "inputs" else found.outputs))

    return _scaled("kaiming", seed, distribution, scale)


def _scaled(rule: str, seed: int, distribution: str, scale: Callable[[Fans, float], float]) -> Seeded:
    """Draws by `scale(fans, spread)`: `spread` is what a uniform distribution's bound squared has over its variance."""
    if distribution not in _DRAWS:
        raise SettingError(f"init.{rule}: distribution is 'uniform' or 'normal', got {distribution!r}")
    drawn, spread = _DRAWS[distribution]

    def draw(stream: Stream, shape: Shape) -> Array:
        if shape.rank < 2:
            raise ShapeError(f"init.{rule}: wants a weight of rank 2 or more, got {shape}")
        return drawn(stream, shape) * (scale(fans(shape), spread) if shape.volume else 1.0)

    return Seeded(rule, seed, draw)


_DRAWS: dict[str, tuple[Draw, float]] = {
    "uniform": (lambda stream, shape: stream.signed(shape.volume), 3.0),
    "normal": (lambda stream, shape: stream.normals(shape.volume), 1.0),
}
