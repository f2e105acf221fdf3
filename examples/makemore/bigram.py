"""The smallest language model: the next letter of a name, given the one before it.

A table of 27 by 27 scores is all there is to learn. `gather` picks the row of the letter before, `log_softmax` makes
it log-probabilities, and `select` takes the one of the letter that came. Counting pairs gives the best table of this
kind directly, so the example can say how close gradient descent comes to it.

Prints the loss on its way down, steps per second, the loss of the counted table, and the likeliest letters after a few
letters by both; draws `makemore_bigram.png`, both tables.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import names as given
import numpy as np
from names import CLASSES, LETTERS, UNIFORM

from topos import Tape, detach


class Learned(NamedTuple):
    """The loss of each step's batch, of the learned table over all pairs, and of the counted one."""

    losses: np.ndarray
    learned_loss: float
    counted_loss: float


def pairs_of(names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The ids of every letter and of the one after it; `.` stands before a name and after it."""
    ids = [LETTERS.index(letter) for letter in "." + ".".join(names) + "."]
    return np.array(ids[:-1]), np.array(ids[1:])


def likeliest(log_probabilities: np.ndarray, letter: str) -> str:
    """The five likeliest letters after one letter, with their probabilities."""
    row = log_probabilities[LETTERS.index(letter)]
    return "  ".join(f"{LETTERS[i]} {np.exp(row[i]):.2f}" for i in np.argsort(-row)[:5])


def draw(path: Path, tables: dict[str, np.ndarray]) -> None:
    """The probability of each letter after each other one, table beside table."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(tables), figsize=(12, 6.2), layout="constrained")
    for axes, (title, log_probabilities) in zip(panels, tables.items(), strict=True):
        image = axes.imshow(100 * np.exp(log_probabilities), cmap="Blues", vmin=0, vmax=40)
        axes.set_xticks(range(CLASSES), LETTERS)
        axes.set_yticks(range(CLASSES), LETTERS)
        axes.set(title=title, xlabel="next letter", ylabel="letter before")
    figure.colorbar(image, ax=panels, shrink=0.8, extend="max", label="%")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(
    steps: int = 400,
    batch: int = 1024,
    rate: float = 20.0,
    limit: int | None = None,
    picture: str | Path = "makemore_bigram.png",
    seed: int = 27,
) -> Learned:
    names = given.read(limit)
    before, after = pairs_of(names)
    print(f"{len(names):,} names, {len(before):,} pairs of letters")

    tape = Tape()
    scores = tape.parameter(np.zeros((CLASSES, CLASSES)), name="scores")
    letter = tape.selection((batch,), CLASSES, name="letter")
    following = tape.selection((batch,), CLASSES, name="following")
    log_probabilities = scores.gather(letter).log_softmax(1)
    loss = -following.select(log_probabilities, 0).sum() / batch
    step_rate = tape.input(rate, name="rate")
    gradient = tape.differentiate(loss, scores).of(scores)
    replaced = scores - step_rate.broadcast(scores.shape) * gradient
    loss, scores, replaced = detach(loss, scores, replaced)

    network = tape.into_network()
    plan = network.entry(loss).carry({scores: replaced}).lower()
    state = network.state()
    random = np.random.Generator(np.random.PCG64(seed))
    chosen = random.integers(len(before), size=(steps, batch))
    feeds = {"letter": before[chosen], "following": after[chosen], "rate": np.linspace(rate, 0, steps)}
    plan.prepare()
    started = time.perf_counter()
    losses = plan.advance(state, feeds, steps=steps).of(loss).numpy()
    elapsed = time.perf_counter() - started
    for step in range(0, steps, max(1, steps // 8)):
        print(f"step {step:4}  loss {losses[step]:.4f}")
    print(f"{steps / elapsed:,.0f} steps per second")

    # The maximum of the likelihood is the frequency of each pair; a pair that never came has none.
    counts = np.zeros((CLASSES, CLASSES))
    np.add.at(counts, (before, after), 1)
    with np.errstate(divide="ignore"):
        counted = np.log(counts / counts.sum(axis=1, keepdims=True))
    # An eager tensor speaks the same operations as a recorded value.
    learned = state.of(scores).log_softmax(1).numpy()
    learned_loss, counted_loss = -learned[before, after].mean(), -counted[before, after].mean()
    print(f"over all pairs: uniform {UNIFORM:.4f}, learned {learned_loss:.4f}, counted {counted_loss:.4f}")
    for start in ".qn":
        print(f"after {start}   learned  {likeliest(learned, start)}")
        print(f"          counted  {likeliest(counted, start)}")
    draw(Path(picture), {"learned": learned, "counted": counted})
    print(f"picture: {picture}")
    return Learned(losses, float(learned_loss), float(counted_loss))


if __name__ == "__main__":
    main()
