"""Emoji in three colours: which of nine kinds a picture of 32 by 32 is of, by three convolutions with batch norm.

Faces, food, flags: 1,906 pictures, and each is seen shifted and mirrored (flags are not, they have a side), a little
differently in every epoch. It is a hard little set: a thumb is a person, a light bulb an object, an orange food, and
there are two hundred or so of each kind.

Prints loss and accuracy as they go and steps per second; draws `emoji.png`: the curves, and pictures with what they
were taken for.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from topos import (
    AdamW,
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
    detach,
    global_average_pool,
    init,
    max_pool,
    parameters,
    schedule,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "data"))
import fetch  # noqa: E402

KINDS = [
    "Activities",
    "Animals & Nature",
    "Flags",
    "Food & Drink",
    "Objects",
    "People & Body",
    "Smileys & Emotion",
    "Symbols",
    "Travel & Places",
]
CELL, SIDE = 34, 32
"""A cell of the sheet has a border of one pixel."""


def emoji_net(tape: Tape, seed: int, widths: tuple[int, ...] = (32, 64, 128)) -> Sequential:
    """Scores `[images, 9]` from `[images, 3, 32, 32]`: each convolution halves the picture."""
    parts: list[Any] = []
    for at, (inner, outer) in enumerate(zip((3, *widths), widths, strict=False)):
        weights = init.kaiming(seed + at)
        parts += [
            Conv2d(tape, inner, outer, 3, weights, padding=1, bias=False, name=f"convolution.{at}"),
            BatchNorm(tape, outer, name=f"norm.{at}"),
            Value.relu,
            lambda images: max_pool(images, 2),
        ]
    # a mean over all pixels: where something is does not matter
    output = Linear(tape, widths[-1], len(KINDS), init.xavier(seed + len(widths)), name="output")
    return Sequential(*parts, global_average_pool, output)


class Reader(NamedTuple):
    """The caller's state, and the plans over it."""

    state: State
    train: Plan
    score: Plan
    loss: Symbol
    scores: Symbol


class Learned(NamedTuple):
    """The losses by step, the accuracy on the pictures held out by epoch, and what these were taken for."""

    losses: np.ndarray
    accuracies: list[float]
    taken: np.ndarray


def read(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Pictures `[count, 3, 32, 32]` on white, from -1 to 1, and their kinds."""
    from matplotlib.image import imread

    sheet = imread(folder / "32.png")  # [height, width, red green blue opacity], from 0 to 1
    white = sheet[..., :3] * sheet[..., 3:] + (1 - sheet[..., 3:])
    entries = json.loads((folder / "emoji.json").read_text(encoding="utf-8"))
    entries = [entry for entry in entries if entry["has_img_google"] and entry["category"] in KINDS]
    corners = [(entry["sheet_y"] * CELL + 1, entry["sheet_x"] * CELL + 1) for entry in entries]
    pictures = np.array([white[y : y + SIDE, x : x + SIDE] for y, x in corners], np.float32)
    return pictures.transpose(0, 3, 1, 2) * 2 - 1, np.array([KINDS.index(entry["category"]) for entry in entries])


def varied(random: np.random.Generator, pictures: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Each picture shifted by up to three pixels, and every second one mirrored unless it is a flag."""
    padded = np.pad(pictures, [(0, 0), (0, 0), (3, 3), (3, 3)], constant_values=1)
    result = np.empty_like(pictures)
    for at, (y, x) in enumerate(random.integers(7, size=(len(pictures), 2))):
        picture = padded[at, :, y : y + SIDE, x : x + SIDE]
        mirrored = random.random() < 0.5 and KINDS[kinds[at]] != "Flags"
        result[at] = picture[:, :, ::-1] if mirrored else picture
    return result


def record(batch: int, scored: int, seed: int) -> Reader:
    tape = Tape()
    net = emoji_net(tape, seed)
    images = tape.input(shape=[batch, 3, SIDE, SIDE], name="images")
    scores, moved = net.train(images)
    loss = cross_entropy(scores, tape.selection([batch], len(KINDS), name="kinds"), smoothing=0.1)
    update = AdamW(decay=0.05).record(tape, tape.differentiate(loss, parameters(net)))
    update.rate.named("rate")
    inferred = net.infer(tape.input(shape=[scored, 3, SIDE, SIDE], name="scored"))
    loss, inferred, carry = detach(loss, inferred, {**update.carry, **moved})
    network = tape.into_network()
    return Reader(
        network.state(), network.entry(loss).carry(carry).lower(), network.entry(inferred).lower(), loss, inferred
    )


def draw(path: Path, learned: Learned, pictures: np.ndarray, kinds: np.ndarray) -> None:
    """Loss and accuracy, and pictures that were held out with what they were taken for."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(10, 7.5), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=[1, 1.1])
    left, right = top.subplots(1, 2)
    left.plot(np.arange(1, len(learned.losses) + 1), learned.losses, color="#1f5a99", linewidth=0.7)
    left.set(xlabel="training step", title="cross-entropy, smoothed labels (nats)")
    right.plot(np.arange(1, len(learned.accuracies) + 1), 100 * np.array(learned.accuracies), color="#c2571a")
    commonest = 100 * np.bincount(kinds).max() / len(kinds)
    right.axhline(commonest, color="#555555", linestyle="--", linewidth=1, label="always the commonest kind")
    right.set(xlabel="epoch", title="held out, kind found (%)", ylim=(0, 100))
    right.legend(loc="lower right", edgecolor="none")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    for axes, at in zip(bottom.subplots(3, 10).flat, range(30), strict=True):
        axes.axis("off")
        if at < len(pictures):
            axes.imshow((pictures[at].transpose(1, 2, 0) + 1) / 2)
            right_kind = learned.taken[at] == kinds[at]
            color = "#3a8a4d" if right_kind else "#c0392b"
            axes.set_title(KINDS[learned.taken[at]].partition(" &")[0], fontsize=8, color=color)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main(
    folder: str | Path | None = None,
    epochs: int = 40,
    batch: int = 64,
    rate: float = 0.003,
    limit: int | None = None,
    picture: str | Path = "emoji.png",
    seed: int = 32,
) -> Learned:
    pictures, kinds = read(Path(folder) if folder is not None else fetch.folder("emoji"))
    random = np.random.Generator(np.random.PCG64(seed))
    order = random.permutation(len(kinds))[:limit]
    test, train = order[: len(order) // 6], order[len(order) // 6 :]
    print(f"{len(train):,} pictures to train on, {len(test):,} held out, of {len(KINDS)} kinds")
    reader = record(batch, len(test), seed)
    reader.train.prepare()
    steps = len(train) // batch
    pace = schedule.cosine(rate, epochs * steps)
    rates = np.array([pace(step) for step in range(epochs * steps)]).reshape(epochs, steps)
    losses, accuracies, elapsed = np.zeros((epochs, steps), np.float32), [], 0.0
    for epoch in range(epochs):
        rows = random.permutation(train)[: steps * batch]
        images = varied(random, pictures[rows], kinds[rows]).reshape(steps, batch, 3, SIDE, SIDE)
        feeds = {"images": images, "kinds": kinds[rows].reshape(steps, batch), "rate": rates[epoch]}
        started = time.perf_counter()
        run = reader.train.advance(reader.state, feeds, steps=steps)
        elapsed += time.perf_counter() - started
        losses[epoch] = run.of(reader.loss).numpy()
        scores = reader.score.forward(reader.state, {"scored": pictures[test]}).of(reader.scores).numpy()
        accuracies.append(float((scores.argmax(1) == kinds[test]).mean()))
        if epoch % 5 == 4 or epoch == epochs - 1:
            print(f"epoch {epoch + 1:3}  loss {losses[epoch].mean():.4f}  held out {accuracies[-1]:.1%}", flush=True)
    print(f"{epochs * steps / elapsed:,.0f} steps of {batch} pictures per second")
    learned = Learned(losses.ravel(), accuracies, scores.argmax(1))
    draw(Path(picture), learned, pictures[test], kinds[test])
    print(f"picture: {picture}")
    return learned


if __name__ == "__main__":
    try:
        main()
    except fetch.Absent as error:
        sys.exit(f"emoji: {error}")
