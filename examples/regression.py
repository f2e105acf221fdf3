"""Least squares, with the whole training step as one entry.

The spec holds the loss, its gradients, and the next weights and velocities (gradient descent with momentum). `carry`
declares which node replaces which source after a run, a `State` holds the numbers, and `plan.advance(steps=n)` runs n
steps in one call: the result gains a leading axis, the State moves on.

Prints the recorded training step as the plan schedules it, the loss on its way, and the weights that were found beside
the ones that made the data and the exact least-squares solution.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topos import Plan, State, Symbol, Tape, detach, f64


class Fitted(NamedTuple):
    """The loss before each step, the weights found, and the solution by NumPy's least squares."""

    losses: np.ndarray
    weights: np.ndarray
    solution: np.ndarray


def record_step(features: np.ndarray, wanted: np.ndarray, rate: float, momentum: float) -> tuple[Plan, State, Symbol]:
    """The plan of one training step over the whole data, the State it advances, and the symbol of the loss."""
    rows, columns = features.shape
    tape = Tape(f64)
    weights = tape.parameter(np.zeros((columns, 1)), name="weights")
    # What survives a step and is no weight is an input: unfed, it is read from the State.
    velocity = tape.input(shape=(columns, 1), name="velocity")
    error = tape.leaf(features) @ weights - tape.leaf(wanted)
    loss = (error * error).mean().named("loss")

    gradient = tape.differentiate(loss, weights).of(weights)
    next_velocity = momentum * velocity + gradient
    next_weights = weights - rate * next_velocity
    loss, carry = detach(loss, {weights: next_weights, velocity: next_velocity})
    network = tape.into_network()
    return network.entry(loss).carry(carry).lower(), network.state(), loss


def main(rows: int = 200, steps: int = 300, rate: float = 0.05, momentum: float = 0.8, seed: int = 7) -> Fitted:
    random = np.random.Generator(np.random.PCG64(seed))
    truth = np.array([[1.5], [-2.0], [0.5]])
    features = np.hstack([random.normal(size=(rows, 2)), np.ones((rows, 1))])
    wanted = features @ truth + 0.1 * random.normal(size=(rows, 1))
    plan, state, loss = record_step(features, wanted, rate, momentum)
    print("one training step, as it is scheduled")
    print(plan.describe(names=True))

    losses = plan.advance(state, steps=steps).of(loss).numpy()
    print(f"\n{steps} steps in one call")
    for step in range(0, steps, max(1, steps // 6)):
        print(f"  step {step:4}  loss {losses[step]:.6f}")

    (weights,) = state.parameters().payloads()
    solution = np.linalg.lstsq(features, wanted, rcond=None)[0]
    for name, values in (("found", weights.numpy()), ("least squares", solution), ("truth", truth)):
        print(f"{name:14} {' '.join(f'{value:9.6f}' for value in values[:, 0])}")
    return Fitted(losses, weights.numpy(), solution)


if __name__ == "__main__":
    main()
