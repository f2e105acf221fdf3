"""Two moons that no straight line divides, and the boundary that a small network draws between them.

The points are made from a fixed PCG64 stream and our own sine and cosine. The network is two tanh layers and two
scores; its loss is the cross-entropy, its training step one entry with momentum carried along. The same weights serve
a second entry of another batch size, which answers the probability of the upper moon at every place of a grid.

Prints the loss and the share of points on their own side as they improve, and draws the boundary into `moons.png`.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from topos import Network, Symbol, Tape, Tensor, Value, detach, f64


class Boundary(NamedTuple):
    """The loss of each step, the share of points on their own side, and the probabilities over the grid."""

    losses: np.ndarray
    accuracy: float
    probabilities: np.ndarray


def moons(count: int, noise: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two half circles that reach into each other: points `[count, 2]` and the class of each."""
    random = np.random.Generator(np.random.PCG64(seed))
    classes = np.arange(count) % 2
    angles = Tensor(random.uniform(0, np.pi, count), f64)
    across, up = angles.cos().numpy(), angles.sin().numpy()
    upper = np.stack([across, up], axis=1)
    lower = np.stack([1 - across, 0.5 - up], axis=1)
    return np.where(classes[:, None] == 0, lower, upper) + noise * random.normal(size=(count, 2)), classes


def record_weights(tape: Tape, extents: list[int], seed: int) -> list[Value]:
    """A weight and a bias for each layer."""
    random = np.random.Generator(np.random.PCG64(seed))
    weights = []
    for inputs, outputs in zip(extents, extents[1:], strict=False):
        weights.append(tape.parameter(random.normal(size=(inputs, outputs)) / np.sqrt(inputs)))
        weights.append(tape.parameter(np.zeros(outputs)))
    return weights


def record_scores(points: Value, weights: list[Value]) -> Value:
    """The log-probabilities of the two classes, `[rows, 2]`."""
    values = points
    for layer in range(0, len(weights), 2):
        weight, bias = weights[layer : layer + 2]
        values = values @ weight + bias.broadcast_along(0, points.shape[0])
        if layer < len(weights) - 2:
            values = values.tanh()
    return values.log_softmax(1)


def record(
    points: np.ndarray, classes: np.ndarray, grid: np.ndarray, hidden: int, momentum: float, seed: int
) -> tuple[Network, dict[str, Symbol], dict[Symbol, Symbol]]:
    """The training step over all points and the answer over the grid: `(network, names, carry)`."""
    tape = Tape()
    weights = record_weights(tape, [2, hidden, hidden, 2], seed)
    scores = record_scores(tape.leaf(points), weights)
    loss = -tape.leaf(Tensor.selection(classes, 2)).select(scores, 0).sum() / len(points)
    answers = record_scores(tape.leaf(grid), weights).exp()[:, 1]
    rate = tape.input(0.0, name="rate")
    carry = {}
    for weight, gradient in tape.differentiate(loss, weights):
        velocity = tape.input(shape=weight.shape)
        carry[velocity] = momentum * velocity + gradient
        carry[weight] = weight - rate.broadcast(weight.shape) * carry[velocity]
    names, carry = detach({"loss": loss, "scores": scores, "answers": answers}, carry)
    return tape.into_network(), names, carry


def draw(
    path: Path, points: np.ndarray, classes: np.ndarray, axes_of_grid: list[np.ndarray], answers: np.ndarray
) -> None:
    """The points over the probability of the upper moon, with a line where it is one half."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    shaded = axes.contourf(*axes_of_grid, answers, levels=np.linspace(0, 1, 21), cmap="RdBu", alpha=0.75)
    axes.contour(*axes_of_grid, answers, levels=[0.5], colors="#222222", linewidths=1.5)
    for kind, colour in ((0, "#a3172b"), (1, "#174a8b")):
        own = points[classes == kind]
        axes.scatter(own[:, 0], own[:, 1], s=18, color=colour, edgecolors="white", linewidths=0.5)
    axes.set(xlabel="first coordinate", ylabel="second coordinate", aspect="equal")
    axes.set_title("Two moons, and where the network divides them", loc="left")
    figure.colorbar(shaded, ax=axes, label="probability of the upper moon", ticks=[0, 0.25, 0.5, 0.75, 1])
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(
    count: int = 200,
    steps: int = 240,
    hidden: int = 16,
    rate: float = 0.2,
    momentum: float = 0.9,
    resolution: int = 80,
    picture: str | Path = "moons.png",
    seed: int = 11,
) -> Boundary:
    points, classes = moons(count, noise=0.2, seed=seed)
    lowest, highest = points.min(axis=0) - 0.4, points.max(axis=0) + 0.4
    axes_of_grid = [np.linspace(low, high, resolution) for low, high in zip(lowest, highest, strict=True)]
    grid = np.stack(np.meshgrid(*axes_of_grid), axis=-1).reshape(-1, 2)

    network, names, carry = record(points, classes, grid, hidden, momentum, seed)
    train = network.entry([names["loss"], names["scores"]]).carry(carry).lower()
    state = network.state()
    losses = []
    accuracy = 0.0
    together = max(2, steps // 8)
    for start in range(0, steps, together):
        run = train.advance(state, {"rate": rate}, steps=together)
        losses += run.of(names["loss"]).tolist()
        answers = run.of(names["scores"]).numpy()[-1].argmax(axis=1)
        accuracy = float((answers == classes).mean())
        print(f"step {start + together:4}  loss {losses[-1]:.4f}  on their own side {accuracy:.1%}")

    answers = network.entry(names["answers"]).lower().forward(state).of(names["answers"]).numpy()
    probabilities = answers.reshape(resolution, resolution)
    draw(Path(picture), points, classes, axes_of_grid, probabilities)
    print(f"decision boundary: {picture}")
    return Boundary(np.array(losses), accuracy, probabilities)


if __name__ == "__main__":
    main()
