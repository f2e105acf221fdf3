"""Tensors that compute at once: the defining NumPy kernels beside native ones, over one instruction and over rules.

Run as `python benchmarks/eager.py [part of a name ...]`. Both sides take turns in one process, and the least time of
each counts. Native kernels are made beforehand, whether they pay or not: the ratio shows from which size on they do.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from topos import Element, Parameters, Tape, Tensor, bf16, f32, f64
from topos.backend.native import eager
from topos.tensor import offer
from topos.tensor import tensor as tensors

BUDGET_S = 0.4
SIZES = (1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20)


def drawn(element: Element, *shape: int) -> Tensor:
    return Tensor(np.random.default_rng(1).normal(0, 1, shape), f64).to(element)


class Side:
    """One way to compute: everything by NumPy, as if there were no native code, or all of it native."""

    def __init__(self, native: bool) -> None:
        self.native = native

    def __enter__(self) -> None:
        os.environ["TOPOS_NATIVE"] = "1" if self.native else "0"
        least = 0 if self.native else 1 << 60
        tensors.LEAST_PLACES = offer.LEAST_PLACES = offer.LEAST_PRODUCTS = least
        offer.LEAST_NS = offer.PASS_NS = offer.RULE_NS = 0.0

    def __exit__(self, *facts: object) -> None:
        os.environ.pop("TOPOS_NATIVE")


def least_us(call: Callable[[], Any]) -> list[float]:
    """The least time by NumPy and by native code, taking turns."""
    best = [float("inf"), float("inf")]
    sides = [Side(False), Side(True)]
    end = time.perf_counter() + BUDGET_S
    rounds = 0
    while time.perf_counter() < end or rounds < 3:
        rounds += 1
        for at, side in enumerate(sides):
            with side:
                for _ in range(3):
                    began = time.perf_counter()
                    call()
                    best[at] = min(best[at], time.perf_counter() - began)
    return [seconds * 1e6 for seconds in best]


class Adam:
    """The rule of the Adam optimizer, its moments kept by slot."""

    def __init__(self, parameters: Parameters, gradients: Parameters) -> None:
        self.parameters, self.gradients = parameters, gradients
        self.moments = {s: (g * 0.5, g * g) for s, g in gradients if g is not None}
        self.count = 0

    def step(self) -> None:
        self.count = self.count % 1000 + 1
        self.parameters.step_each(self.gradients, self.rule)

    def rule(self, symbol: Any, weight: Tensor, gradient: Tensor) -> Tensor:
        first, second = self.moments[symbol]
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * (gradient * gradient)
        self.moments[symbol] = first, second
        scaled = first / (1 - 0.9**self.count) / ((second / (1 - 0.999**self.count)).sqrt() + 1e-8)
        return weight - 1e-3 * scaled


def table(element: Element, *shape: int) -> tuple[Parameters, Parameters]:
    tape = Tape(element)
    tape.parameter(drawn(element, *shape))
    parameters = tape.into_network().parameters()
    return parameters, parameters.map(lambda tensor: tensor + 0.1)


def cases() -> Iterator[tuple[str, Callable[[], Any]]]:
    for element in (f32, f64, bf16):
        for size in SIZES:
            x, y = drawn(element, size), drawn(element, size)
            rows = x.reshape([size // 64, 64])
            yield f"{element} add {size}", lambda x=x, y=y: x + y
            yield f"{element} exp {size}", lambda x=x: x.exp()
            yield f"{element} sum {size}", lambda x=x: x.sum()
            yield f"{element} max_along {size}", lambda rows=rows: rows.max_along(1)
            yield f"{element} log_softmax {size}", lambda rows=rows: rows.log_softmax(1)
        ids = Tensor.selection(np.random.default_rng(2).integers(0, 1000, 4096), 1000)
        vectors, scattered = drawn(element, 1000, 64), drawn(element, 4096, 64)
        yield f"{element} gather 4096x64", lambda a=vectors, ids=ids: a.gather(ids)
        yield f"{element} scatter 4096x64", lambda a=scattered, ids=ids: a.scatter(ids)
        for extent in (8, 32, 128, 512):
            square = drawn(element, extent, extent)
            yield f"{element} matmul {extent}", lambda a=square: a @ a
        for size in SIZES:
            parameters, gradients = table(element, size)
            yield f"{element} adam {size}", Adam(parameters, gradients).step
            half = lambda w, g: w - 0.5 * g  # noqa: E731
            yield f"{element} descent {size}", lambda p=parameters, g=gradients, half=half: p.step(g, half)


def main(wanted: list[str]) -> None:
    offer.LOADED_NS = eager.PROGRAM_NS = eager.STEP_NS = eager.PRODUCT_NS = 0.0
    print(f"{'':26}{'numpy us':>12}{'native us':>12}{'ratio':>8}")
    for name, call in cases():
        if wanted and not any(part in name for part in wanted):
            continue
        reference, native = least_us(call)
        print(f"{name:26}{reference:12.1f}{native:12.1f}{reference / native:8.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
