"""The results as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.workloads import Workload

OURS = "topos"
Row = dict[str, Any]


class Standing(NamedTuple):
    """One workload: every system's figures, and ours over the best of the others (below one is faster)."""

    workload: str
    rows: dict[str, Row]

    @property
    def best(self) -> Row | None:
        """The fastest of the others."""
        return min((row for row in self.rows.values() if row["system"] != OURS), key=_median, default=None)

    @property
    def ratio(self) -> float | None:
        """Our median over the best peer's."""
        ours, best = self.rows.get(OURS), self.best
        return None if ours is None or best is None else ours["median_s"] / best["median_s"]


def _median(row: Row) -> float:
    return float(row["median_s"])


def standings(results: dict[str, Any]) -> list[Standing]:
    """The workloads in the order they were measured."""
    names = dict.fromkeys(row["workload"] for row in results["measurements"])
    return [
        Standing(name, {row["system"]: row for row in results["measurements"] if row["workload"] == name})
        for name in names
    ]


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])


def duration(seconds: float) -> str:
    """Three significant digits in the unit that suits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= 0.9995 * size:
            return f"{seconds / size:.3g} {unit}" if seconds < 999.5 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def times(results: dict[str, Any], workloads: Mapping[str, Workload]) -> str:
    """A row per workload: each system's median and spread, our ratio to the best, and how much of the machine it is."""
    found = standings(results)
    systems = list(results["versions"])
    rows = []
    for standing in found:
        cells = [_cell(standing.rows.get(name), bold=standing.best) for name in systems]
        ratio = "" if standing.ratio is None else f"{standing.ratio:.2f}"
        workload = workloads[standing.workload]
        reached = _reached(workload, standing.rows.get(OURS), results["peak"])
        rows.append([f"`{standing.workload}` {workload.title}", *cells, ratio, reached])
    return markdown(["one step", *systems, "topos / best peer", "topos reaches"], rows)


def _reached(workload: Workload, row: Row | None, peak: dict[str, float]) -> str:
    """Bytes or operations per second, and their part of what the machine can do."""
    if row is None or not (workload.traffic_bytes or workload.operations):
        return ""
    if workload.traffic_bytes:
        speed = workload.traffic_bytes / row["median_s"]
        return f"{speed / 1e9:.3g} GB/s, {speed / peak['bytes_per_s']:.0%}"
    speed = workload.operations / row["median_s"]
    return f"{speed / 1e9:.3g} GFLOP/s, {speed / peak['operations_per_s'] * workload.item_bytes / 4:.0%}"


def _cell(row: Row | None, bold: Row | None) -> str:
    if row is None:
        return ""
    median, low, high = (duration(row[key]) for key in ("median_s", "p10_s", "p90_s"))
    text = f"**{median}**" if row is bold else median
    return f"{text}<br>{low} to {high}" + ("<br>interpreted" if row["notes"] else "")


def beginnings(results: dict[str, Any]) -> str:
    """A row per workload: the time to the first result from empty caches."""
    systems = list(results["versions"])
    rows = [
        [f"`{s.workload}`", *(duration(s.rows[name]["first_s"]) if name in s.rows else "" for name in systems)]
        for s in standings(results)
    ]
    imports = [duration(statistics.median(times)) for times in _each(results, systems, "import_s")]
    return markdown(["first result", *systems], [["import", *imports], *rows])


def memory(results: dict[str, Any]) -> str:
    """A row per workload: the peak of each process; ours also above what it held after its import."""
    systems = list(results["versions"])
    rows = []
    for standing in standings(results):
        cells = []
        for name in systems:
            row = standing.rows.get(name)
            above = f" ({row['peak_mib'] - row['imported_mib']:.0f})" if row and name == OURS else ""
            cells.append(f"{row['peak_mib']:.0f}{above}" if row else "")
        rows.append([f"`{standing.workload}`", *cells])
    imports = [f"{statistics.median(found):.0f}" for found in _each(results, systems, "imported_mib")]
    return markdown(["peak memory, MiB", *systems], [["after the import", *imports], *rows])


def _each(results: dict[str, Any], systems: Sequence[str], key: str) -> list[list[float]]:
    return [[row[key] for row in results["measurements"] if row["system"] == name] for name in systems]


def circumstances(results: dict[str, Any]) -> str:
    """Where, when and with what it was measured."""
    machine = results["machine"]
    versions = ", ".join(f"{system} {version}" for system, version in results["versions"].items())
    peak = results["peak"]
    lines = [
        f"- Machine: {machine['processor']} ({machine['architecture']}), {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, {machine['system']}",
        f"- {results['threads']} threads for every system; on as many, the machine reaches "
        f"{peak['operations_per_s'] / 1e9:.0f} GFLOP/s in f32 and reads {peak['bytes_per_s'] / 1e9:.0f} GB/s",
        f"- Versions: Python {machine['python']}; {versions}",
        f"- {results['date']}, by `{results['command']}`",
    ]
    lines += [f"- {row['system']} has no figure on `{row['workload']}`: {row['reason']}" for row in results["failures"]]
    return "\n".join(lines)


def compilation(results: dict[str, Any]) -> str:
    """A row per plan: cold, and again in a second process; then a row per step and the memory that it takes."""
    rows = [
        [
            found["plan"],
            _spent(found["cold"]),
            str(found["cold"]["compiled"]),
            _spent(found["again"]),
            f"{found['again']['loaded']}, and {found['again']['compiled']} compiled",
            "<br>".join(f"`{what}` {duration(seconds)}" for what, seconds in found["cold"]["slowest"]),
        ]
        for found in results["compilations"]
    ]
    head = ["compilation (processor time)", "cold", "texts compiled", "second process", "texts loaded", "slowest"]
    llvm_s = statistics.median(found["cold"]["llvm_s"] for found in results["compilations"])
    return "\n\n".join(
        [
            markdown(head, rows),
            f"Loading LLVM itself took {duration(llvm_s)} and is in none of these.",
            _memories(results["memories"]),
            f"- {results['date']}, by `{results['command']}`",
        ]
    )


def _spent(facts: Row) -> str:
    return f"{duration(facts['elapsed_s'])} ({duration(facts['processor_s'])})"


def _memories(found: Sequence[Row]) -> str:
    rows = [
        [
            row["plan"],
            *(f"{row[key] / 2**20:.1f}" for key in ("grown", "live", "tables")),
            f"{(row['grown'] + row['tables']) / (row['live'] + row['tables']):.2f}",
        ]
        for row in found
    ]
    return markdown(
        ["memory of a step, MiB", "grown", "live volume", "tables", "(grown + tables) / (live + tables)"], rows
    )


def emission(results: dict[str, Any], workloads: Mapping[str, Workload]) -> str:
    """A row per plan and how long its text takes; then a row per plan that is served, by each engine."""
    emitted = [
        [f"{row['nodes']:,}", f"{row['lines']:,}", duration(row["raised"]), duration(row["composed"])]
        for row in results["emissions"]
    ]
    served = [
        [
            f"`{row['workload']}` {workloads[row['workload']].title.removesuffix(' step')}",
            str(row["threads"]),
            *(_served(row, engine) for engine in (OURS, "XLA", "XLA, composed", "IREE")),
        ]
        for row in results["servings"]
    ]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return "\n\n".join(
        [
            markdown(["nodes", "lines of text", "emitted in (processor time)", "without raises"], emitted),
            markdown(
                ["forward pass, median of a call", "threads", "native plan", "XLA", "XLA, composed", "IREE"], served
            ),
            f"- {results['date']}, by `{results['command']}`, {versions}",
        ]
    )


def _served(row: Row, engine: str) -> str:
    """A median, of others how many times ours it is, and how long it took to be ready; empty where there is none."""
    medians = row["medians"]
    if engine not in medians:
        return ""
    ready = duration(row["ready"][engine])
    times = "" if engine == OURS else f", {medians[engine] / medians[OURS]:.2f} times"
    return f"{duration(medians[engine])}{times} (ready in {ready})"


ENGINES = ("interpreter", "XLA", "IREE")
FAR = 1e6
"""Digits of a larger distance say nothing."""


def distances(results: dict[str, Any]) -> str:
    """A row per program: by element and engine, how far the results are from ours; empty where there are none."""
    elements = [key for key in results["distances"][0] if key != "title"]
    columns = [(element, engine) for element in elements for engine in ENGINES]
    rows = [
        [row["title"], *(_apart(row[element], engine) for element, engine in columns)] for row in results["distances"]
    ]
    head = ["largest distance, in ulp", *(f"`{element}`, {engine}" for element, engine in columns)]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return "\n\n".join([markdown(head, rows), f"- {results['date']}, by `{results['command']}`, {versions}"])


def _apart(found: Row, engine: str) -> str:
    if engine not in found:
        return ""
    ulp = found[engine]
    if ulp is None:
        return "NaN"
    return "over 1e6" if ulp > FAR else f"{ulp:.3g}"
