"""The whole training step as one native call: forward, gradients and Adam, in place, a thousand steps at a time.

`Adam.record` writes the optimizer into the spec. What it answers, `Update(rate, carry)`, says which node replaces which
source: the weights, the moments, and the powers of the decay rates. One entry carries them all, and `plan.advance` runs
as many steps as it is fed over the caller's State. The rule is the one that `adam.py` steps tables by, so the losses
are the same in every bit.

Prints that they are, steps per second by both forms, and the loss on held-out names; draws `makemore_compiled.png`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import names as given
import numpy as np
from model import CONTEXT, NameModel, loss_of

from topos import Adam, Adjoints, Network, Plan, Symbol, Tape, detach, parameters

NOBODY = -1


class Recorded(NamedTuple):
    """One spec, and its entries: the whole step, the loss and gradients of the same batch, and a measured loss."""

    network: Network
    advance: Plan
    gradients: Plan
    measure: Plan
    adjoints: Adjoints
    measured: Symbol


class Trained(NamedTuple):
    """What both forms came to."""

    same: bool
    losses: np.ndarray
    held_out: list[tuple[int, float]]


def record(batch: int, measure_batch: int, optimizer: Adam) -> Recorded:
    tape = Tape()
    model = NameModel(tape)
    loss = loss_of(tape, model, batch)
    adjoints = tape.differentiate(loss, parameters(model))
    update = optimizer.record(tape, adjoints)
    update.rate.named("rate")
    with tape.scope("measure"):
        measured = loss_of(tape, model, measure_batch, absent=NOBODY)
    adjoints, carry, measured = detach(adjoints, update.carry, measured)
    network = tape.into_network()
    step = network.entry(adjoints.target).carry(carry).lower()
    gradients = network.entry(adjoints.roots()).lower()
    return Recorded(network, step, gradients, network.entry(measured).lower(), adjoints, measured)


def main(
    steps: int = 6000,
    together: int = 500,
    compared: int = 300,
    batch: int = 32,
    measure_batch: int = 4096,
    rate: float = 0.003,
    limit: int | None = None,
    picture: str | Path = "makemore_compiled.png",
) -> Trained:
    trained_on, held_out_names = given.split(given.read(limit, seed=1))
    contexts, targets = given.windows(trained_on, CONTEXT)
    dev_contexts, dev_targets = (part[:measure_batch] for part in given.windows(held_out_names, CONTEXT))
    missing = measure_batch - len(dev_targets)
    dev = {
        "measure.context": np.pad(dev_contexts, ((0, missing), (0, 0)), constant_values=NOBODY),
        "measure.target": np.pad(dev_targets, (0, missing), constant_values=NOBODY),
    }
    recorded = record(batch, measure_batch, Adam())
    rows = np.random.Generator(np.random.PCG64(3)).integers(len(targets), size=(steps, batch))
    rates = np.where(np.arange(steps) < steps * 3 // 4, rate, rate / 10)

    weights, optimizer = recorded.network.parameters(), Adam()
    by_tables = np.zeros(min(compared, steps), np.float32)
    started = time.perf_counter()
    for step in range(len(by_tables)):
        run = recorded.gradients.forward(weights, {"context": contexts[rows[step]], "target": targets[rows[step]]})
        weights = optimizer.step(weights, run.recorded_gradients(recorded.adjoints), rates[step])
        by_tables[step] = float(run.of(recorded.adjoints.target))
    table_rate = len(by_tables) / (time.perf_counter() - started)

    state = recorded.network.state()
    losses, held_out = np.zeros(steps, np.float32), []
    recorded.advance.prepare()
    elapsed = 0.0
    for start in range(0, steps, together):
        part = slice(start, start + together)
        feeds = {"context": contexts[rows[part]], "target": targets[rows[part]], "rate": rates[part]}
        started = time.perf_counter()
        run = recorded.advance.advance(state, feeds, steps=len(rates[part]))
        elapsed += time.perf_counter() - started
        losses[part] = run.of(recorded.adjoints.target).numpy()
        held_out.append((start + len(rates[part]), float(recorded.measure.forward(state, dev).of(recorded.measured))))
    same = bool((losses[: len(by_tables)] == by_tables).all())
    print(f"the first {len(by_tables)} losses are the same in every bit: {same}")
    print(f"steps per second: {table_rate:,.0f} over tables, {steps / elapsed:,.0f} in {together} steps a call")
    print(f"loss per letter:  uniform {given.UNIFORM:.4f}, held out {held_out[-1][1]:.4f}")
    given.draw(Path(picture), "The whole step as one native call", {"trained": losses}, held_out)
    print(f"picture: {picture}")
    return Trained(same, losses, held_out)


if __name__ == "__main__":
    main()
