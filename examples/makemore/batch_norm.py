"""A deeper net, which learns because batch norm keeps its layers in range: twelve tanh layers, with and without.

In training a layer's outputs are normalised by the mean and the variance of the batch. `BatchNorm.train` answers them
with the values that replace its running statistics, inputs of the spec that the training step carries; to measure,
`infer` normalises by those, so that a row has the same scores in any batch.

Prints for both nets the share of outputs that are saturated at the start, the loss on held-out names, and steps per
second; draws `makemore_batch_norm.png`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import names as given
import numpy as np
from names import CLASSES

from topos import BatchNorm, Embedding, Linear, Module, Sgd, Tape, Value, cross_entropy, detach, init, parameters

CONTEXT = 3
NOBODY = -1


class DeepNet(Module):
    """Scores `[batch, 27]`: an embedding, `depth` tanh layers, and a linear one; each normalised, or none is."""

    def __init__(self, tape: Tape, depth: int, width: int, normal: bool, seed: int) -> None:
        self.embedding = Embedding(tape, CLASSES, 10, init.normal(seed, 1.0), name="embedding")
        extents = [CONTEXT * 10, *[width] * depth]
        # Too large a start on purpose: it saturates tanh, which is what batch norm forgives.
        self.layers = [
            Linear(tape, inner, outer, init.normal(seed + 1 + at, 6 / inner**0.5), bias=not normal, name=f"layers.{at}")
            for at, (inner, outer) in enumerate(zip(extents, extents[1:], strict=False))
        ]
        self.norms = [BatchNorm(tape, width, name=f"norms.{at}") for at in range(depth)] if normal else []
        self.output = Linear(tape, width, CLASSES, init.normal(seed + 1 + depth, 0.1 / width**0.5), name="output")

    def train(self, context: Value) -> tuple[Value, dict[Value, Value], list[Value]]:
        """The scores, what replaces the running statistics, and the outputs of every layer."""
        hidden, carry, outputs = self._letters(context), {}, []
        for at, layer in enumerate(self.layers):
            hidden = layer(hidden)
            if self.norms:
                hidden, moved = self.norms[at].train(hidden)
                carry |= moved
            hidden = hidden.tanh()
            outputs.append(hidden)
        return self.output(hidden), carry, outputs

    def express(self, context: Value) -> Value:
        hidden = self._letters(context)
        for at, layer in enumerate(self.layers):
            hidden = layer(hidden)
            hidden = (self.norms[at].infer(hidden) if self.norms else hidden).tanh()
        return self.output(hidden)

    def _letters(self, context: Value) -> Value:
        letters = self.embedding(context)
        return letters.reshape([letters.shape.volume // (CONTEXT * 10), CONTEXT * 10])


class Trained(NamedTuple):
    """The loss of every step, the loss on held-out names, and the share of saturated outputs at the start."""

    losses: np.ndarray
    held_out: float
    saturated: float


def train(normal: bool, depth: int, width: int, steps: int, batch: int, rate: float, limit: int | None) -> Trained:
    trained_on, held_out_names = given.split(given.read(limit, seed=1))
    contexts, targets = given.windows(trained_on, CONTEXT)
    dev_contexts, dev_targets = given.windows(held_out_names, CONTEXT)
    tape = Tape()
    net = DeepNet(tape, depth, width, normal, seed=5)
    context = tape.selection([batch, CONTEXT], CLASSES, name="context")
    scores, moved, outputs = net.train(context)
    loss = cross_entropy(scores, tape.selection([batch], CLASSES, name="target"))
    update = Sgd().record(tape, tape.differentiate(loss, parameters(net)))
    update.rate.named("rate")
    measured_context = tape.selection([len(dev_targets), CONTEXT], CLASSES, name="measured.context")
    measured = cross_entropy(net(measured_context), tape.selection([len(dev_targets)], CLASSES, name="measured.target"))
    saturated = sum(output.abs().step(0.97).mean() for output in outputs) / len(outputs)
    loss, saturated, measured, carry = detach(loss, saturated, measured, {**update.carry, **moved})
    network = tape.into_network()
    state, plan = network.state(), network.entry(loss).carry(carry).lower()
    rows = np.random.Generator(np.random.PCG64(3)).integers(len(targets), size=(steps, batch))
    first = {"context": contexts[rows[0]], "target": targets[rows[0]]}
    share = float(network.entry(saturated).lower().forward(state, first).of(saturated))
    feeds = {"context": contexts[rows], "target": targets[rows], "rate": np.linspace(rate, rate / 10, steps)}
    plan.prepare()
    started = time.perf_counter()
    losses = plan.advance(state, feeds, steps=steps).of(loss).numpy()
    elapsed = time.perf_counter() - started
    dev = {"measured.context": dev_contexts, "measured.target": dev_targets}
    held_out = float(network.entry(measured).lower().forward(state, dev).of(measured))
    print(f"{'with' if normal else 'without':7} batch norm  saturated {share:4.0%}  held out {held_out:.4f}", end="  ")
    print(f"{steps / elapsed:,.0f} steps per second")
    return Trained(losses, held_out, share)


def main(
    steps: int = 3000,
    batch: int = 32,
    depth: int = 12,
    width: int = 100,
    rate: float = 0.3,
    limit: int | None = None,
    picture: str | Path = "makemore_batch_norm.png",
) -> tuple[Trained, Trained]:
    without, normal = (train(norm, depth, width, steps, batch, rate, limit) for norm in (False, True))
    curves = {"without batch norm": without.losses, "with batch norm": normal.losses}
    given.draw(Path(picture), f"{depth} tanh layers from too large a start", curves)
    print(f"picture: {picture}")
    return without, normal


if __name__ == "__main__":
    main()
