"""Measures topos beside every peer that is installed: `python -m benchmarks [--workloads w1,w2] [--systems topos,jax]`.

Prints the tables. With `--write` it also keeps the results in `docs/performance.json`, draws `docs/performance.svg` and
renders the page.
"""

from __future__ import annotations

import argparse
import os
import sys

from benchmarks import results, table
from benchmarks.measure import DifferentResults, Failure, Measurement, measured
from benchmarks.systems import SYSTEMS, installed
from benchmarks.workloads import WORKLOADS


def listed(text: str, known: list[str]) -> list[str]:
    """The names that an option lists; each is known, or starts with one of the texts (`w9` is all of its sizes)."""
    names = []
    for part in text.split(","):
        found = [part] if part in known else [name for name in known if name.startswith(f"{part}-")]
        if not found:
            raise SystemExit(f"benchmarks: nothing is called {part!r}; there are {', '.join(known)}")
        names += found
    return names


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="names, or the part before a dash")
    parser.add_argument("--systems", help=f"of {', '.join(SYSTEMS)}; those that are installed where left out")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--budget", type=float, default=2.0, help="seconds of steps for each system on each workload")
    parser.add_argument("--patience", type=float, default=150.0, help="seconds that a system may take to be ready")
    parser.add_argument("--write", action="store_true", help="keep the results and render the page")
    return parser.parse_args()


def main() -> None:
    chosen = options()
    workloads = listed(chosen.workloads, list(WORKLOADS))
    systems = listed(chosen.systems, list(SYSTEMS)) if chosen.systems else installed()
    before = results.peak(chosen.threads)
    rows: list[Measurement | Failure] = []
    differing = []
    for name in workloads:
        try:
            found = measured(WORKLOADS[name], systems, chosen.threads, chosen.budget, chosen.patience)
        except DifferentResults as error:
            differing.append(str(error))
            continue
        for row in found:
            print(_told(row), file=sys.stderr, flush=True)
        rows += found
    machine_peak = results.best(before, results.peak(chosen.threads))
    command = " ".join(["python -m benchmarks", *sys.argv[1:]])
    kept = results.kept(rows, chosen.threads, command, machine_peak)
    parts = (
        table.circumstances(kept),
        table.times(kept, WORKLOADS),
        table.beginnings(kept),
        table.memory(kept),
    )
    print("\n\n".join(parts))
    if differing:
        sys.exit("\n".join(["benchmarks: systems that do not do the same work; nothing is kept", *differing]))
    if chosen.write:
        from benchmarks import picture

        results.write(kept)
        picture.draw(kept, WORKLOADS)
        results.render()


def _told(row: Measurement | Failure) -> str:
    if isinstance(row, Failure):
        return f"{row.workload:12}{row.system:15}{row.reason}"
    spread = f"{table.duration(row.p10_s)} to {table.duration(row.p90_s)}"
    return f"{row.workload:12}{row.system:15}{table.duration(row.median_s):>10}  ({spread}, {row.samples} samples)"


if __name__ == "__main__":
    main()
