"""Every layer beside its hand-written equivalent and the formula in NumPy, for the tests that ask all of them."""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt
from typing import Any, NamedTuple

import numpy as np
from by_formula import (
    attended,
    averaged,
    convolved,
    group_normalised,
    largest,
    layer_normalised,
    root_normalised,
    turned,
)
from by_hand import (
    attention,
    average_pool,
    batch_norm_inference,
    batch_norm_training,
    convolution,
    convolution_1d,
    dense,
    gelu_tanh,
    group_norm,
    grouped_convolution,
    layer_norm,
    max_pool,
    rms_norm,
    rotary,
)

import topos
from topos import (
    Activation,
    Attention,
    BatchNorm,
    Conv1d,
    Conv2d,
    Dropout,
    GroupNorm,
    LayerNorm,
    Linear,
    Mlp,
    Parallel,
    Positions,
    Residual,
    RmsNorm,
    Rotary,
    Sequential,
    Tape,
    Value,
    causal_mask,
)

Array = np.ndarray[Any, np.dtype[Any]]


def drawn(shape: Any, element: Any) -> Array:
    """The initial payload of every weight: the same for the same shape."""
    return np.random.default_rng(len(shape)).normal(size=tuple(shape)) * 0.5


class Layer(NamedTuple):
    """A layer: recorded by its facade, recorded by hand, and in NumPy over its parameters in order."""

    name: str
    shape: list[int]
    facade: Callable[..., Callable[[Value], Value]]
    by_hand: Callable[[Tape], Callable[[Value], Value]]
    formula: Callable[..., Array]
    kinds: tuple[str, ...] = ()
    by_row: bool = True


def weights(tape: Tape, *shapes: list[int]) -> list[Value]:
    return [tape.parameter(drawn(shape, None)) for shape in shapes]


def ones_and_zeros(tape: Tape, width: int) -> list[Value]:
    return [tape.parameter(np.ones(width)), tape.parameter(np.zeros(width))]


def _linear(tape: Tape) -> Callable[[Value], Value]:
    weight, bias = tape.parameter(drawn([4, 3], None)), tape.parameter(np.zeros(3))
    return lambda x: dense(x, weight, bias)


def _mlp(tape: Tape) -> Callable[[Value], Value]:
    payloads = drawn([4, 8], None), np.zeros(8), drawn([8, 2], None), np.zeros(2)
    w, b, v, c = map(tape.parameter, payloads)
    return lambda x: dense(gelu_tanh(dense(x, w, b)), v, c)


def _conv2d(tape: Tape) -> Callable[[Value], Value]:
    kernel, bias = tape.parameter(drawn([4, 3, 3, 2], None)), tape.parameter(np.zeros(4))
    return lambda x: convolution(x, kernel, bias, (2, 1), (1, 2), (1, 2))


def _grouped(tape: Tape) -> Callable[[Value], Value]:
    kernel, bias = tape.parameter(drawn([6, 2, 3, 3], None)), tape.parameter(np.zeros(6))
    return lambda x: grouped_convolution(x, kernel, bias, 2)


def _conv1d(tape: Tape) -> Callable[[Value], Value]:
    (kernel,) = weights(tape, [4, 3, 3])
    return lambda x: convolution_1d(x, kernel, 2, 1)


def _norm(form: Callable[..., Value], width: int) -> Callable[[Tape], Callable[[Value], Value]]:
    def recorded(tape: Tape) -> Callable[[Value], Value]:
        gain, bias = ones_and_zeros(tape, width)
        return lambda x: form(x, gain, bias)

    return recorded


def _rms(tape: Tape) -> Callable[[Value], Value]:
    gain = tape.parameter(np.ones(8))
    return lambda x: rms_norm(x, gain)


def _batch(form: Callable[..., Value]) -> Callable[[Tape], Callable[[Value], Value]]:
    def recorded(tape: Tape) -> Callable[[Value], Value]:
        gain, bias = ones_and_zeros(tape, 3)
        mean, variance = tape.input(np.zeros(3)), tape.input(np.ones(3))
        return lambda x: form(x, gain, bias, mean, variance)

    return recorded


def _residual(tape: Tape) -> Callable[[Value], Value]:
    weight, bias = tape.parameter(drawn([4, 4], None)), tape.parameter(np.zeros(4))
    return lambda x: x + dense(x, weight, bias).tanh()


def _parallel(tape: Tape) -> Callable[[Value], Value]:
    weight, bias = tape.parameter(drawn([4, 3], None)), tape.parameter(np.zeros(3))
    return lambda x: topos.concat([dense(x, weight, bias), x.relu()], 1)


def _attention(groups: int) -> Callable[[Tape], Callable[[Value], Value]]:
    def recorded(tape: Tape) -> Callable[[Value], Value]:
        cosines, sines = (tape.leaf(table) for table in turned(5, 2))
        width = 8 + 2 * groups * 2
        inward, bias = tape.parameter(drawn([8, width], None)), tape.parameter(np.zeros(width))
        outward, shift = tape.parameter(drawn([8, 8], None)), tape.parameter(np.zeros(8))
        return lambda x: attention(x, inward, bias, outward, shift, cosines, sines, 4, groups)

    return recorded


def _heads(tape: Tape, groups: int, **options: Any) -> Callable[[Value], Value]:
    rotary = Rotary(tape, 5, 2)
    layer = Attention(tape, 8, 4, drawn, groups=groups, rotary=rotary, **options)
    return lambda x: layer(x, where=causal_mask(5))


def _positions(tape: Tape) -> Callable[[Value], Value]:
    (table,) = weights(tape, [7, 4])
    return lambda x: x + table.narrow(0, 0, 5).broadcast_to(x.shape)


def _rotary(tape: Tape) -> Callable[[Value], Value]:
    cosines, sines = (tape.leaf(table) for table in turned(5, 6))
    return lambda x: rotary(x, cosines, sines)


def _rotated(x: Array) -> Array:
    y = np.empty_like(x)
    for place in range(x.shape[-2]):
        for column in range(3):
            angle = place / 10000 ** (2 * column / 6)
            turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
            y[..., place, [column, column + 3]] = x[..., place, [column, column + 3]] @ turn.T
    return y


def _trained(tape: Tape, **options: Any) -> Callable[[Value], Value]:
    norm = BatchNorm(tape, 3, **options)
    return lambda x: norm.train(x)[0]


def _dropped(tape: Tape) -> Callable[[Value], Value]:
    mask = tape.input(np.ones([6, 4]))
    return lambda x: x * mask


def _batch_by_formula(x: Array, gain: Array, bias: Array) -> Array:
    rows = np.moveaxis(x, 1, -1)
    normal = (rows - rows.mean((0, 1, 2))) / np.sqrt(rows.var((0, 1, 2)) + 1e-5) * gain + bias
    return np.moveaxis(normal, -1, 1)


def _moved_by_formula(x: Array, gain: Array, bias: Array) -> Array:
    return x / sqrt(1 + 1e-5) * gain[:, None, None] + bias[:, None, None]


def _gelu_tanh(x: Array) -> Array:
    return x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2


WINDOWS, ROWS = ("window product",), ("layer norm",)
LAYERS = [
    Layer("Linear", [6, 4], lambda t, **o: Linear(t, 4, 3, drawn, **o), _linear, lambda x, w, b: x @ w + b),
    Layer(
        "Linear of rank 3", [2, 5, 4], lambda t, **o: Linear(t, 4, 3, drawn, **o), _linear, lambda x, w, b: x @ w + b
    ),
    Layer(
        "Mlp",
        [6, 4],
        lambda t, **o: Mlp(t, [4, 8, 2], "gelu_tanh", drawn, **o),
        _mlp,
        lambda x, w, b, v, c: _gelu_tanh(x @ w + b) @ v + c,
    ),
    Layer(
        "Conv2d",
        [2, 3, 6, 5],
        lambda t, **o: Conv2d(t, 3, 4, (3, 2), drawn, stride=(2, 1), padding=(1, 2), dilation=(1, 2), **o),
        _conv2d,
        lambda x, w, b: convolved(x, w, (2, 1), (1, 2), (1, 2)) + b[:, None, None],
        WINDOWS,
    ),
    Layer(
        "Conv2d of groups",
        [2, 4, 5, 5],
        lambda t, **o: Conv2d(t, 4, 6, 3, drawn, groups=2, **o),
        _grouped,
        lambda x, w, b: (
            np.concatenate(
                [convolved(x[:, at : at + 2], w[3 * at // 2 :][:3], (1, 1), (0, 0), (1, 1)) for at in (0, 2)], 1
            )
            + b[:, None, None]
        ),
    ),
    Layer(
        "Conv1d",
        [2, 3, 7],
        lambda t, **o: Conv1d(t, 3, 4, 3, drawn, stride=2, padding=1, bias=False, **o),
        _conv1d,
        lambda x, w: convolved(x[:, :, None], w[:, :, None], (1, 2), (0, 1), (1, 1))[:, :, 0],
        WINDOWS,
    ),
    Layer(
        "max_pool",
        [2, 3, 6, 5],
        lambda t, **o: lambda x: topos.max_pool(x, 3, stride=2, padding=1),
        lambda t: lambda x: max_pool(x, 3, 2, 1),
        lambda x: largest(x, 3, 2, 1),
        ("max pool",),
    ),
    Layer(
        "average_pool",
        [2, 3, 6, 5],
        lambda t, **o: lambda x: topos.average_pool(x, (2, 3)),
        lambda t: lambda x: average_pool(x, 2, 3),
        lambda x: averaged(x, 2, 3),
        ("average pool",),
    ),
    Layer(
        "global_average_pool",
        [2, 3, 6, 5],
        lambda t, **o: topos.global_average_pool,
        lambda t: lambda x: x.reshape([2, 3, 30]).mean_along(2),
        lambda x: x.mean((2, 3)),
    ),
    Layer(
        "global_max_pool",
        [2, 3, 7],
        lambda t, **o: topos.global_max_pool,
        lambda t: lambda x: x.max_along(2),
        lambda x: x.max(2),
    ),
    Layer("LayerNorm", [2, 5, 8], lambda t, **o: LayerNorm(t, 8, **o), _norm(layer_norm, 8), layer_normalised, ROWS),
    Layer("RmsNorm", [2, 5, 8], lambda t, **o: RmsNorm(t, 8, **o), _rms, root_normalised, ("RMS norm",)),
    Layer(
        "GroupNorm", [2, 6, 3, 4], lambda t, **o: GroupNorm(t, 6, 2, **o), _norm(group_norm, 6), group_normalised, ROWS
    ),
    Layer(
        "BatchNorm in training",
        [2, 3, 4, 5],
        _trained,
        _batch(batch_norm_training),
        _batch_by_formula,
        ("batch norm training",),
        by_row=False,
    ),
    Layer(
        "BatchNorm after",
        [2, 3, 4, 5],
        lambda t, **o: BatchNorm(t, 3, **o).infer,
        _batch(batch_norm_inference),
        _moved_by_formula,
        ("batch norm inference",),
    ),
    Layer("Dropout", [6, 4], lambda t, **o: Dropout(t, [6, 4], **o), _dropped, lambda x: x, by_row=False),
    Layer(
        "Positions",
        [2, 5, 4],
        lambda t, **o: Positions(t, 7, 4, drawn, **o),
        _positions,
        lambda x, table: x + table[:5],
    ),
    Layer("Rotary", [2, 5, 6], lambda t, **o: Rotary(t, 5, 6, **o), _rotary, _rotated, ("concatenation",)),
    Layer(
        "Attention",
        [3, 5, 8],
        lambda t, **o: _heads(t, 4, **o),
        _attention(4),
        lambda x, *w: attended(x, *w, heads=4, groups=4),
        ("attention",),
    ),
    Layer(
        "Attention of two groups",
        [3, 5, 8],
        lambda t, **o: _heads(t, 2, **o),
        _attention(2),
        lambda x, *w: attended(x, *w, heads=4, groups=2),
        ("attention",),
    ),
    Layer(
        "Residual",
        [6, 4],
        lambda t, **o: Residual(Sequential(Linear(t, 4, 4, drawn, **o), Value.tanh)),
        _residual,
        lambda x, w, b: x + np.tanh(x @ w + b),
    ),
    Layer(
        "Parallel",
        [6, 4],
        lambda t, **o: Parallel(Linear(t, 4, 3, drawn, **o), Activation("relu"), axis=1),
        _parallel,
        lambda x, w, b: np.concatenate([x @ w + b, np.maximum(x, 0)], 1),
        ("concatenation",),
    ),
]
"""Every layer of values."""
