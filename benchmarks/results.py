"""The results as they are kept: what was measured, on which machine, with which versions."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Failure, Measurement

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "performance.json"
COMPILATION = ROOT / "docs" / "compilation.json"
EMISSION = ROOT / "docs" / "emission.json"
DISTANCES = ROOT / "docs" / "distances.json"
FIGURES = 4
"""Significant digits that are kept: more are noise."""


def machine() -> dict[str, Any]:
    """The processor and the system, in words that anyone may read."""
    return {
        "processor": _told("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def _told(file: str, key: str) -> str:
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")


def peak(threads: int) -> dict[str, Any]:
    """The machine's best, measured by a process of its own, whose memory then goes with it."""
    asked = [sys.executable, "-m", "benchmarks.peak", str(threads)]
    ran = subprocess.run(asked, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def best(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The larger of two measured peaks, figure by figure: what else runs only takes away."""
    return {key: max(one[key], other[key]) for key in one}


def kept(
    rows: Sequence[Measurement | Failure], threads: int, command: str, machine_peak: dict[str, Any]
) -> dict[str, Any]:
    """Everything that the page is made from."""
    measurements = [row for row in rows if isinstance(row, Measurement)]
    return {
        "date": datetime.date.today().isoformat(),
        "command": command,
        "threads": threads,
        "machine": machine(),
        "peak": rounded(machine_peak),
        "versions": {row.system: row.version for row in measurements},
        "measurements": [rounded(row._asdict()) for row in measurements],
        "failures": [row._asdict() for row in rows if isinstance(row, Failure)],
    }


def rounded(value: Any) -> Any:
    """Floats to the digits that are kept, wherever they stand; what was answered stays exact."""
    if isinstance(value, float):
        return float(f"{value:.{FIGURES}g}")
    if isinstance(value, dict):
        return {key: item if key == "results" else rounded(item) for key, item in value.items() if key != "version"}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return value


def write(results: dict[str, Any], file: Path = FILE) -> None:
    """One line for each measurement, so that a difference can be read."""
    lines = ["{"]
    for key, value in results.items():
        if isinstance(value, list):
            inner = ",\n    ".join(json.dumps(item) for item in value)
            lines.append(f"  {json.dumps(key)}: [\n    {inner}\n  ]," if value else f"  {json.dumps(key)}: [],")
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(value)},")
    lines[-1] = lines[-1].removesuffix(",")
    file.write_text("\n".join([*lines, "}", ""]), encoding="utf-8")


def render(page: str = "performance.md") -> None:
    """Fills a page with what is kept."""
    script = ROOT / "scripts" / "documentation.py"
    subprocess.run([sys.executable, str(script), str(ROOT / "docs" / page)], check=True)


def read(file: Path = FILE) -> dict[str, Any]:
    results: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return results
