"""The open seam of the number: a fixed-point element, from nothing to a network that trains on it.

An element is an object with a name, a NumPy dtype and arithmetic over arrays. `Q8` holds numbers from -128 to 127.996
in 16 bits, 8 of them after the point. Sums and products run in its accumulator, `Wide`, whose 64 bits hold every sum
exactly: `promote` widens, `demote` rounds once and stays at the limits.

What is left out is an error only where a program reaches it: the spec below records with a `tanh` that fixed-point
numbers have not, and running it says which operation is missing. With `relu` instead, spelled in `maximum`, the
interpreter, the plan and the recorded gradient all run, and train.

Prints the error, the agreement of interpreter and plan, the same sum in two orders, and the loss as it falls beside
the same training over f64.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topos import Element, ElementError, Network, Symbol, Tape, Tensor, Value, f64
from topos.testing import same_bits


class Wide(Element):
    """64 bits, 16 after the point: the accumulator. Products of `Q8` numbers and their sums are exact in it."""

    name = "wide"
    dtype = np.dtype(np.int64)

    def add(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.asarray(left + right)

    def mul(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.asarray((left * right) >> 16)


wide = Wide()


class Q8(Element):
    """16 bits, 8 after the point; each operation rounds to nearest, halves up, and stays within the limits."""

    name = "q8"
    dtype = np.dtype(np.int16)
    accumulator = wide

    # in and out
    def admit(self, array: np.ndarray) -> np.ndarray:
        """Every array that a caller hands in holds numbers, an int16 one too: never codes."""
        return self.round(array)

    def round(self, numbers: np.ndarray) -> np.ndarray:
        return limited(np.floor(np.asarray(numbers, np.float64) * 256 + 0.5))

    def promote(self, array: np.ndarray) -> np.ndarray:
        return array.astype(np.int64) << 8

    def demote(self, array: np.ndarray) -> np.ndarray:
        return limited((array + 128) >> 8)

    # arithmetic
    def add(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return limited(left.astype(np.int64) + right)

    def sub(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return limited(left.astype(np.int64) - right)

    def mul(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return limited((left.astype(np.int64) * right + 128) >> 8)

    def neg(self, x: np.ndarray) -> np.ndarray:
        return limited(-x.astype(np.int64))

    def maximum(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.maximum(left, right)

    def step(self, x: np.ndarray, threshold: np.ndarray) -> np.ndarray:
        return np.where(x >= threshold, self.one, self.zero)


def limited(codes: np.ndarray) -> np.ndarray:
    """Codes as 16 bits: what is too large stays at the limit instead of wrapping around."""
    return np.clip(codes, -(2**15), 2**15 - 1).astype(np.int16)


q8 = Q8()


def numbers(tensor: Tensor) -> np.ndarray:
    """A `q8` tensor as the f64 numbers that its codes stand for."""
    return tensor.numpy() / 256


class Seam(NamedTuple):
    """The message of the missing operation, what had equal bits, and the losses over q8 and over f64."""

    message: str
    plan_is_interpreter: bool
    order_is_free: bool
    losses: list[float]
    reference: list[float]


def missing() -> str:
    """A spec may name any operation; only running it asks the element."""
    network, y = Tape.record(lambda tape: tape.leaf([0.5, -0.5]).tanh(), element=q8)
    try:
        network.entry(y).interpret(network.parameters())
    except ElementError as error:
        return str(error)
    return ""


def record(element: Element, points: np.ndarray, wanted: np.ndarray, rate: float) -> tuple[Network, dict, dict]:
    """A relu layer under a squared error, with its training step: `(network, names, carry)`."""

    def step(tape: Tape) -> tuple[dict[str, Value], dict[Value, Value]]:
        first = tape.parameter([[0.75, -0.5, 0.25, 0.5], [0.25, 0.5, -0.75, 0.5]])
        second = tape.parameter([[0.5], [0.25], [-0.25], [-0.5]])
        error = (tape.leaf(points) @ first).relu() @ second - tape.leaf(wanted)
        loss = (error * error).sum() * (1 / len(points))
        carry = {weight: weight - rate * gradient for weight, gradient in tape.differentiate(loss, [first, second])}
        return {"loss": loss}, carry

    network, (names, carry) = Tape.record(step, element=element)
    return network, names, carry


def trained(network: Network, loss: Symbol, carry: dict[Symbol, Symbol], steps: int) -> Tensor:
    """The loss of each step."""
    return network.entry(loss).carry(carry).lower().advance(network.state(), steps=steps).of(loss)


def main(steps: int = 60, rate: float = 0.125) -> Seam:
    message = missing()
    print(f"a tanh that nobody defined: {message}")

    points = np.array([[1, 2], [-1, 0.5], [0.5, -1], [2, 1], [-0.5, -2], [1.5, -0.5], [-2, 1], [0.25, 0.25]])
    wanted = np.maximum(points[:, :1], 0) - 0.5 * points[:, 1:]
    network, names, carry = record(q8, points, wanted, rate)
    entry = network.entry(names["loss"]).observe(list(carry.values()))
    everything = [names["loss"], *carry.values()]
    by_plan = entry.lower().forward(network.parameters()).of(everything)
    by_interpreter = entry.interpret(network.parameters()).of(everything)
    agree = same_bits(by_plan, by_interpreter)
    print(f"interpreter and plan of a training step of {len(network)} nodes: {'the same' if agree else 'OTHER'} bits")

    # An exact accumulator makes a sum the same in any order; over floats the order is part of the definition.
    values = Tensor(np.random.Generator(np.random.PCG64(5)).uniform(-1, 1, 1000), q8)
    order_is_free = same_bits(values.sum(), Tensor(numbers(values)[::-1], q8).sum())
    print(f"a thousand numbers summed forwards and backwards: {'the same' if order_is_free else 'OTHER'} bits")

    losses = numbers(trained(network, names["loss"], carry, steps)).tolist()
    network, names, carry = record(f64, points, wanted, rate)
    reference = trained(network, names["loss"], carry, steps).tolist()
    for step in range(0, steps, max(1, steps // 6)):
        print(f"step {step:3}  loss {losses[step]:.4f} over q8, {reference[step]:.4f} over f64")
    return Seam(message, agree, order_is_free, losses, reference)


if __name__ == "__main__":
    main()
