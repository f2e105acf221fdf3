"""One spec, many states: several models trained at once, in threads, over one shared plan.

A network holds no weights and a plan no state, so both are shared by every thread; each thread has a table of its own,
which `parameters.step` replaces. Here every thread starts the same small regression from other weights and walks with
another rate.

Prints the loss that each table reaches, and that the tables trained in threads have the same bits as those trained one
after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from topos import Network, Parameters, Plan, Symbol, Tape
from topos.testing import same_bits


class Compared(NamedTuple):
    """The loss before and after each training, and whether threads and a plain loop gave the same bits."""

    before: list[float]
    after: list[float]
    same: bool


def record(points: int, hidden: int) -> tuple[Network, dict[str, Symbol]]:
    """A curve fitted by a small tanh layer: the spec, and the symbols that are read later."""

    def curve(tape: Tape) -> dict[str, object]:
        x = tape.leaf(np.linspace(-2, 2, points).reshape(points, 1))
        inner = tape.parameter(np.zeros((1, hidden)), name="inner")
        outer = tape.parameter(np.zeros((hidden, 1)), name="outer")
        error = (x @ inner).tanh() @ outer - x.sin()
        loss = (error * error).mean()
        return {"loss": loss, "inner": inner, "outer": outer}

    return Tape.record(curve)


def started(network: Network, seed: int) -> Parameters:
    """A table of random weights for the network's slots."""
    random = np.random.Generator(np.random.PCG64(seed))
    table = network.parameters()
    return table.with_payloads({symbol: random.normal(size=initial.shape) for symbol, initial in table})


def descend(plan: Plan, loss: Symbol, parameters: Parameters, rate: float, steps: int) -> Parameters:
    """The table after so many steps of gradient descent; the one handed in stays as it is."""
    for _ in range(steps):
        gradients = plan.forward(parameters).backward(loss)
        parameters = parameters.step(gradients, lambda weight, gradient: weight - rate * gradient)
    return parameters


def main(
    steps: int = 200, points: int = 33, hidden: int = 8, rates: Sequence[float] = (0.01, 0.03, 0.1, 0.2)
) -> Compared:
    network, names = record(points, hidden)
    plan = network.entry(names["loss"]).backward().lower()
    starts = [started(network, seed) for seed in range(len(rates))]

    def trained(start: Parameters, rate: float) -> Parameters:
        return descend(plan, names["loss"], start, rate, steps)

    serial = [trained(start, rate) for start, rate in zip(starts, rates, strict=True)]
    with ThreadPoolExecutor(len(rates)) as threads:
        threaded = list(threads.map(trained, starts, rates))

    def losses(tables: list[Parameters]) -> list[float]:
        return [float(plan.forward(table).of(names["loss"])) for table in tables]

    compared = Compared(losses(starts), losses(threaded), same_bits(threaded, serial))
    print(f"one plan of {len(plan.nodes())} nodes, {len(rates)} tables, {steps} steps each")
    for rate, before, after in zip(rates, compared.before, compared.after, strict=True):
        print(f"  rate {rate:4}  loss {before:8.5f} to {after:.5f}")
    print(f"threads and a plain loop give {'the same' if compared.same else 'DIFFERENT'} bits")
    return compared


if __name__ == "__main__":
    main()
