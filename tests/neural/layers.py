"""Every layer beside its hand-written equivalent and the formula in NumPy, for the tests that ask all of them."""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt
from typing import Any, NamedTuple

import hand_layers as hand
import numpy as np
from by_formula import (
    attended,
    averaged,
    convolved,
    group_normalised,
    largest,
    layer_normalised,
    root_normalised,
)
from by_hand import (
    average_pool,
    batch_norm_inference,
    batch_norm_training,
    group_norm,
    layer_norm,
    max_pool,
)
from hand_layers import drawn

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


class Layer(NamedTuple):
    """A layer: recorded by its facade, recorded by hand, and in NumPy over its parameters in order."""

    name: str
    shape: list[int]
    facade: Callable[..., Callable[[Value], Value]]
    by_hand: Callable[[Tape], Callable[[Value], Value]]
    formula: Callable[..., Array]
    kinds: tuple[str, ...] = ()
    by_row: bool = True


def _heads(tape: Tape, groups: int, **options: Any) -> Callable[[Value], Value]:
    rotary = Rotary(tape, 5, 2)
    layer = Attention(tape, 8, 4, drawn, groups=groups, rotary=rotary, **options)
    return lambda x: layer(x, where=causal_mask(5))


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
    Layer("Linear", [6, 4], lambda t, **o: Linear(t, 4, 3, drawn, **o), hand.linear, lambda x, w, b: x @ w + b),
    Layer(
        "Linear of rank 3",
        [2, 5, 4],
        lambda t, **o: Linear(t, 4, 3, drawn, **o),
        hand.linear,
        lambda x, w, b: x @ w + b,
    ),
    Layer(
        "Mlp",
        [6, 4],
        lambda t, **o: Mlp(t, [4, 8, 2], "gelu_tanh", drawn, **o),
        hand.mlp,
        lambda x, w, b, v, c: _gelu_tanh(x @ w + b) @ v + c,
    ),
    Layer(
        "Conv2d",
        [2, 3, 6, 5],
        lambda t, **o: Conv2d(t, 3, 4, (3, 2), drawn, stride=(2, 1), padding=(1, 2), dilation=(1, 2), **o),
        hand.conv2d,
        lambda x, w, b: convolved(x, w, (2, 1), (1, 2), (1, 2)) + b[:, None, None],
        WINDOWS,
    ),
    Layer(
        "Conv2d of groups",
        [2, 4, 5, 5],
        lambda t, **o: Conv2d(t, 4, 6, 3, drawn, groups=2, **o),
        hand.grouped,
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
        hand.conv1d,
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
    Layer(
        "LayerNorm", [2, 5, 8], lambda t, **o: LayerNorm(t, 8, **o), hand.norm(layer_norm, 8), layer_normalised, ROWS
    ),
    Layer("RmsNorm", [2, 5, 8], lambda t, **o: RmsNorm(t, 8, **o), hand.rms, root_normalised, ("RMS norm",)),
    Layer(
        "GroupNorm",
        [2, 6, 3, 4],
        lambda t, **o: GroupNorm(t, 6, 2, **o),
        hand.norm(group_norm, 6),
        group_normalised,
        ROWS,
    ),
    Layer(
        "BatchNorm in training",
        [2, 3, 4, 5],
        _trained,
        hand.batch(batch_norm_training),
        _batch_by_formula,
        ("batch norm training",),
        by_row=False,
    ),
    Layer(
        "BatchNorm after",
        [2, 3, 4, 5],
        lambda t, **o: BatchNorm(t, 3, **o).infer,
        hand.batch(batch_norm_inference),
        _moved_by_formula,
        ("batch norm inference",),
    ),
    Layer("Dropout", [6, 4], lambda t, **o: Dropout(t, [6, 4], **o), hand.dropped, lambda x: x, by_row=False),
    Layer(
        "Positions",
        [2, 5, 4],
        lambda t, **o: Positions(t, 7, 4, drawn, **o),
        hand.positions,
        lambda x, table: x + table[:5],
    ),
    Layer("Rotary", [2, 5, 6], lambda t, **o: Rotary(t, 5, 6, **o), hand.rotary, _rotated, ("concatenation",)),
    Layer(
        "Attention",
        [3, 5, 8],
        lambda t, **o: _heads(t, 4, **o),
        hand.attention(4),
        lambda x, *w: attended(x, *w, heads=4, groups=4),
        ("attention",),
    ),
    Layer(
        "Attention of two groups",
        [3, 5, 8],
        lambda t, **o: _heads(t, 2, **o),
        hand.attention(2),
        lambda x, *w: attended(x, *w, heads=4, groups=2),
        ("attention",),
    ),
    Layer(
        "Residual",
        [6, 4],
        lambda t, **o: Residual(Sequential(Linear(t, 4, 4, drawn, **o), Value.tanh)),
        hand.residual,
        lambda x, w, b: x + np.tanh(x @ w + b),
    ),
    Layer(
        "Parallel",
        [6, 4],
        lambda t, **o: Parallel(Linear(t, 4, 3, drawn, **o), Activation("relu"), axis=1),
        hand.parallel,
        lambda x, w, b: np.concatenate([x @ w + b, np.maximum(x, 0)], 1),
        ("concatenation",),
    ),
]
"""Every layer of values."""
