"""What a call costs beside its native code: steps, runs and functions of small plans, and tensors that compute at once.

Run as `python benchmarks/calls.py [part of a name ...]`. A line has the least and the median time of a call, and for a
plan the median without the native call, which is timed by itself.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.systems.with_topos import System
from benchmarks.workloads import WORKLOADS
from topos import Tensor

BUDGET_S = 0.4
TOGETHER = 10
"""Calls that are timed at once: reading the clock takes as long as a part of one."""


class Call(NamedTuple):
    """What is timed, and the native call within it, if there is one."""

    name: str
    call: Callable[[], Any]
    native: Callable[[], Any] | None = None


def times_us(call: Callable[[], Any]) -> list[float]:
    """The times of a call, in order of size, after some that do not count."""
    times: list[float] = []
    began = time.perf_counter()
    while (now := time.perf_counter()) < began + BUDGET_S:
        start = time.perf_counter_ns()
        for _ in range(TOGETHER):
            call()
        if now > began + BUDGET_S / 5:
            times.append((time.perf_counter_ns() - start) / TOGETHER / 1000)
    return sorted(times)


def of_plans() -> Iterator[Call]:
    """The ways to run a training step, over tensors and over arrays."""
    for name in ("w1", "w2"):
        recorded = System().plan_of(WORKLOADS[name], WORKLOADS[name].arrays())
        plan, (loss, *_) = recorded.plan, recorded.results
        state, parameters, tensors = recorded.network.state(), recorded.network.parameters(), dict(recorded.feeds)
        arrays = {key: getattr(given, "array", given) for key, given in WORKLOADS[name].arrays().inputs.items()}
        plan.advance(state, tensors), plan.forward(parameters, tensors)
        step, run = (entered(plan, stepping) for stepping in (True, False))
        for kind, feeds in (("tensors", tensors), ("arrays", arrays)):
            named, call = f"{name} {{}}, {kind}", plan.function(list(feeds), [loss])
            yield Call(named.format("advance"), partial(plan.advance, state, feeds), step)
            yield Call(named.format("advance and of"), partial(_read, plan, state, feeds, loss), step)
            yield Call(named.format("forward"), partial(plan.forward, parameters, feeds), run)
            yield Call(named.format("function"), partial(call, parameters, *feeds.values()), run)


def _read(plan: Any, state: Any, feeds: Any, loss: Any) -> Any:
    return plan.advance(state, feeds).of(loss)


def entered(plan: Any, stepping: bool) -> Callable[[], Any]:
    """The native call of a plan that has run, over the memory of that run."""
    form = plan._native.form(stepping)
    (binding,) = form._idle
    return partial(form.code._enter, binding.table.argument)


def of_tensors() -> Iterator[Call]:
    """Instructions over small tensors, which NumPy computes, and one of them by NumPy alone."""
    number, matrix, array = Tensor(2.0), Tensor([[1.0, 2.0], [3.0, 4.0]]), np.ones((), np.float32)
    yield Call("numpy array + array", lambda: array + array)
    yield Call("tensor + tensor", lambda: number + number)
    yield Call("tensor * number", lambda: number * 2.0)
    yield Call("tensor @ tensor", lambda: matrix @ matrix)
    yield Call("tensor.tanh()", lambda: matrix.tanh())
    yield Call("tensor.sum()", lambda: matrix.sum())
    yield Call("Tensor(number)", lambda: Tensor(1.5))


def main(names: list[str]) -> None:
    for timed in (*of_plans(), *of_tensors()):
        if not names or any(name in timed.name for name in names):
            taken = times_us(timed.call)
            line = f"{timed.name:28} least {taken[0]:7.2f} us   median {statistics.median(taken):7.2f} us"
            if timed.native is not None:
                native = statistics.median(times_us(timed.native))
                line += f"   beside native code {statistics.median(taken) - native:6.2f} us"
            print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
