"""Clothes, or digits: images of 28 by 28 from IDX files, by a convolutional net with batch norm.

Fashion-MNIST by default, to more than 90%; `--set mnist` for handwritten digits, to more than 98%; `--folder` for IDX
files of your own under the usual four names. Batch norm has two readings of the same weights: `train` normalises by the
batch and says how its running statistics move, `infer` normalises by those. They are inputs that the training step
carries, beside the weights and what Adam keeps.

Prints loss and accuracy after each epoch and steps per second; draws `fashion_mnist.png` (or `mnist.png`): the curves,
and how the classes were taken for one another.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from topos import (
    Adam,
    BatchNorm,
    Conv2d,
    Linear,
    Plan,
    Sequential,
    State,
    Symbol,
    Tape,
    Value,
    cross_entropy,
    data,
    detach,
    init,
    max_pool,
    parameters,
    schedule,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "data"))
import fetch  # noqa: E402

CLASSES = {
    "fashion_mnist": ["T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"],
    "mnist": [str(digit) for digit in range(10)],
}
EPOCHS = {"fashion_mnist": 6, "mnist": 12}
"""A sixth of the images wants more rounds."""


def image_net(tape: Tape, seed: int) -> Sequential:
    """Scores `[images, 10]` from `[images, 1, 28, 28]`: two convolutions, each with batch norm and a pool."""
    return Sequential(
        Conv2d(tape, 1, 16, 3, init.kaiming(seed), padding=1, bias=False, name="convolution.0"),
        BatchNorm(tape, 16, name="norm.0"),
        Value.relu,
        halved,
        Conv2d(tape, 16, 32, 3, init.kaiming(seed + 1), padding=1, bias=False, name="convolution.1"),
        BatchNorm(tape, 32, name="norm.1"),
        Value.relu,
        halved,
        flat,
        Linear(tape, 32 * 7 * 7, 64, init.kaiming(seed + 2), name="hidden"),
        Value.relu,
        Linear(tape, 64, 10, init.xavier(seed + 3), name="output"),
    )


def halved(images: Value) -> Value:
    """The largest of each two by two pixels."""
    return max_pool(images, 2)


def flat(images: Value) -> Value:
    """A row of numbers for each image."""
    return images.reshape([images.shape[0], images.shape.volume // images.shape[0]])


class Reader(NamedTuple):
    """The caller's state, and the plans over it: one step, and the scores of a batch."""

    state: State
    train: Plan
    score: Plan
    loss: Symbol
    scores: Symbol


class Learned(NamedTuple):
    """The losses by step, the accuracy on the test images by epoch, and `confused[class][taken for]`."""

    losses: np.ndarray
    accuracies: list[float]
    confused: np.ndarray


def record(batch: int, scored: int, seed: int) -> Reader:
    tape = Tape()
    net = image_net(tape, seed)
    images, classes = tape.input(shape=[batch, 1, 28, 28], name="images"), tape.selection([batch], 10, name="classes")
    scores, moved = net.train(images)
    loss = cross_entropy(scores, classes)
    update = Adam().record(tape, tape.differentiate(loss, parameters(net)))
    update.rate.named("rate")
    inferred = net.infer(tape.input(shape=[scored, 1, 28, 28], name="scored"))
    loss, inferred, carry = detach(loss, inferred, {**update.carry, **moved})
    network = tape.into_network()
    return Reader(
        network.state(), network.entry(loss).carry(carry).lower(), network.entry(inferred).lower(), loss, inferred
    )


def read(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Images `[count, 1, 28, 28]` around zero, and their classes."""
    images = data.read_idx(folder / f"{part}-images-idx3-ubyte.gz")
    classes = data.read_idx(folder / f"{part}-labels-idx1-ubyte.gz")
    return (images[:, None].astype(np.float32) / 255 - 0.29) / 0.35, classes.astype(int)


def scored(reader: Reader, images: np.ndarray, batch: int) -> np.ndarray:
    """The class that each image is taken for; zeros fill the last batch up."""
    taken = []
    for start in range(0, len(images), batch):
        part = images[start : start + batch]
        padded = np.pad(part, [(0, batch - len(part)), (0, 0), (0, 0), (0, 0)])
        scores = reader.score.forward(reader.state, {"scored": padded}).of(reader.scores).numpy()
        taken.append(scores[: len(part)].argmax(1))
    return np.concatenate(taken)


def draw(path: Path, name: str, learned: Learned, goal: float) -> None:
    """The loss, the accuracy, and which classes were taken for one another."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    window = max(1, len(learned.losses) // 100)
    smooth = np.convolve(learned.losses, np.full(window, 1 / window), mode="valid")
    left.semilogy(np.arange(window, len(learned.losses) + 1), smooth, color="#1f5a99", linewidth=1)
    left.set(xlabel="training step", title="cross-entropy (nats), smoothed")
    epochs = np.arange(1, len(learned.accuracies) + 1)
    middle.plot(epochs, 100 * np.array(learned.accuracies), "o-", color="#c2571a")
    middle.axhline(100 * goal, color="#555555", linestyle="--", linewidth=1)
    middle.set(xlabel="epoch", title="test images read right (%)", xticks=epochs)
    for axes in (left, middle):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    share = 100 * learned.confused / learned.confused.sum(1, keepdims=True).clip(1)
    right.imshow(share, cmap="Blues", vmax=30)
    for row, column in np.ndindex(share.shape):
        if share[row, column] >= 0.5:
            color = "white" if share[row, column] > 18 else "black"
            right.text(column, row, f"{share[row, column]:.0f}", ha="center", va="center", fontsize=7, color=color)
    names = CLASSES.get(name, [str(index) for index in range(10)])
    right.set_xticks(range(10), names, rotation=60, ha="right", fontsize=8)
    right.set_yticks(range(10), names, fontsize=8)
    right.set(title="of each class (row) taken for (%)")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main(
    name: str = "fashion_mnist",
    folder: str | Path | None = None,
    epochs: int | None = None,
    batch: int = 64,
    together: int = 50,
    rate: float = 0.002,
    limit: int | None = None,
    picture: str | Path | None = None,
    seed: int = 28,
) -> Learned:
    place = Path(folder) if folder is not None else fetch.folder(name)
    (images, classes), (test_images, test_classes) = read(place, "train"), read(place, "t10k")
    images, classes = images[:limit], classes[:limit]
    print(f"{name}: {len(images):,} images to train on, {len(test_images):,} to test")
    epochs = epochs or EPOCHS.get(name, 6)
    scored_batch = 500
    reader = record(batch, scored_batch, seed)
    reader.train.prepare()
    random = np.random.Generator(np.random.PCG64(seed))
    steps = len(images) // batch
    pace = schedule.cosine(rate, epochs * steps)
    losses, accuracies, elapsed = np.zeros(epochs * steps, np.float32), [], 0.0
    for epoch in range(epochs):
        rows = random.permutation(len(images))[: steps * batch].reshape(steps, batch)
        for start in range(0, steps, together):
            chosen = rows[start : start + together]
            part = slice(epoch * steps + start, epoch * steps + start + len(chosen))
            feeds = {
                "images": images[chosen],
                "classes": classes[chosen],
                "rate": [pace(step) for step in range(part.start, part.stop)],
            }
            started = time.perf_counter()
            run = reader.train.advance(reader.state, feeds, steps=len(chosen))
            elapsed += time.perf_counter() - started
            losses[part] = run.of(reader.loss).numpy()
        taken = scored(reader, test_images, scored_batch)
        accuracies.append(float((taken == test_classes).mean()))
        mean = losses[epoch * steps : (epoch + 1) * steps].mean()
        print(f"epoch {epoch + 1}  loss {mean:.4f}  test {accuracies[-1]:.2%}", flush=True)
    print(f"{epochs * steps / elapsed:,.0f} steps of {batch} images per second")
    confused = np.zeros((10, 10), int)
    np.add.at(confused, (test_classes, taken), 1)
    learned = Learned(losses, accuracies, confused)
    target = Path(picture or f"{name}.png")
    draw(target, name, learned, goal=0.98 if name == "mnist" else 0.90)
    print(f"picture: {target}")
    return learned


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--set", default="fashion_mnist", choices=["fashion_mnist", "mnist"], help="what to train on")
    parser.add_argument("--folder", type=Path, help="where the four IDX files lie, if not where fetch.py puts them")
    parser.add_argument("--epochs", type=int, help=f"how often each image is seen, if not {EPOCHS}")
    arguments = parser.parse_args()
    try:
        main(arguments.set, arguments.folder, arguments.epochs)
    except fetch.Absent as error:
        sys.exit(f"{arguments.set}: {error}")
