"""What layers record, written by hand."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np

from topos import Value, concat, where

Pair = tuple[int, int]


def dense(x: Value, weight: Value, bias: Value) -> Value:
    inputs, outputs = weight.shape
    rows = x if x.shape.rank == 2 else x.reshape([x.shape.volume // inputs, inputs])
    y = rows @ weight + bias.broadcast_along(0, rows.shape[0])
    return y if x.shape.rank == 2 else y.reshape([*x.shape[:-1], outputs])


def gelu_tanh(x: Value) -> Value:
    return x * (((x + x * x * x * 0.044715) * sqrt(2 / pi)).tanh() + 1.0) * 0.5


def convolution(x: Value, kernel: Value, bias: Value, stride: Pair, padding: Pair, dilation: Pair) -> Value:
    (images, channels, height, width), (filters, _, rows, columns) = x.shape, kernel.shape
    padded = x.pad(2, padding[0], height + 2 * padding[0]).pad(3, padding[1], width + 2 * padding[1])
    windows = padded.unfold(3, columns, stride[1], dilation[1]).unfold(2, rows, stride[0], dilation[0])
    down, across = windows.shape[2], windows.shape[4]
    terms = windows.permute([0, 2, 4, 1, 3, 5]).reshape([images * down * across, channels * rows * columns])
    y = terms @ kernel.reshape([filters, channels * rows * columns]).transpose()
    y = y + bias.broadcast_along(0, y.shape[0])
    return y.reshape([images, down, across, filters]).permute([0, 3, 1, 2])


def grouped_convolution(x: Value, kernel: Value, bias: Value, groups: int) -> Value:
    (images, _, height, width), (filters, channels, size, _) = x.shape, kernel.shape
    windows = x.unfold(3, size).unfold(2, size)
    down, across = height - size + 1, width - size + 1
    rows, inner = images * down * across, channels * size * size
    terms = windows.permute([0, 2, 4, 1, 3, 5]).reshape([rows, groups, inner]).permute([1, 0, 2])
    y = terms @ kernel.reshape([groups, filters // groups, inner]).transpose()
    y = y.permute([1, 0, 2]).reshape([rows, filters]) + bias.broadcast_along(0, rows)
    return y.reshape([images, down, across, filters]).permute([0, 3, 1, 2])


def convolution_1d(x: Value, kernel: Value, stride: int, padding: int) -> Value:
    (images, channels, length), (filters, _, size) = x.shape, kernel.shape
    windows = x.pad(2, padding, length + 2 * padding).unfold(2, size, stride)
    terms = windows.permute([0, 2, 1, 3]).reshape([images * windows.shape[2], channels * size])
    y = terms @ kernel.reshape([filters, channels * size]).transpose()
    return y.reshape([images, windows.shape[2], filters]).permute([0, 2, 1])


def max_pool(x: Value, size: int, stride: int, padding: int) -> Value:
    height, width = x.shape[2:]
    padded = x.pad(2, padding, height + 2 * padding, -np.inf).pad(3, padding, width + 2 * padding, -np.inf)
    return padded.unfold(3, size, stride).unfold(2, size, stride).max_along(5).max_along(3)


def average_pool(x: Value, rows: int, columns: int) -> Value:
    windows = x.unfold(3, columns, columns).unfold(2, rows, rows)
    return windows.sum_along(5).sum_along(3) / (rows * columns)


def _normalised(x: Value, axis: int) -> Value:
    width = x.shape[axis]
    centred = x - x.mean_along(axis).broadcast_along(axis, width)
    deviation = ((centred * centred).mean_along(axis) + 1e-5).sqrt()
    return centred / deviation.broadcast_along(axis, width)


def layer_norm(x: Value, gain: Value, bias: Value) -> Value:
    return _normalised(x, x.shape.rank - 1) * gain.broadcast_to(x.shape) + bias.broadcast_to(x.shape)


def rms_norm(x: Value, gain: Value) -> Value:
    axis = x.shape.rank - 1
    root = ((x * x).mean_along(axis) + 1e-5).sqrt()
    return x / root.broadcast_along(axis, x.shape[axis]) * gain.broadcast_to(x.shape)


def group_norm(x: Value, gain: Value, bias: Value) -> Value:
    batch, channels, height, width = x.shape
    groups = x.reshape([batch, 2, channels // 2 * height * width])
    normal = _normalised(groups, 2).reshape(x.shape)
    return normal * _by_channel(gain, x) + _by_channel(bias, x)


def _by_channel(value: Value, x: Value) -> Value:
    return value.reshape([x.shape[1], 1, 1]).broadcast_to(x.shape)


def _rows(x: Value) -> Value:
    batch, channels, height, width = x.shape
    return x.permute([0, 2, 3, 1]).reshape([batch * height * width, channels])


def _images(rows: Value, x: Value) -> Value:
    batch, channels, height, width = x.shape
    return rows.reshape([batch, height, width, channels]).permute([0, 3, 1, 2])


def _affine(normal: Value, gain: Value, bias: Value) -> Value:
    count = normal.shape[0]
    return normal * gain.broadcast_along(0, count) + bias.broadcast_along(0, count)


def batch_norm_training(x: Value, gain: Value, bias: Value, mean: Value, variance: Value) -> Value:
    rows = _rows(x)
    count = rows.shape[0]
    centre = rows.mean_along(0)
    centred = rows - centre.broadcast_along(0, count)
    spread = (centred * centred).mean_along(0)
    normal = centred / (spread + 1e-5).sqrt().broadcast_along(0, count)
    unbiased = spread * (count / (count - 1))
    moved = mean * 0.9 + centre * 0.1, variance * 0.9 + unbiased * 0.1
    assert all(one.shape == mean.shape for one in moved)
    return _images(_affine(normal, gain, bias), x)


def batch_norm_inference(x: Value, gain: Value, bias: Value, mean: Value, variance: Value) -> Value:
    rows = _rows(x)
    count = rows.shape[0]
    centred = rows - mean.broadcast_along(0, count)
    return _images(_affine(centred / (variance + 1e-5).sqrt().broadcast_along(0, count), gain, bias), x)


def rotary(x: Value, cosines: Value, sines: Value) -> Value:
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    turn, lift = cosines.broadcast_to(first.shape), sines.broadcast_to(first.shape)
    return concat([first * turn - second * lift, second * turn + first * lift], -1)


def attention(
    x: Value,
    inward: Value,
    bias: Value,
    outward: Value,
    shift: Value,
    cosines: Value,
    sines: Value,
    heads: int,
    groups: int,
) -> Value:
    batch, tokens, width = x.shape
    size = width // heads
    columns = dense(x, inward, bias)

    def part(start: int, count: int) -> Value:
        taken = columns[:, :, start * size : (start + count) * size]
        return taken.reshape([batch, tokens, count, size]).swap(1, 2)

    turned = rotary(part(0, heads + groups), cosines, sines)
    query, key = turned[:, :heads], turned[:, heads:]
    value = part(heads + groups, groups)
    if groups < heads:
        key, value = (
            shared.broadcast_along(2, heads // groups).reshape([batch, heads, tokens, size]) for shared in (key, value)
        )
    scores = query @ key.transpose() * (1 / sqrt(size))
    scores = where(x.tape.leaf(np.tri(tokens)).broadcast_to(scores.shape), scores, -np.inf)
    joined = (scores.softmax(-1) @ value).swap(1, 2).reshape([batch, tokens, width])
    return dense(joined, outward, shift)
