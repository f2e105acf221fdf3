"""How far the results of other engines are from those of topos, on emitted modules. About a minute.

Run as `python -m benchmarks.distances`, with the extras `xla` and `iree`. Each row is one module, over seeded arrays,
by the reference interpreter of StableHLO, XLA and IREE, on the CPU. XLA is set as `topos.emission.xla` sets it.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from typing import Any

import numpy as np
from tests.emission.conformance import spacing
from tests.emission.engines import Engines
from tests.emission.recording import Emitted, emitted

from benchmarks import results, table
from benchmarks.arrays import Array
from benchmarks.distance_rows import ELEMENTS, Row, rows
from topos import Element, Tape

ENGINES = {"interpreter": "interpret", "XLA": "compile", "IREE": "iree"}
SETTINGS = "--xla_allow_excess_precision=false"
Distances = dict[str, float]
Facts = dict[str, Any]


def module(row: Row, element: Element) -> Emitted:
    """A row's text, with what it takes and what topos answers."""
    network, found = Tape.record(lambda tape: tuple(row.record(tape)), element)
    plan = network.entry(list(found)).lower()
    weights = network.parameters()
    payloads = plan._sources.payloads(weights, plan._read(weights, row.feeds).at(0))
    text = plan.emit_stablehlo(raises=row.raises)
    return emitted(plan, payloads, text, text)


def distances(row: Row, made: Emitted, answers: list[Array]) -> Distances:
    """The largest distance under each title."""
    largest: Distances = {}
    for at, (found, (_, wanted)) in enumerate(zip(answers, made.expected, strict=True)):
        title = row.titles[min(at, len(row.titles) - 1)]
        largest[title] = max(largest.get(title, 0.0), distance(found, wanted, row.is_own))
    return largest


def distance(found: Array, wanted: Array, is_own: bool) -> float:
    """In ulp of each number, or of the largest of them; an infinity stands one step past the end.

    Left out are numbers below twice the least normal one: engines that take subnormal numbers as zero do so on the way
    too. A NaN that only one of them has is infinitely far away.
    """
    largest = np.max(np.abs(wanted.astype(np.float64)), initial=0.0, where=~np.isnan(wanted))
    least = 2.0 ** (-1021 if wanted.dtype == np.float64 else -125)
    with np.errstate(all="ignore"):
        right = wanted.astype(np.float64)
        share = np.where(np.abs(right if is_own else largest) > 1, 0.5, 1.0)  # where an infinity is a number too
        left, right = _finite(found, share), _finite(wanted, share)
        unit = spacing(right if is_own else largest * share, wanted.dtype)
        apart = np.where(np.isnan(left) & np.isnan(right), 0.0, np.abs(left - right) / unit)
        counts = (right == 0) | (np.abs(right) >= least) | np.isnan(right)
    return float(np.max(np.where(np.isnan(apart), np.inf, apart), where=counts, initial=0.0))


def _finite(array: Array, share: Array) -> Array:
    """A share of each number, so that an infinity has one."""
    ends = 2.0**1023 if array.dtype == np.float64 else 2.0**127
    return np.nan_to_num(array.astype(np.float64) * share, nan=np.nan, posinf=ends, neginf=-ends)


def asked(engine: str, made: list[tuple[Element, Row, Emitted]]) -> dict[tuple[str, str], float | None]:
    """How far away one engine is, by title and element; nothing where it does not take the module."""
    served, found = Engines(SETTINGS), {}
    for element, row, module in made:
        try:
            answers = served.run(ENGINES[engine], module.text, module.arguments)
        except AssertionError:
            continue
        for title, ulp in distances(row, module, answers).items():
            found[title, element.name] = ulp if np.isfinite(ulp) else None
    served.close()
    return found


def measured() -> list[Facts]:
    """A line for each title: by element and engine, how far away. A NaN of one side is `None`."""
    made = [(element, row, module(row, element)) for element in ELEMENTS for row in rows(element)]
    with ThreadPoolExecutor(len(ENGINES)) as pool:
        answered = dict(zip(ENGINES, pool.map(lambda engine: asked(engine, made), ENGINES), strict=True))
    return [
        {
            "title": title,
            **{element.name: _at(answered, (title, element.name)) for element in ELEMENTS},
        }
        for title in dict.fromkeys(title for _, row, _ in made for title in row.titles)
    ]


def _at(answered: dict[str, dict[tuple[str, str], float | None]], place: tuple[str, str]) -> Facts:
    return {name: found[place] for name, found in answered.items() if place in found}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distances", description=__doc__)
    parser.add_argument("--write", action="store_true", help="keep the results and render the page")
    chosen = parser.parse_args()
    found = {
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["python -m benchmarks.distances", *sys.argv[1:]]),
        "machine": results.machine(),
        "versions": {name: metadata.version(name) for name in ("jaxlib", "iree-base-compiler")},
        "distances": measured(),
    }
    print(table.distances(found))
    if chosen.write:
        results.write(results.rounded(found), results.DISTANCES)
        results.render("emission.md")


if __name__ == "__main__":
    main()
