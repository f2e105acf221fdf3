"""One system on one workload, in a process of its own: `python -m benchmarks.worker SYSTEM WORKLOAD THREADS`.

Writes one JSON line when it is ready: the import time, the time to the first result, what the first three steps
answered. Then each line that it reads is a number of seconds, which it answers with the times of the steps of a burst.
Where its input ends it writes its peak memory and stops.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

SAMPLE_S = 50e-6
"""Shorter steps are timed several at a time."""
WARMING = 0.1
"""The part of a burst that is run and not counted: caches and threads come back."""


def peak_mib() -> float:
    """The most memory that this process has held."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):  # elsewhere: it may be that of whoever started the process
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 2**20)


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    answer = call()
    return answer, time.perf_counter() - start


def burst(step: Callable[[], Any], together: int, seconds: float) -> list[float]:
    """The time of a step, again and again for some seconds; at least once."""
    until = time.perf_counter() + seconds * WARMING
    while time.perf_counter() < until:
        step()
    times: list[float] = []
    until = time.perf_counter() + seconds * (1 - WARMING)
    while not times or time.perf_counter() < until:
        start = time.perf_counter()
        for _ in range(together):
            step()
        times.append((time.perf_counter() - start) / together)
    return times


def opened() -> tuple[Any, Any]:
    """Where the answers go, and a standard output that disturbs them no more."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers, sys.stdin


def keep_to(threads: int) -> None:
    """Leaves the process as many processors as threads: some systems count those alone."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def main(name: str, workload_name: str, threads: int) -> None:
    answers, commands = opened()
    keep_to(threads)

    def answer(**facts: Any) -> None:
        answers.write(json.dumps(facts) + "\n")

    from benchmarks.systems import SYSTEMS

    _, import_s = timed(lambda: import_module(SYSTEMS[name].library))
    imported_mib = peak_mib()
    from benchmarks.systems import system
    from benchmarks.workloads import WORKLOADS

    found, workload = system(name), WORKLOADS[workload_name]
    found.threads(threads)
    arrays = workload.arrays()
    start = time.perf_counter()
    step = found.step(workload, arrays)
    built_s = time.perf_counter() - start
    del arrays
    if step is None:
        answer(absent=True)
        return
    results, times = [], []
    for _ in range(3):
        result, elapsed_s = timed(step)
        times.append(elapsed_s)
        results.append(found.magnitude(result))
    together = max(1, math.ceil(SAMPLE_S / times[-1]))
    notes = found.notes() if hasattr(found, "notes") else []
    answer(
        version=found.version(),
        import_s=import_s,
        imported_mib=imported_mib,
        first_s=built_s + times[0],
        steady_s=times[-1],
        results=results,
        notes=notes,
    )
    for line in commands:
        answer(times=[elapsed_s / workload.steps_per_call for elapsed_s in burst(step, together, float(line))])
    answer(peak_mib=peak_mib())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
