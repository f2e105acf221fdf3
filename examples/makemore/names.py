"""What the programs of this folder share: the names, as ids of letters, and the pictures of how they were learned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

LETTERS = ".abcdefghijklmnopqrstuvwxyz"
"""The classes; `.` stands before a name and after it."""
CLASSES = len(LETTERS)
UNIFORM = math.log(CLASSES)
"""The loss per letter of a guess without any knowledge, in nats."""
DATA = Path(__file__).parents[1] / "data" / "names.txt"


def read(limit: int | None = None, seed: int | None = None) -> list[str]:
    """The names, in the order of the file or shuffled by a seed, `limit` of them."""
    names = DATA.read_text(encoding="utf-8").split()
    if seed is not None:
        names = np.random.Generator(np.random.PCG64(seed)).permutation(names).tolist()
    return names[:limit]


def windows(names: list[str], context: int) -> tuple[np.ndarray, np.ndarray]:
    """Every letter of every name with the `context` letters before it: ids `[count, context]` and `[count]`."""
    contexts, targets = [], []
    for name in names:
        ids = [0] * context + [LETTERS.index(letter) for letter in name + "."]
        contexts += [ids[start : start + context] for start in range(len(ids) - context)]
        targets += ids[context:]
    return np.array(contexts), np.array(targets)


def split(names: list[str]) -> tuple[list[str], list[str]]:
    """Nine tenths to train on, and a tenth held out."""
    held_out = len(names) // 10
    return names[held_out:], names[:held_out]


def spelled(rows: np.ndarray) -> list[str]:
    """Rows of ids as names, each up to its first end."""
    return ["".join(LETTERS[index] for index in row).partition(".")[0] for row in rows]


def smooth(losses: np.ndarray, window: int) -> np.ndarray:
    """The mean of the last `window` losses at each step that has so many before it."""
    return np.convolve(losses, np.full(window, 1 / window), mode="valid")


def draw(
    path: Path, title: str, curves: Mapping[str, np.ndarray], held_out: list[tuple[int, float]] | None = None
) -> None:
    """The loss of every step for each curve, smoothed, and the held-out loss where it was measured."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for (label, losses), color in zip(curves.items(), ("#1f5a99", "#c2571a", "#3a8a4d"), strict=False):
        window = max(1, len(losses) // 40)
        steps = np.arange(1, len(losses) + 1)
        axes.plot(steps, losses, color=color, linewidth=0.5, alpha=0.25)
        axes.plot(steps[window - 1 :], smooth(losses, window), color=color, linewidth=1.8, label=label)
    if held_out:
        axes.plot(*zip(*held_out, strict=True), "o", color="#222222", markersize=5, label="held out", clip_on=False)
    axes.axhline(UNIFORM, color="#555555", linestyle="--", linewidth=1, label=f"uniform: {UNIFORM:.4f}")
    longest = max(map(len, curves.values()))
    axes.set(xlabel="training step", ylabel="cross-entropy per letter (nats)", xlim=(0, longest))
    axes.set_title(title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.legend(loc="upper right", bbox_to_anchor=(1, 0.9), edgecolor="none", framealpha=0.9)
    figure.savefig(path, dpi=150)
    plt.close(figure)
