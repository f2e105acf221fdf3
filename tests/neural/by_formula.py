"""What layers compute, in plain NumPy over f64, place by place."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Pair = tuple[int, int]


def convolved(x: Array, w: Array, stride: Pair, padding: Pair, dilation: Pair) -> Array:
    batch, _, height, width = x.shape
    filters, _, rows, columns = w.shape
    padded = np.zeros((*x.shape[:2], height + 2 * padding[0], width + 2 * padding[1]))
    padded[:, :, padding[0] : padding[0] + height, padding[1] : padding[1] + width] = x
    down = (padded.shape[2] - dilation[0] * (rows - 1) - 1) // stride[0] + 1
    across = (padded.shape[3] - dilation[1] * (columns - 1) - 1) // stride[1] + 1
    y = np.zeros((batch, filters, down, across))
    for i, j, r, c in np.ndindex(down, across, rows, columns):
        seen = padded[:, :, i * stride[0] + r * dilation[0], j * stride[1] + c * dilation[1]]
        y[:, :, i, j] += seen @ w[:, :, r, c].T
    return y


def largest(x: Array, size: int, stride: int, padding: int) -> Array:
    batch, channels, height, width = x.shape
    down, across = ((extent + 2 * padding - size) // stride + 1 for extent in (height, width))
    y = np.full((batch, channels, down, across), -np.inf)
    for i, j, r, c in np.ndindex(down, across, size, size):
        row, column = i * stride + r - padding, j * stride + c - padding
        if 0 <= row < height and 0 <= column < width:
            y[:, :, i, j] = np.maximum(y[:, :, i, j], x[:, :, row, column])
    return y


def averaged(x: Array, rows: int, columns: int) -> Array:
    y = np.zeros((*x.shape[:2], x.shape[2] // rows, x.shape[3] // columns))
    for i, j in np.ndindex(*y.shape[2:]):
        y[:, :, i, j] = x[:, :, i * rows : (i + 1) * rows, j * columns : (j + 1) * columns].mean((2, 3))
    return y


def layer_normalised(x: Array, gain: Array, bias: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain + bias


def root_normalised(x: Array, gain: Array) -> Array:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * gain


def group_normalised(x: Array, gain: Array, bias: Array) -> Array:
    y = np.empty_like(x)
    for image, group in np.ndindex(x.shape[0], 2):
        part = x[image, 3 * group : 3 * group + 3]
        y[image, 3 * group : 3 * group + 3] = (part - part.mean()) / np.sqrt(part.var() + 1e-5)
    return y * gain[:, None, None] + bias[:, None, None]


def turned(places: int, width: int) -> tuple[Array, Array]:
    """The cosines and sines of rotary embeddings."""
    angles = np.arange(places)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.cos(angles), np.sin(angles)


def attended(x: Array, inward: Array, bias: Array, outward: Array, shift: Array, *, heads: int, groups: int) -> Array:
    """Causal attention, head by head, with rotated queries and keys of two columns each."""
    tokens, size = x.shape[1], x.shape[2] // heads
    columns = (x @ inward + bias).reshape(*x.shape[:2], heads + 2 * groups, size)
    cosines, sines = turned(tokens, size)
    y = np.zeros((*x.shape[:2], heads, size))
    for image, head, token in np.ndindex(x.shape[0], heads, tokens):
        group = head * groups // heads
        query = _turned(columns[image, token, head], cosines[token], sines[token])
        scores = [
            query @ _turned(columns[image, place, heads + group], cosines[place], sines[place]) / np.sqrt(size)
            for place in range(token + 1)
        ]
        chances = np.exp(scores - np.max(scores))
        y[image, token, head] = chances / chances.sum() @ columns[image, : token + 1, heads + groups + group]
    return y.reshape(x.shape) @ outward + shift


def _turned(row: Array, cosines: Array, sines: Array) -> Array:
    first, second = np.split(row, 2)
    return np.concatenate([first * cosines - second * sines, second * cosines + first * sines])
