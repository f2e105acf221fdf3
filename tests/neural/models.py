"""Small models with what training has to get right: ids, tied tables, attention, statistics that move, two elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from topos import Linear, Tape, Value, bf16, f32, where
from topos.element import Element


class Model(NamedTuple):
    """A loss, what it is trained in, what a step carries beside the weights, and what each step is fed by name."""

    loss: Value
    weights: list[Value]
    carry: dict[Value, Value]


Record = Callable[[Tape], Model]


class Kind(NamedTuple):
    """A model's recording, the numbers of its batches, and the element of its tape."""

    record: Record
    batch: Callable[[int], dict[str, Any]]
    element: Element = f32


def normal(seed: int, *shape: int, scale: float = 0.3) -> Any:
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


def _init(seed: int) -> Callable[[Any, Any], Any]:
    return lambda shape, element: normal(seed, *shape)


def letters(tape: Tape) -> Model:
    """An embedding, two dense layers and a cross entropy."""
    table = tape.parameter(normal(0, 27, 10), name="table")
    ids, labels = tape.selection([32, 3], 27, name="ids"), tape.selection([32], 27, name="labels")
    hidden, out = Linear(tape, 30, 64, _init(1), name="hidden"), Linear(tape, 64, 27, _init(2), name="out")
    scores = out(hidden(table.gather(ids).reshape([32, 30])).tanh())
    weights = [table, *(tape.resolve(part) for layer in (hidden, out) for _, part in layer.visit())]
    return Model(_entropy(scores, labels), weights, {})


def _letters(step: int) -> dict[str, Any]:
    random = np.random.default_rng(step)
    return {"ids": random.integers(0, 27, (32, 3)), "labels": random.integers(0, 27, 32)}


def pictures(tape: Tape) -> Model:
    """A convolution, a norm over the batch whose statistics move, a pool and a dense layer."""
    kernel = tape.parameter(normal(3, 8, 3, 3, 3), name="kernel")
    gain, bias = tape.parameter(np.ones(8), name="gain"), tape.parameter(np.zeros(8), name="bias")
    out = Linear(tape, 8 * 16, 10, _init(4), name="out")
    mean, variance = tape.input(np.zeros(8), name="mean"), tape.input(np.ones(8), name="variance")
    x, labels = tape.input(shape=[8, 3, 8, 8], name="x"), tape.selection([8], 10, name="labels")
    padded = x.pad(2, 1, 10).pad(3, 1, 10)
    rows = padded.unfold(3, 3).unfold(2, 3).permute([0, 2, 4, 1, 3, 5]).reshape([512, 27])
    rows = rows @ kernel.reshape([8, 27]).transpose()
    centre = rows.mean_along(0)
    centred = rows - centre.broadcast_along(0, 512)
    spread = (centred * centred).mean_along(0)
    rows = centred / (spread + 1e-5).sqrt().broadcast_along(0, 512)
    rows = (rows * gain.broadcast_along(0, 512) + bias.broadcast_along(0, 512)).relu()
    images = rows.reshape([8, 8, 8, 8]).permute([0, 3, 1, 2])
    pooled = images.unfold(3, 2, 2).unfold(2, 2, 2).max_along(5).max_along(3)
    scores = out(pooled.reshape([8, 128]))
    carry = {mean: mean * 0.9 + centre * 0.1, variance: variance * 0.9 + spread * (0.1 * 512 / 511)}
    weights = [kernel, gain, bias, *(tape.resolve(part) for _, part in out.visit())]
    return Model(_entropy(scores, labels), weights, carry)


def _pictures(step: int) -> dict[str, Any]:
    random = np.random.default_rng(step)
    return {"x": random.normal(size=(8, 3, 8, 8)).astype(np.float32), "labels": random.integers(0, 10, 8)}


def characters(tape: Tape) -> Model:
    """Causal attention between a table and the same table: tied, with a cast at each use where weights are wide."""
    common = tape.element
    table = tape.parameter(normal(5, 20, 16), name="table", element=f32)
    mixed = tape.parameter(normal(6, 16, 48), name="mixed", element=f32)
    ids, labels = tape.selection([24], 20, name="ids"), tape.selection([24], 20, name="labels")
    hidden = table.to(common).gather(ids)
    query, key, content = ((hidden @ mixed.to(common)).narrow(1, 16 * part, 16) for part in range(3))
    mask = tape.leaf(np.tril(np.ones((24, 24))))
    mixture = where(mask, query @ key.transpose() * 0.25, -np.inf).softmax(-1) @ content
    scores = (hidden + mixture) @ table.to(common).transpose()
    return Model(_entropy(scores, labels), [table, mixed], {})


def _characters(step: int) -> dict[str, Any]:
    random = np.random.default_rng(step)
    return {"ids": random.integers(0, 20, 24), "labels": random.integers(0, 20, 24)}


def _entropy(scores: Value, labels: Value) -> Value:
    return -labels.select(scores.log_softmax(1), 0.0).sum() / scores.shape[0]


KINDS: Mapping[str, Kind] = {
    "letters": Kind(letters, _letters),
    "pictures": Kind(pictures, _pictures),
    "characters": Kind(characters, _characters),
    "characters bf16": Kind(characters, _characters, bf16),
}
