"""A chain of three operations and everything that can be read from it.

Records `y = tanh(w * x + c)` once; everything else is a reading of that one spec.

Prints its nodes, the derivative that `differentiate` appends as ordinary nodes, the plan of an entry with what it keeps
and frees, and the value and slope of a run. The slope comes by three routes: recorded and planned, by a sweep over a
run that kept its values, and by hand, as `w * x + c = 0.5` and so `dy/dw = x * (1 - tanh(0.5) ** 2)`.
"""

from __future__ import annotations

from typing import NamedTuple

from topos import Tape, detach, f64


class Readings(NamedTuple):
    """The value of the chain and its slope in `w`: by the plan, by the sweep, by hand."""

    value: float
    planned: float
    swept: float
    by_hand: float


def main(w: float = 0.5, x: float = 2.0, c: float = -0.5) -> Readings:
    # Record: a parameter belongs to the caller's table, an input is fed per run, a plain number becomes a leaf.
    tape = Tape(f64)
    weight = tape.parameter(w, name="w")
    point = tape.input(x, name="x")
    y = (weight * point + c).tanh().named("y")
    print("the spec")
    print(tape.describe(names=True))

    # Differentiate: the rules write nodes after the target; nothing is computed yet.
    adjoints = tape.differentiate(y, [weight])
    print("\nwith the derivative of y in w")
    print(tape.describe())

    # Seal. From here on symbols name nodes; the network holds structure, the table holds numbers.
    y, weight, adjoints = detach(y, weight, adjoints)
    slope = adjoints.of(weight)
    network = tape.into_network()
    parameters = network.parameters()

    # Plan: an entry says what will be read, and the plan evaluates nothing else.
    plan = network.entry([y, slope]).lower()
    print("\nthe plan of the entry [y, dy/dw]")
    print(plan.describe())

    # Run: the plan, the sweep over a run that kept its values, and the derivative by hand.
    run = plan.forward(parameters, {"x": x})
    swept = network.forward(parameters, {"x": x}).backward(y).of(weight)
    by_hand = x * (1 - float(run.of(y)) ** 2)
    readings = Readings(float(run.of(y)), float(run.of(slope)), float(swept), by_hand)
    print(f"\ny = {readings.value}")
    print(f"dy/dw = {readings.planned} (recorded), {readings.swept} (swept), {readings.by_hand} (by hand)")
    return readings


if __name__ == "__main__":
    main()
