"""Handwritten digits of 8 by 8 pixels, by a convolutional net, to more than 98%: the second half of `make demo`.

Two convolutions with pools read the image, a linear layer scores the ten digits, and Adam trains them. The spec holds
the net twice over the same weights, to train on batches and to score any number of images at once. An epoch is one
native call: `advance` runs as many steps as it is fed.

Prints loss and accuracy as they go, steps per second, and the accuracy on the images held out; draws `digits.png`, the
curves and the images that were taken for another digit.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from topos import (
    Adam,
    Conv2d,
    Linear,
    Module,
    Plan,
    State,
    Symbol,
    Tape,
    Value,
    cross_entropy,
    detach,
    init,
    max_pool,
    parameters,
)

DATA = Path(__file__).parents[1] / "data" / "digits.csv.gz"
TEST = 360
"""How many of the 1,797 images are held out."""


class DigitNet(Module):
    """Scores `[images, 10]` from `[images, 1, 8, 8]`."""

    def __init__(self, tape: Tape, seed: int) -> None:
        self.first = Conv2d(tape, 1, 32, 3, init.kaiming(seed), padding=1, name="first")
        self.second = Conv2d(tape, 32, 64, 3, init.kaiming(seed + 1), padding=1, name="second")
        self.output = Linear(tape, 64 * 2 * 2, 10, init.xavier(seed + 2), name="output")

    def express(self, images: Value) -> Value:
        hidden = max_pool(self.first(images).relu(), 2)  # [images, 32, 4, 4]
        hidden = max_pool(self.second(hidden).relu(), 2)  # [images, 64, 2, 2]
        return self.output(hidden.reshape([images.shape[0], hidden.shape.volume // images.shape[0]]))


class Reader(NamedTuple):
    """What a trained net is: the weights in `state`, a plan to train them, and one to score images."""

    state: State
    train: Plan
    score: Plan
    loss: Symbol
    scores: Symbol


class Learned(NamedTuple):
    """The loss of every step, the accuracy on the images held out after every epoch, and what it misread at the end."""

    losses: np.ndarray
    accuracies: list[float]
    misread: list[int]


def read() -> tuple[np.ndarray, np.ndarray]:
    """All images `[1797, 1, 8, 8]` with pixels from 0 to 1, and their digits."""
    rows = np.loadtxt(DATA, delimiter=",", dtype=np.float32)
    return rows[:, :64].reshape(-1, 1, 8, 8) / 16, rows[:, 64].astype(int)


def record(batch: int, scored: int, seed: int) -> Reader:
    tape = Tape()
    net = DigitNet(tape, seed)
    images, digits = tape.input(shape=[batch, 1, 8, 8], name="images"), tape.selection([batch], 10, name="digits")
    loss = cross_entropy(net(images), digits)
    update = Adam().record(tape, tape.differentiate(loss, parameters(net)))
    update.rate.named("rate")
    scores = net(tape.input(shape=[scored, 1, 8, 8], name="scored"))
    loss, scores, carry = detach(loss, scores, update.carry)
    network = tape.into_network()
    train, score = network.entry(loss).carry(carry).lower(), network.entry(scores).lower()
    return Reader(network.state(), train, score, loss, scores)


def draw(path: Path, learned: Learned, images: np.ndarray, digits: np.ndarray, taken: np.ndarray) -> None:
    """Loss and accuracy, and below them the images that were misread."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(8, 5.5), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=[3, 1.2])
    left, right = top.subplots(1, 2)
    left.semilogy(np.arange(1, len(learned.losses) + 1), learned.losses, color="#1f5a99", linewidth=0.8)
    left.set(xlabel="training step", title="cross-entropy (nats)")
    right.plot(
        np.arange(1, len(learned.accuracies) + 1), 100 * np.array(learned.accuracies), "o-", color="#c2571a", ms=3
    )
    right.axhline(98, color="#555555", linestyle="--", linewidth=1)
    right.set(xlabel="epoch", title="held out, read right (%)", ylim=(90, 100.2))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    shown = learned.misread[:8]
    bottom.suptitle(f"misread: {len(learned.misread)} of {len(digits)}", fontsize="medium")
    for axes, at in zip(np.atleast_1d(bottom.subplots(1, 8)), [*shown, *[None] * (8 - len(shown))], strict=True):
        axes.axis("off")
        if at is not None:
            axes.imshow(images[at, 0], cmap="gray_r")
            axes.set_title(f"{digits[at]}, read {taken[at]}", fontsize="small")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(
    epochs: int = 30,
    batch: int = 32,
    rate: float = 0.002,
    limit: int | None = None,
    picture: str | Path = "digits.png",
    seed: int = 8,
) -> Learned:
    images, digits = read()
    random = np.random.Generator(np.random.PCG64(seed))
    order = random.permutation(len(digits))
    test, train = order[:TEST], order[TEST:][:limit]
    reader = record(batch, len(test), seed)
    steps = len(train) // batch
    losses, accuracies, elapsed = np.zeros((epochs, steps), np.float32), [], 0.0
    reader.train.prepare()
    for epoch in range(epochs):
        rows = random.permutation(train)[: steps * batch].reshape(steps, batch)
        pace = np.full(steps, rate / 10 if epoch >= epochs * 3 // 4 else rate)
        started = time.perf_counter()
        run = reader.train.advance(
            reader.state, {"images": images[rows], "digits": digits[rows], "rate": pace}, steps=steps
        )
        elapsed += time.perf_counter() - started
        losses[epoch] = run.of(reader.loss).numpy()
        scores = reader.score.forward(reader.state, {"scored": images[test]}).of(reader.scores).numpy()
        accuracies.append(float((scores.argmax(1) == digits[test]).mean()))
        if epoch % 5 == 0 or epoch == epochs - 1:
            print(f"epoch {epoch + 1:3}  loss {losses[epoch].mean():.4f}  held out {accuracies[-1]:.1%}")
    taken = scores.argmax(1)
    learned = Learned(losses.ravel(), accuracies, np.flatnonzero(taken != digits[test]).tolist())
    print(f"{epochs * steps / elapsed:,.0f} steps per second")
    print(f"{accuracies[-1]:.1%} of {len(test)} held-out digits read right")
    draw(Path(picture), learned, images[test], digits[test], taken)
    print(f"picture: {picture}")
    return learned


if __name__ == "__main__":
    main()
