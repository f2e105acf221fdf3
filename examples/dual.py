"""A user's number: dual numbers as an element, so that a tensor is filled with values that know their slope.

`Dual` stores two f64 side by side in a structured NumPy dtype and defines the arithmetic that the program below uses.
That is all: tensors of it have views, every instruction, rules, an interpreter and plans. (`forward_mode.py` puts the
dual number around the payload; here it is inside, and the spec does not know.)

The graph is recorded over this element. A slope of 1 fed into one weight comes out of the loss as the derivative in
that weight, which must agree with the gradient that `differentiate` records. The recorded gradient, run over the same
duals, brings the second derivatives along: forward over reverse.

Prints the loss as a dual number, the gradient by both ways, how far they stand apart, and the second derivatives.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topos import Element, Network, Symbol, Tape, detach, f64

DTYPE = np.dtype([("value", np.float64), ("slope", np.float64)])
BOUND = 1e-15
"""How far the two ways to one derivative may stand apart: they multiply in another order, a few roundings near 1."""


class Dual(Element):
    """`value + slope * epsilon` with `epsilon * epsilon = 0`: each operation carries its derivative along."""

    name = "dual"
    dtype = DTYPE

    # in: plain numbers are constants, which have no slope
    def round(self, numbers: np.ndarray) -> np.ndarray:
        return made(numbers.astype(np.float64), 0.0)

    # arithmetic, by the rules of the derivative
    def add(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return made(left["value"] + right["value"], left["slope"] + right["slope"])

    def sub(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return made(left["value"] - right["value"], left["slope"] - right["slope"])

    def mul(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        slope = left["slope"] * right["value"] + left["value"] * right["slope"]
        return made(left["value"] * right["value"], slope)

    def div(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        value = left["value"] / right["value"]
        return made(value, (left["slope"] - value * right["slope"]) / right["value"])

    def neg(self, x: np.ndarray) -> np.ndarray:
        return made(-x["value"], -x["slope"])

    # functions: f64's own, so that the value keeps its bits
    def tanh(self, x: np.ndarray) -> np.ndarray:
        value = f64.tanh(x["value"])
        return made(value, x["slope"] * (1 - value * value))

    def exp(self, x: np.ndarray) -> np.ndarray:
        value = f64.exp(x["value"])
        return made(value, x["slope"] * value)

    def ln(self, x: np.ndarray) -> np.ndarray:
        return made(f64.ln(x["value"]), x["slope"] / x["value"])

    # comparisons look at the value alone
    def maximum(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.where(left["value"] >= right["value"], left, right)

    def step(self, x: np.ndarray, threshold: np.ndarray) -> np.ndarray:
        return self.round(x["value"] >= threshold["value"])

    def nonzero(self, mask: np.ndarray) -> np.ndarray:
        return np.asarray(mask["value"] != 0)


def made(value: np.ndarray, slope: np.ndarray | float) -> np.ndarray:
    """An array of dual numbers from its two halves."""
    result = np.empty(np.shape(value), DTYPE)
    result["value"], result["slope"] = value, slope
    return result


dual = Dual()


class Derived(NamedTuple):
    """The gradient in each weight by the slope of the loss and as recorded, and the second derivatives by two ways."""

    loss: float
    by_slope: np.ndarray
    recorded: np.ndarray
    second: np.ndarray
    second_differences: np.ndarray


def seeded(values: np.ndarray, place: tuple[int, ...]) -> np.ndarray:
    """The values as duals, with a slope of 1 at one place: what is differentiated in."""
    slopes = np.zeros(values.shape)
    slopes[place] = 1
    return made(values, slopes)


def record(weights: np.ndarray, rows: int) -> tuple[Network, Symbol, Symbol]:
    """A small classifier over duals whose weights are an input, so that each run can move another one."""
    tape = Tape(dual)
    points = tape.leaf(np.linspace(-1, 1, 2 * rows).reshape(rows, 2))
    weight = tape.input(weights, name="weights")
    hidden = (points @ weight).tanh()
    scores = (hidden @ weight).log_softmax(1)
    loss = -scores[:, 0].mean()
    loss, gradient = detach(loss, tape.differentiate(loss, weight).of(weight))
    return tape.into_network(), loss, gradient


def main(rows: int = 4) -> Derived:
    weights = np.array([[0.5, -0.25], [0.25, 0.75]])
    network, loss, gradient = record(weights, rows)
    plan = network.entry([loss, gradient]).lower()
    parameters = network.parameters()  # an empty table: the weights are fed
    by_slope, second = np.zeros((2, 2)), np.zeros((4, 2, 2))
    for row, place in enumerate(np.ndindex(2, 2)):
        run = plan.forward(parameters, {"weights": seeded(weights, place)})
        by_slope[place] = run.of(loss).numpy()["slope"]
        second[row] = run.of(gradient).numpy()["slope"]
        print(f"a slope of 1 in weight {list(place)}: loss = {told(run.of(loss).numpy())}")
    recorded = run.of(gradient).numpy()["value"]
    print("gradient by the slope of the loss ", by_slope.ravel())
    print("gradient as it was recorded       ", recorded.ravel())
    print(f"they differ by {np.abs(by_slope - recorded).max():.1e} at most; the bound is {BOUND:.0e}")

    # The second derivatives once more, from the recorded gradient at two points close by.
    step = 1e-6
    differences = np.zeros((4, 2, 2))
    for row, place in enumerate(np.ndindex(2, 2)):
        moved = [weights + sign * step * seeded(weights, place)["slope"] for sign in (1, -1)]
        upper, lower = (plan.forward(parameters, {"weights": at}).of(gradient).numpy()["value"] for at in moved)
        differences[row] = (upper - lower) / (2 * step)
    print("second derivatives, a row for each weight, from the slopes of the recorded gradient")
    for line in second.reshape(4, 4):
        print(" ", " ".join(f"{number:9.6f}" for number in line))
    print(f"central differences of the gradient agree within {np.abs(second - differences).max():.0e}")
    return Derived(float(run.of(loss).numpy()["value"]), by_slope, recorded, second, differences)


def told(number: np.ndarray) -> str:
    return f"{number['value']:.6f} {number['slope']:+.6f} epsilon"


if __name__ == "__main__":
    main()
