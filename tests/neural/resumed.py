"""A training run that saves after every step and goes on where its file says that it stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from topos import Tape, Tensor, Value, checkpoint, load_tensors, save_tensors

RATE, BETA1, BETA2, EPSILON = 0.02, 0.9, 0.999, 1e-8


class Trained(NamedTuple):
    """The step that a run started at, its losses from there on, and what it ended with, by name."""

    started: int
    losses: list[Tensor]
    tables: dict[str, Tensor]


def batch(step: int) -> dict[str, np.ndarray]:
    random = np.random.Generator(np.random.PCG64(step))
    return {"x": random.normal(size=(8, 6)).astype(np.float32), "t": random.normal(size=(8, 3)).astype(np.float32)}


def forward(tape: Tape) -> tuple[Value, list[Value], dict[Value, Value]]:
    """A loss over two layers with a normalisation between them, whose running mean is carried."""
    random = np.random.Generator(np.random.PCG64(99))
    first = tape.parameter(random.normal(size=(6, 16)).astype(np.float32) * 0.3, name="first")
    second = tape.parameter(random.normal(size=(16, 3)).astype(np.float32) * 0.3, name="second")
    mean = tape.input(shape=[16], name="mean")
    x, t = tape.input(shape=[8, 6], name="x"), tape.input(shape=[8, 3], name="t")
    hidden = x @ first
    centre = hidden.mean_along(0)
    hidden = (hidden - centre.broadcast_along(0, 8)).tanh()
    error = hidden @ second - t
    return (error * error).mean(), [first, second], {mean: mean * 0.9 + centre * 0.1}


def record_state(tape: Tape) -> dict[str, Any]:
    """Adam as part of the step: moments and powers are inputs that the step carries."""
    loss, weights, carry = forward(tape)
    powers = [tape.input(1.0, name=name) for name in ("power1", "power2")]
    after = [powers[0] * BETA1, powers[1] * BETA2]
    carry.update(zip(powers, after, strict=True))
    for weight, gradient in tape.differentiate(loss, weights):
        moments = [tape.input(shape=weight.shape) for _ in range(2)]
        first = moments[0] * BETA1 + gradient * (1 - BETA1)
        second = moments[1] * BETA2 + gradient * gradient * (1 - BETA2)
        carry.update(zip(moments, (first, second), strict=True))
        scale = [(1.0 - power).broadcast(weight.shape) for power in after]
        carry[weight] = weight - first / scale[0] / ((second / scale[1]).sqrt() + EPSILON) * RATE
    return {"loss": loss, "carry": carry}


def train(form: str, path: Path, stop: int) -> Trained:
    """Trains up to a step, from the file's where there is one; saves after every step."""
    return (_over_state if form == "state" else _over_tables)(path, stop)


def _over_state(path: Path, stop: int) -> Trained:
    network, names = Tape.record(record_state)
    plan = network.entry(names["loss"]).carry(names["carry"]).lower()
    state, start, losses = network.state(), 0, []
    if path.exists():
        saved = load_tensors(path)
        start, state = int(saved.metadata["step"]), checkpoint.named_restore(state, network, saved).table
    for step in range(start, stop):
        losses.append(plan.advance(state, batch(step)).of(names["loss"]))
        save_tensors(path, checkpoint.named_snapshot(state, network), {"step": str(step + 1)})
    return Trained(start, losses, checkpoint.named_snapshot(state, network))


def _over_tables(path: Path, stop: int) -> Trained:
    """Momentum over tables, a step at a time."""

    def function(tape: Tape) -> dict[str, Any]:
        loss, weights, _ = forward(tape)
        return {"loss": loss, "adjoints": tape.differentiate(loss, weights)}

    network, names = Tape.record(function)
    plan = network.entry(names["adjoints"].roots()).lower()
    weights = network.parameters()
    tables, start, losses = {"weights": weights, "velocity": weights.scale(0.0)}, 0, []
    if path.exists():
        saved = load_tensors(path)
        start, tables = int(saved.metadata["step"]), checkpoint.named_restore(tables, network, saved).table
    for step in range(start, stop):
        run = plan.forward(tables["weights"], batch(step))
        gradients = run.recorded_gradients(names["adjoints"])
        velocity = tables["velocity"].step(gradients, lambda v, g: v * 0.9 + g)
        tables = {"weights": tables["weights"].step(velocity, lambda w, v: w - v * RATE), "velocity": velocity}
        losses.append(run.of(names["loss"]))
        save_tensors(path, checkpoint.named_snapshot(tables, network), {"step": str(step + 1)})
    return Trained(start, losses, checkpoint.named_snapshot(tables, network))
