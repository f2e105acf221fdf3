"""A network of two layers learns the exclusive or, which no single layer can.

The training loop is the plain one: `plan.forward` over the caller's table, `run.backward` for the gradients,
`parameters.step` for the next table. Every table is a new one; the first is still there at the end.

Prints the loss as it falls and the truth table that was learned.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topos import Tape, detach

POINTS = [[0, 0], [0, 1], [1, 0], [1, 1]]
WANTED = [[0], [1], [1], [0]]


class Learned(NamedTuple):
    """The loss before each step and the four answers after the last."""

    losses: list[float]
    answers: list[float]


def main(steps: int = 500, hidden: int = 8, rate: float = 0.5, seed: int = 4) -> Learned:
    random = np.random.Generator(np.random.PCG64(seed))
    tape = Tape()
    first = tape.parameter(random.normal(size=(2, hidden)), name="first.weight")
    first_bias = tape.parameter(np.zeros(hidden), name="first.bias")
    second = tape.parameter(random.normal(size=(hidden, 1)), name="second.weight")
    second_bias = tape.parameter(np.zeros(1), name="second.bias")

    points = tape.leaf(POINTS)
    inner = (points @ first + first_bias.broadcast_along(0, len(POINTS))).tanh()
    answers = (inner @ second + second_bias.broadcast_along(0, len(POINTS))).sigmoid()
    error = answers - tape.leaf(WANTED)
    loss = (error * error).mean()
    loss, answers = detach(loss, answers)
    network = tape.into_network()

    # `backward` asks the plan to keep what the derivative rules read.
    plan = network.entry(loss).observe(answers).backward().lower()
    parameters = network.parameters()
    losses = []
    for step in range(steps):
        run = plan.forward(parameters)
        losses.append(float(run.of(loss)))
        if step % max(1, steps // 10) == 0:
            print(f"step {step:4}  loss {losses[-1]:.5f}")
        gradients = run.backward(loss)
        parameters = parameters.step(gradients, lambda weight, gradient: weight - rate * gradient)

    learned = plan.forward(parameters).of(answers).numpy()[:, 0].tolist()
    print(f"after {steps} steps")
    for (left, right), answer in zip(POINTS, learned, strict=True):
        print(f"  {left} xor {right} = {answer:.3f}")
    return Learned(losses, learned)


if __name__ == "__main__":
    main()
