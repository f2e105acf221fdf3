"""What packing saves: weights that stay packed from run to run, and operands worked out as they are packed.

Run as `python -m benchmarks.packing [-t threads] [-s seconds] [part of a case's name ...]`. Two plans take turns, and
the least time of each counts: with what the line names, and without it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

import topos
from topos import Plan, Tape, bf16, f32
from topos.backend.native.prologues import Prologues

Call = Callable[[], object]
Case = TypeVar("Case")


def numbers(*shape: int) -> Any:
    """Numbers of a shape, the same ones each time."""
    return np.random.default_rng(shape).standard_normal(shape)


def serving(rows: int, terms: int, columns: int, stored: Any) -> tuple[Call, Call]:
    """A layer over a table that is run over again, and over one whose weight is never found packed."""

    def record(tape: Tape) -> Any:
        weight = tape.parameter(numbers(terms, columns), element=stored).to(f32)
        bias = tape.parameter(numbers(columns)).broadcast_along(0, rows)
        return tape.input(numbers(rows, terms)) @ weight + bias

    network, result = Tape.record(record)
    plan, table = network.entry(result).lower(), network.parameters()

    def shared(tensor: Any) -> Any:
        array = tensor.numpy().copy()
        array.flags.writeable = False
        return topos.Tensor.frozen(array)

    frozen = table.map(shared)
    return (lambda: plan.forward(table)), (lambda: plan.forward(frozen))


def folded(record: Callable[[Tape], Any]) -> tuple[Call, Call]:
    """A plan, and the one whose operands are all stored."""

    def planned() -> tuple[Plan, Any]:
        network, result = Tape.record(record)
        return network.entry(result).lower().prepare(), network.parameters()

    plan, table = planned()
    whole, Prologues.fold = Prologues.fold, lambda self: None  # type: ignore[method-assign]
    try:
        stored, same = planned()
    finally:
        Prologues.fold = whole  # type: ignore[method-assign]
    return (lambda: plan.forward(table)), (lambda: stored.forward(same))


def cases() -> Iterator[tuple[str, Callable[[], tuple[Call, Call]]]]:
    """The names, and what makes the two sides."""
    for columns in (3072, 2304):
        for stored in (f32, bf16):
            for rows in (4, 8, 16, 32, 64, 128):
                name = f"kept {rows} x 768 x {columns} {stored}"
                yield name, lambda r=rows, c=columns, s=stored: serving(r, 768, c, s)  # type: ignore[misc]
    kinds: dict[str, Callable[[Any, Any, Any], Any]] = {
        "relu(x) @ w": lambda x, w, m: x.relu() @ w,
        "(x * s) @ w": lambda x, w, m: (x * x.narrow(0, 0, 1).reshape([x.shape[1]]).broadcast_along(0, x.shape[0])) @ w,
        "x @ (w * s)": lambda x, w, m: x @ (w * w.narrow(0, 0, 1).reshape([w.shape[1]]).broadcast_along(0, w.shape[0])),
        "x @ select(m, w, 0)": lambda x, w, m: x @ m.select(w, w.zero_like()),
    }
    for size in ((1, 768, 3072), (8, 768, 3072), (32, 768, 3072), (128, 128, 128), (1024, 512, 128), (256, 3072, 768)):
        rows, terms, columns = size
        for kind, product in kinds.items():

            def record(tape: Tape, size: Any = size, product: Any = product) -> Any:
                shapes = size[:2], size[1:], size[1:]
                return product(*(tape.input(numbers(*shape)) for shape in shapes))

            yield f"{kind} {rows} x {terms} x {columns}", lambda record=record: folded(record)  # type: ignore[misc]


def least_s(calls: tuple[Call, Call], budget_s: float) -> list[float]:
    """The least time of either, taking turns."""
    found = [float("inf")] * 2
    end = time.perf_counter() + budget_s
    while time.perf_counter() < end:
        for at, call in enumerate(calls):
            for _ in range(4):
                began = time.perf_counter()
                call()
                found[at] = min(found[at], time.perf_counter() - began)
    return found


def asked(description: str | None, cases: Iterable[tuple[str, Case]]) -> Iterator[tuple[str, Case, float]]:
    """The cases that the command line names, all where it names none, and the seconds for each; sets the threads."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("-t", dest="threads", type=int, default=2)
    parser.add_argument("-s", dest="seconds", type=float, default=0.5)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    topos.threads(options.threads)
    for name, case in cases:
        if not options.names or any(part in name for part in options.names):
            yield name, case, options.seconds


def main() -> None:
    """The table."""
    for name, make, seconds in asked(__doc__, cases()):
        with_it, without = least_s(make(), seconds)
        told = f"{with_it * 1e6:9.1f} us of {without * 1e6:9.1f}: {with_it / without:.2f}"
        print(f"{name:40}{told}", flush=True)


if __name__ == "__main__":
    main()
