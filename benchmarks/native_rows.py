"""Row groups and elementwise chains, one thread: `python benchmarks/native_rows.py [case ...]`.

Prints the time of the calling thread per run, the least of many (so that what else the machine does shows little), the
same per element, the number of groups, and with `-v` what each group holds.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("TOPOS_THREADS", "1")

import numpy as np

from topos import Tape, Value

LARGE = 1 << 24
Case = Callable[[Tape], tuple[int, Sequence[Value]]]
CASES: dict[str, Case] = {}


def case(make: Case) -> Case:
    CASES[make.__name__] = make
    return make


def numbers(tape: Tape, *shape: int) -> Value:
    return tape.parameter(np.random.default_rng(len(tape)).standard_normal(shape, dtype=np.float32))


@case
def softmax(tape: Tape) -> tuple[int, Sequence[Value]]:
    return 64 * 512, [numbers(tape, 64, 512).softmax(1)]


@case
def softmax_gradient(tape: Tape) -> tuple[int, Sequence[Value]]:
    x = numbers(tape, 64, 512)
    loss = (x.softmax(1) * numbers(tape, 64, 512)).sum()
    return 64 * 512, [tape.differentiate(loss, [x]).of(x)]


def normalised(x: Value, scale: Value, shift: Value) -> Value:
    rows, width = x.shape
    centred = x - x.mean_along(1).broadcast_along(1, width)
    deviation = ((centred * centred).mean_along(1) + 1e-5).sqrt().broadcast_along(1, width)
    return centred / deviation * scale.broadcast_along(0, rows) + shift.broadcast_along(0, rows)


@case
def layer_norm(tape: Tape) -> tuple[int, Sequence[Value]]:
    return 1024 * 768, [normalised(numbers(tape, 1024, 768), numbers(tape, 768), numbers(tape, 768))]


@case
def layer_norm_gradient(tape: Tape) -> tuple[int, Sequence[Value]]:
    sources = [numbers(tape, 1024, 768), numbers(tape, 768), numbers(tape, 768)]
    loss = (normalised(*sources) * numbers(tape, 1024, 768)).sum()
    adjoints = tape.differentiate(loss, sources)
    return 1024 * 768, [adjoints.of(source) for source in sources]


@case
def w8(tape: Tape) -> tuple[int, Sequence[Value]]:
    return LARGE, [chain(*(numbers(tape, LARGE) for _ in range(3)))]


@case
def w8g(tape: Tape) -> tuple[int, Sequence[Value]]:
    sources = [numbers(tape, LARGE) for _ in range(3)]
    adjoints = tape.differentiate(chain(*sources).sum(), sources)
    return LARGE, [adjoints.of(source) for source in sources]


def chain(a: Value, b: Value, c: Value) -> Value:
    return (a * b + c).tanh() * a - (-b * b).exp()


@case
def total(tape: Tape) -> tuple[int, Sequence[Value]]:
    return LARGE, [numbers(tape, LARGE).sum()]


@case
def sums_of_rows(tape: Tape) -> tuple[int, Sequence[Value]]:
    return 256 * 4096, [numbers(tape, 256, 4096).sum_along(1)]


@case
def sums_of_columns(tape: Tape) -> tuple[int, Sequence[Value]]:
    return 1024 * 1024, [numbers(tape, 1024, 1024).sum_along(0)]


def measured(name: str, told: bool, budget_s: float = 2.0) -> str:
    tape = Tape()
    elements, values = CASES[name](tape)
    symbols = [value.symbol() for value in values]
    network = tape.into_network()
    parameters, plan = network.parameters(), network.entry(symbols).lower().prepare()
    best_s, end = float("inf"), time.perf_counter() + budget_s
    runs = 0
    run: Any = None
    while time.perf_counter() < end or runs < 3:
        began = time.thread_time()
        run = plan.forward(parameters)
        best_s, runs = min(best_s, time.thread_time() - began), runs + 1
    del run
    lines = plan.explain().splitlines()
    text = f"{name:20} {best_s * 1e6:11.1f} us {best_s / elements * 1e9:8.3f} ns/element  {lines[-1]}"
    return "\n".join([*(lines[:-1] if told else []), text])


if __name__ == "__main__":
    names = [name for name in sys.argv[1:] if name != "-v"]
    for name in names or CASES:
        print(measured(name, "-v" in sys.argv), flush=True)
