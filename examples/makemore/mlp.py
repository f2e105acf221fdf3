"""A character-level model of names, trained from scratch: what `make demo` runs.

Each letter is predicted from the three before it. A letter is an id; `gather` looks up its ten learned numbers, a tanh
layer of 200 reads three such rows, and a linear layer scores 27 classes: the letters, and `.` for the end of a name.
The loss is `select(selection, log_softmax, 0)`, which takes the one score per row that counts and multiplies nothing.

One spec holds everything: the model at three batch sizes (to train, to measure, to sample) over the same five weights,
the gradients, and the next weights. `carry` says which node replaces which weight, so that a training step is one
entry, and `plan.advance` runs many steps in one call over the caller's State.

Prints the progress, the loss on the names trained on and on the names held out against the ln 27 = 3.2958 of a guess
without any knowledge, steps per second, and ten sampled names. Draws the loss curve into `makemore_loss.png`.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import NamedTuple

import names as given
import numpy as np
from names import CLASSES, LETTERS, UNIFORM
from tqdm import tqdm

from topos import Plan, State, Symbol, Tape, Value, detach

CONTEXT = 3
NOBODY = -1  # the id of no letter: the rows that fill up the last batch when a loss is measured


class Language(NamedTuple):
    """The plans of three entries over one spec, which share the weights in `state`, and what each one answers."""

    state: State
    train: Plan
    measure: Plan
    sample: Plan
    loss: Symbol
    total_loss: Symbol
    probabilities: Symbol


class Trained(NamedTuple):
    """What the training came to."""

    step_losses: np.ndarray
    dev_losses: list[tuple[int, float]]
    train_loss: float
    names: list[str]


def record_weights(tape: Tape, embedding: int, hidden: int, seed: int) -> list[Value]:
    """The five parameters. The last layer starts small, so that the first guess is nearly uniform."""
    random = np.random.Generator(np.random.PCG64(seed))
    inner = CONTEXT * embedding

    def uniform(shape: tuple[int, int], bound: float) -> np.ndarray:
        return random.uniform(-bound, bound, shape)

    return [
        tape.parameter(uniform((CLASSES, embedding), 1.0), name="embedding"),
        tape.parameter(uniform((inner, hidden), 2 / math.sqrt(inner)), name="hidden.weight"),
        tape.parameter(np.zeros(hidden), name="hidden.bias"),
        tape.parameter(uniform((hidden, CLASSES), 0.1 / math.sqrt(hidden)), name="output.weight"),
        tape.parameter(np.zeros(CLASSES), name="output.bias"),
    ]


def record_model(tape: Tape, weights: list[Value], batch: int) -> Value:
    """Log-probabilities `[batch, 27]` of the next letter; the ids of the letters before it are the input `context`."""
    embedding, hidden_weight, hidden_bias, output_weight, output_bias = weights
    context = tape.selection((batch, CONTEXT), CLASSES, absent=NOBODY, name="context")
    letters = embedding.gather(context).reshape([batch, hidden_weight.shape[0]])
    hidden = (letters @ hidden_weight + hidden_bias.broadcast_along(0, batch)).tanh()
    return (hidden @ output_weight + output_bias.broadcast_along(0, batch)).log_softmax(1)


def record_loss(tape: Tape, weights: list[Value], batch: int) -> Value:
    """The cross-entropy of a batch, summed; a target `NOBODY` selects no class and adds nothing."""
    log_probabilities = record_model(tape, weights, batch)
    target = tape.selection((batch,), CLASSES, absent=NOBODY, name="target")
    return -target.select(log_probabilities, 0).sum()


def record(embedding: int, hidden: int, batch: int, measure_batch: int, samples: int, seed: int) -> Language:
    """The whole spec: the model at three batch sizes, the gradients, and the weights that replace the weights."""
    tape = Tape()
    weights = record_weights(tape, embedding, hidden, seed)
    with tape.scope("train"):
        loss = record_loss(tape, weights, batch) / batch
    with tape.scope("measure"):
        total_loss = record_loss(tape, weights, measure_batch)
    with tape.scope("sample"):
        probabilities = record_model(tape, weights, samples).exp()
    rate = tape.input(0.0, name="rate")
    replacements = {
        weight: weight - rate.broadcast(weight.shape) * gradient
        for weight, gradient in tape.differentiate(loss, weights)
    }
    loss, total_loss, probabilities, carry = detach(loss, total_loss, probabilities, replacements)
    network = tape.into_network()
    train = network.entry(loss).carry(carry).lower()
    print(f"one spec of {len(network)} nodes; a training step evaluates {len(train.nodes())} of them")
    measure, sample = network.entry(total_loss).lower(), network.entry(probabilities).lower()
    return Language(network.state(), train, measure, sample, loss, total_loss, probabilities)


def mean_loss(language: Language, contexts: np.ndarray, targets: np.ndarray, batch: int) -> float:
    """The mean loss over all rows. The last batch is filled up with rows of `NOBODY`, which add nothing."""
    total = 0.0
    for start in range(0, len(targets), batch):
        part = slice(start, start + batch)
        missing = batch - len(targets[part])
        feeds = {
            "measure.context": np.pad(contexts[part], ((0, missing), (0, 0)), constant_values=NOBODY),
            "measure.target": np.pad(targets[part], (0, missing), constant_values=NOBODY),
        }
        total += float(language.measure.forward(language.state, feeds).of(language.total_loss))
    return total / len(targets)


def sampled_names(language: Language, count: int, seed: int, longest: int = 20) -> list[str]:
    """Names drawn letter by letter, all at once: each row draws from its own distribution until it draws the end."""
    random = np.random.Generator(np.random.PCG64(seed))
    rows = np.zeros((count, CONTEXT), int)
    names = [""] * count
    unfinished = set(range(count))
    while unfinished and max(map(len, names)) < longest:
        run = language.sample.forward(language.state, {"sample.context": rows})
        below = np.cumsum(run.of(language.probabilities).numpy(), axis=1, dtype=np.float64)  # [count, 27]
        drawn = (below < random.random((count, 1)) * below[:, -1:]).sum(axis=1)
        unfinished -= {row for row in unfinished if drawn[row] == 0}
        for row in unfinished:
            names[row] += LETTERS[drawn[row]]
        rows = np.concatenate([rows[:, 1:], drawn[:, None]], axis=1)
    return names


def draw(path: Path, step_losses: np.ndarray, dev_losses: list[tuple[int, float]]) -> None:
    """The loss of every step, its mean over a window, and the held-out loss, against the uniform guess."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    window = max(1, len(step_losses) // 40)
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    steps = np.arange(1, len(step_losses) + 1)
    axes.plot(steps, step_losses, color="#b8cbe0", linewidth=0.5, label="one batch")
    smooth = given.smooth(step_losses, window)
    axes.plot(steps[window - 1 :], smooth, color="#1f5a99", linewidth=1.8, label=f"mean of the last {window}")
    curve = axes.plot(
        *zip(*dev_losses, strict=True), "o-", color="#c2571a", linewidth=1.2, markersize=5, label="held out"
    )
    curve[0].set_clip_on(False)  # the last point stands on the edge
    axes.axhline(UNIFORM, color="#555555", linestyle="--", linewidth=1)
    axes.annotate(
        f"uniform: ln {CLASSES} = {UNIFORM:.4f}",
        (len(steps), UNIFORM),
        xytext=(0, 5),
        textcoords="offset points",
        horizontalalignment="right",
        color="#555555",
    )
    axes.set(xlabel="training step", ylabel="cross-entropy per letter (nats)", xlim=(0, len(steps)))
    axes.set_title("A character-level model of names", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.legend(loc="upper right", bbox_to_anchor=(1, 0.93), edgecolor="none", framealpha=0.9)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(
    steps: int = 3000,
    together: int = 50,
    measure_every: int = 500,
    batch: int = 32,
    measure_batch: int = 4096,
    embedding: int = 10,
    hidden: int = 200,
    rate: float = 0.2,
    limit: int | None = None,
    picture: str | Path = "makemore_loss.png",
    seed: int = 2015,
) -> Trained:
    """Trains on `limit` names (all of them where None) for `steps` steps, `together` in one call."""
    random = np.random.Generator(np.random.PCG64(seed))
    names = random.permutation(given.read())[:limit].tolist()
    trained, held_out = given.split(names)
    contexts, targets = given.windows(trained, CONTEXT)
    dev = given.windows(held_out, CONTEXT)
    print(f"{len(names):,} names: {len(targets):,} letters to train on, {len(dev[1]):,} held out")
    language = record(embedding, hidden, batch, measure_batch, samples=10, seed=seed)

    # The rate drops to a tenth for the last quarter: large steps get near, small ones settle.
    rates = np.where(np.arange(steps) < steps * 3 // 4, rate, rate / 10)
    step_losses = np.zeros(steps)
    dev_losses = [(0, mean_loss(language, *dev, measure_batch))]
    elapsed = 0.0
    with tqdm(total=steps, unit="step", desc="training", mininterval=0.5) as progress:
        for start in range(0, steps, together):
            part = slice(start, start + together)
            rows = random.integers(len(targets), size=(len(rates[part]), batch))
            feeds = {"train.context": contexts[rows], "train.target": targets[rows], "rate": rates[part]}
            started = time.perf_counter()
            run = language.train.advance(language.state, feeds, steps=len(rows))
            elapsed += time.perf_counter() - started
            step_losses[part] = run.of(language.loss).numpy()
            progress.set_postfix_str(f"loss {step_losses[part].mean():.4f}", refresh=False)
            progress.update(len(rows))
            if progress.n % measure_every == 0 or progress.n == steps:
                dev_losses.append((progress.n, mean_loss(language, *dev, measure_batch)))

    # As many of the trained letters as there are held-out ones say enough, and take no longer.
    seen = slice(len(dev[1]))
    train_loss = mean_loss(language, contexts[seen], targets[seen], measure_batch)
    names = sampled_names(language, count=10, seed=seed)
    print(f"loss per letter: uniform {UNIFORM:.4f}, train {train_loss:.4f}, dev {dev_losses[-1][1]:.4f}")
    print(f"training:        {steps / elapsed:,.0f} steps per second")
    print(f"sampled names:   {', '.join(names)}")
    draw(Path(picture), step_losses, dev_losses)
    print(f"loss curve:      {picture}")
    return Trained(step_losses, dev_losses, train_loss, names)


if __name__ == "__main__":
    main()
