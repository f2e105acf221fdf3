"""The results as a picture: for each workload, every system's time over the best peer's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import table
from benchmarks.workloads import Workload

FILE = Path(__file__).parents[1] / "docs" / "performance.svg"
COLOURS = {
    "torch": "#d1495b",
    "torch.compile": "#edae49",
    "jax": "#30638e",
    "tinygrad": "#8d6a9f",
    "numpy": "#66a182",
}
FASTER, SLOWER = "#2b7a4b", "#9a9a9a"
WIDEST = 30.0
"""Systems further off than this stand at the edge."""


def draw(results: dict[str, Any], workloads: Mapping[str, Workload], file: Path = FILE) -> None:
    """Bars of ours, dots of the others, on a logarithmic axis: left of the line at 1 ours is the fastest."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = [standing for standing in table.standings(results) if standing.ratio is not None]
    matplotlib.rcParams["svg.hashsalt"] = "performance"  # the same picture for the same results
    figure, axes = plt.subplots(figsize=(9, 1.6 + 0.42 * len(found)), layout="constrained")
    places = range(len(found))
    ratios = [standing.ratio or 1.0 for standing in found]
    colours = [FASTER if ratio <= 1 else SLOWER for ratio in ratios]
    axes.barh(places, [ratio - 1 for ratio in ratios], left=1, height=0.62, color=colours, zorder=2)
    for place, ratio in zip(places, ratios, strict=True):
        axes.text(
            1.02,
            place,
            f"{ratio:.2f}",
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=9,
            fontweight="bold",
            color=FASTER if ratio <= 1 else "#555555",
        )
    _dots(axes, found)
    axes.axvline(1, color="#333333", linewidth=1, zorder=3)
    axes.set_xscale("log")
    axes.set_yticks(list(places), [f"{workloads[s.workload].title}  {s.workload}" for s in found], fontsize=8.5)
    axes.set_xticks([0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20], ["0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10", "20"])
    axes.set_xlim(min(0.2, *[ratio / 1.5 for ratio in ratios]), WIDEST * 1.15)
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.tick_params(axis="x", which="minor", length=0, labelbottom=False)
    axes.set_xlabel("time of a step over the best peer's: left of 1 topos is the fastest")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", alpha=0.25, zorder=0)
    figure.legend(loc="outside upper right", ncols=6, fontsize=8.5, frameon=False)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None, dpi=130)
    plt.close(figure)


def _dots(axes: Any, found: list[table.Standing]) -> None:
    axes.scatter([], [], s=60, marker="s", color=FASTER, label="topos")
    for system, colour in COLOURS.items():
        points = [
            (standing.rows[system]["median_s"] / standing.best["median_s"], place)
            for place, standing in enumerate(found)
            if system in standing.rows and standing.best is not None
        ]
        if not points:
            continue
        drawn = {"color": colour, "edgecolor": "white", "linewidth": 0.6, "zorder": 5, "clip_on": False}
        for further, marker in ((False, "o"), (True, ">")):
            chosen = [(min(ratio, WIDEST), place) for ratio, place in points if (ratio > WIDEST) == further]
            label = None if further else system
            axes.scatter([x for x, _ in chosen], [y for _, y in chosen], s=28, marker=marker, label=label, **drawn)
