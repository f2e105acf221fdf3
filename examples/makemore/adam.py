"""The training loop over tables, one stage a line: forward, gradients, clip, Adam.

Nothing is hidden in this loop. `plan.forward` answers the loss and the recorded gradients over a table of weights,
`clip_by_global_norm` and `Adam.step` make the next table of it, and the old one is still there. `compiled.py` has the
same step as one native call, with the same bits.

Prints steps per second and the loss as it falls, and draws `makemore_adam.png`, Adam beside plain descent.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import names as given
import numpy as np
from model import CONTEXT, NameModel, loss_of

from topos import Adam, Optimizer, Sgd, Tape, clip_by_global_norm, parameters


class Trained(NamedTuple):
    """The loss of every step by either optimizer."""

    adam: np.ndarray
    descent: np.ndarray


def train(optimizer: Optimizer, rate: float, steps: int, batch: int, limit: int | None, longest: float) -> np.ndarray:
    """The losses of `steps` steps, of gradients that are no longer than `longest` together."""
    contexts, targets = given.windows(given.read(limit, seed=1), CONTEXT)
    tape = Tape()
    model = NameModel(tape)
    loss = loss_of(tape, model, batch)
    adjoints = tape.differentiate(loss, parameters(model)).detach()
    network = tape.into_network()
    plan = network.entry(adjoints.roots()).lower()

    weights = network.parameters()
    random = np.random.Generator(np.random.PCG64(3))
    losses = np.zeros(steps)
    started = time.perf_counter()
    for step in range(steps):
        rows = random.integers(len(targets), size=batch)
        run = plan.forward(weights, {"context": contexts[rows], "target": targets[rows]})
        gradients = clip_by_global_norm(run.recorded_gradients(adjoints), longest)
        weights = optimizer.step(weights, gradients, rate)
        losses[step] = float(run.of(adjoints.target))
    print(f"{type(optimizer).__name__:5} {steps / (time.perf_counter() - started):6.0f} steps per second")
    return losses


def main(
    steps: int = 1500, batch: int = 32, limit: int | None = None, picture: str | Path = "makemore_adam.png"
) -> Trained:
    adam = train(Adam(), 0.003, steps, batch, limit, longest=1.0)
    descent = train(Sgd(), 0.1, steps, batch, limit, longest=1.0)
    last = max(1, steps // 10)
    for name, losses in (("Adam", adam), ("descent", descent)):
        print(f"{name:8} loss {losses[0]:.4f} -> {losses[-last:].mean():.4f} (mean of the last {last})")
    given.draw(Path(picture), "The loop over tables", {"Adam": adam, "plain descent": descent})
    print(f"picture: {picture}")
    return Trained(adam, descent)


if __name__ == "__main__":
    main()
