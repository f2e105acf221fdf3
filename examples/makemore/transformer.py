"""A transformer over whole names: two blocks of causal attention, AdamW, and a warm start of the rate.

A name is a row of 16 places, from its first letter to its end; places after the end have no target and do not count.
Every place is predicted from those before it, which is what `causal_mask` says, so that one pass over a batch of names
scores all their letters.

Prints the loss as it falls, on names trained on and held out, steps per second, and sampled names; draws
`makemore_transformer.png`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import names as given
import numpy as np
from names import CLASSES

from topos import (
    AdamW,
    Embedding,
    LayerNorm,
    Linear,
    Module,
    Positions,
    Tape,
    Value,
    causal_mask,
    cross_entropy,
    detach,
    init,
    parameters,
    scaled_dot_product,
)

PLACES = 16
NOBODY = -1


class Block(Module):
    """Attention over the places before, then a layer of its own for each place; each added to what it read."""

    def __init__(self, tape: Tape, width: int, heads: int, seed: int, name: str) -> None:
        self.heads = heads
        self.first_norm = LayerNorm(tape, width, name=f"{name}.first_norm")
        self.attention = Linear(tape, width, 3 * width, init.normal(seed, 0.02), name=f"{name}.attention")
        self.projection = Linear(tape, width, width, init.normal(seed + 1, 0.02), name=f"{name}.projection")
        self.second_norm = LayerNorm(tape, width, name=f"{name}.second_norm")
        self.wide = Linear(tape, width, 4 * width, init.normal(seed + 2, 0.02), name=f"{name}.wide")
        self.narrow = Linear(tape, 4 * width, width, init.normal(seed + 3, 0.02), name=f"{name}.narrow")

    def express(self, x: Value) -> Value:
        batch, places, width = x.shape
        parts = self.attention(self.first_norm(x)).reshape([batch, places, 3, self.heads, width // self.heads])
        query, key, value = (parts[:, :, at].swap(1, 2) for at in range(3))  # [batch, heads, places, width of a head]
        attended = scaled_dot_product(query, key, value, where=causal_mask(places))
        x = x + self.projection(attended.swap(1, 2).reshape(x.shape))
        return x + self.narrow(self.wide(self.second_norm(x)).gelu())


class Transformer(Module):
    """Scores `[batch * places, 27]` from the ids of the letters `[batch, places]`."""

    def __init__(self, tape: Tape, width: int, heads: int, blocks: int, seed: int) -> None:
        self.letters = Embedding(tape, CLASSES, width, init.normal(seed, 0.02), name="letters")
        self.places = Positions(tape, PLACES, width, init.normal(seed + 1, 0.02), name="places")
        self.blocks = [Block(tape, width, heads, seed + 2 + 4 * at, f"blocks.{at}") for at in range(blocks)]
        self.norm = LayerNorm(tape, width, name="norm")

    def express(self, ids: Value, batch: int) -> Value:
        x = self.places(self.letters(ids, [batch, PLACES]))
        for block in self.blocks:
            x = block(x)
        scores = self.letters.score(self.norm(x))  # the letters that were read are the ones that are scored
        return scores.reshape([batch * PLACES, CLASSES])


class Trained(NamedTuple):
    """The loss of every step, the held-out losses as (step, loss), and sampled names."""

    losses: np.ndarray
    held_out: list[tuple[int, float]]
    names: list[str]


def rows_of(names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Ids `[names, 16]` of each letter and of the one after it; `NOBODY` after the end."""
    before, after = np.zeros((len(names), PLACES), int), np.full((len(names), PLACES), NOBODY)
    for row, name in enumerate(names):
        ids = [given.LETTERS.index(letter) for letter in name[: PLACES - 1]]
        before[row, 1 : len(ids) + 1], after[row, : len(ids) + 1] = ids, [*ids, 0]
    return before, after


def main(
    steps: int = 2000,
    together: int = 100,
    batch: int = 32,
    measured: int = 512,
    width: int = 64,
    heads: int = 4,
    blocks: int = 2,
    rate: float = 0.002,
    limit: int | None = None,
    picture: str | Path = "makemore_transformer.png",
    seed: int = 16,
) -> Trained:
    trained_on, held_out_names = given.split(given.read(limit, seed=1))
    before, after = rows_of(trained_on)
    dev_before, dev_after = rows_of(held_out_names[:measured])
    sampled = 10

    tape = Tape()
    net = Transformer(tape, width, heads, blocks, seed)

    def loss_of(name: str, count: int) -> Value:
        with tape.scope(name):
            ids = tape.selection([count, PLACES], CLASSES, name="before")
            target = tape.selection([count, PLACES], CLASSES, absent=NOBODY, name="after")
        return cross_entropy(net(ids, count), target)

    loss = loss_of("train", batch)
    update = AdamW(decay=0.01).record(tape, tape.differentiate(loss, parameters(net)))
    update.rate.named("rate")
    dev_loss = loss_of("measure", len(dev_before))
    scores = net(tape.selection([sampled, PLACES], CLASSES, name="drawn"), sampled).softmax(1)
    loss, dev_loss, scores, carry = detach(loss, dev_loss, scores, update.carry)
    network = tape.into_network()
    state = network.state()
    step, measure = network.entry(loss).carry(carry).lower(), network.entry(dev_loss).lower()
    sample = network.entry(scores).lower()
    print(f"{sum(tensor.shape.volume for tensor in state.parameters().payloads()):,} weights, {len(network):,} nodes")

    random = np.random.Generator(np.random.PCG64(seed))
    warm = max(1, steps // 20)
    pace = rate * np.minimum((np.arange(steps) + 1) / warm, 1 - np.arange(steps) / steps)
    losses, held_out, elapsed = np.zeros(steps, np.float32), [], 0.0
    step.prepare()
    for start in range(0, steps, together):
        part = slice(start, start + together)
        rows = random.integers(len(before), size=(len(pace[part]), batch))
        feeds = {"train.before": before[rows], "train.after": after[rows], "rate": pace[part]}
        started = time.perf_counter()
        losses[part] = step.advance(state, feeds, steps=len(rows)).of(loss).numpy()
        elapsed += time.perf_counter() - started
        run = measure.forward(state, {"measure.before": dev_before, "measure.after": dev_after})
        held_out.append((start + len(rows), float(run.of(dev_loss))))
        if start // together % 5 == 4 or start + together >= steps:
            print(
                f"step {held_out[-1][0]:5}  loss {losses[part].mean():.4f}  held out {held_out[-1][1]:.4f}", flush=True
            )
    print(f"{steps / elapsed:,.0f} steps of {batch} names per second")

    drawn = np.zeros((sampled, PLACES), int)
    for place in range(PLACES - 1):
        likely = sample.forward(state, {"drawn": drawn}).of(scores).numpy().reshape(sampled, PLACES, CLASSES)[:, place]
        below = np.cumsum(likely, axis=1, dtype=np.float64)
        drawn[:, place + 1] = (below < random.random((sampled, 1)) * below[:, -1:]).sum(1)
    names = given.spelled(drawn[:, 1:])
    print(f"sampled names: {', '.join(names)}")
    given.draw(Path(picture), "A transformer over names", {"trained": losses}, held_out)
    print(f"picture: {picture}")
    return Trained(losses, held_out, names)


if __name__ == "__main__":
    main()
