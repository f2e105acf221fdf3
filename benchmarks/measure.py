"""The systems in turn on one workload: results compared first, then short bursts, so that drift hits all alike."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.workloads import Workload

ROOT = Path(__file__).parents[1]
BURST_S = 0.2
REST_S = 0.05
"""What threads may still spin after a burst, OpenBLAS's 2**26 cycles: it is not taken from who comes next."""
LEAST_SAMPLES = 3


class Measurement(NamedTuple):
    """What one system took on one workload, per step."""

    workload: str
    system: str
    median_s: float
    p10_s: float
    p90_s: float
    least_s: float
    samples: int
    first_s: float
    import_s: float
    peak_mib: float
    imported_mib: float
    version: str
    results: list[float]
    notes: list[str]


class Failure(NamedTuple):
    """Why a system has no figure on a workload."""

    workload: str
    system: str
    reason: str


class Worker:
    """A process of one system. Its caches of compiled code are its own, and empty at first."""

    def __init__(self, system: str, workload: Workload, threads: int, scratch: Path, patience_s: float) -> None:
        self.system, self.workload, self.patience_s = system, workload, patience_s
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the process
        self.times: list[float] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", system, workload.name, str(threads)],
            cwd=ROOT,
            env=environment(threads, scratch),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        self.ready: dict[str, Any] = {}
        try:
            self.ready = self._read()
        except BaseException:
            self.close()
            raise

    def burst(self, seconds: float) -> None:
        """Runs steps for some seconds and keeps their times."""
        self.times += self._ask(f"{seconds}\n")["times"]

    def spent_s(self) -> float:
        """How long the kept steps took together."""
        return sum(self.times) * self.workload.steps_per_call

    def finish(self) -> Measurement:
        """Stops the process and answers what it measured."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        peak_mib = self._read()["peak_mib"]
        self.close()
        times, ready = sorted(self.times), self.ready
        low, high = times[len(times) // 10], times[len(times) * 9 // 10]
        return Measurement(
            self.workload.name,
            self.system,
            statistics.median(times),
            low,
            high,
            times[0],
            len(times),
            ready["first_s"],
            ready["import_s"],
            peak_mib,
            ready["imported_mib"],
            ready["version"],
            ready["results"],
            ready["notes"],
        )

    def close(self) -> None:
        """Ends the process, whatever it does."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            assert stream is not None
            stream.close()

    def _ask(self, command: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(command)
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        """The next line; a process that takes too long is ended, and one that failed says why."""
        assert self.process.stdout is not None
        late = threading.Timer(self.patience_s, self.process.kill)
        late.start()
        line = self.process.stdout.readline()
        over = not late.is_alive()
        late.cancel()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        if over:
            raise WorkerError(f"over {self.patience_s:.0f} s")
        self.errors.seek(0)
        told = [line.strip() for line in self.errors if line.strip()]
        raise WorkerError(next((line for line in reversed(told) if "Error" in line), f"exit {self.process.wait()}"))


class WorkerError(Exception):
    """A process that answers nothing, and why."""


def environment(threads: int, scratch: Path) -> dict[str, str]:
    """As many threads for everyone, BLAS libraries at their own best, caches below `scratch`."""
    # Without bytecode, each process would compile the sources that it imports.
    dropped = "OPENBLAS_", "TOPOS_", "PYTHONDONTWRITEBYTECODE"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    counts = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUM_CPU_THREADS", "CPU_COUNT")
    return {
        **kept,
        **dict.fromkeys(counts, str(threads)),
        "TOPOS_THREADS": str(threads),
        "TOPOS_CACHE": str(scratch / "topos"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "CACHEDB": str(scratch / "tinygrad.db"),
        "DEV": "CPU",
        "JAX_PLATFORMS": "cpu",
    }


def measured(
    workload: Workload, systems: Sequence[str], threads: int, budget_s: float, patience_s: float
) -> list[Measurement | Failure]:
    """Every system on one workload. Raises `DifferentResults` before anything is timed."""
    failures: list[Failure] = []
    with (
        tempfile.TemporaryDirectory(prefix="benchmarks-", ignore_cleanup_errors=True) as scratch,
        ExitStack() as closing,
    ):
        workers: list[Worker] = []
        for name in systems:
            place = Path(scratch) / name
            place.mkdir()
            try:
                worker = Worker(name, workload, threads, place, patience_s)
            except WorkerError as error:
                failures.append(Failure(workload.name, name, str(error)))
                continue
            closing.callback(worker.close)
            if "absent" not in worker.ready:
                workers.append(worker)
        compared(workload, workers)
        take_turns(workers, budget_s)
        return [*(worker.finish() for worker in workers), *failures]


class DifferentResults(Exception):
    """Two systems that do not do the same work."""


def compared(workload: Workload, workers: Sequence[Worker]) -> None:
    """Raises `DifferentResults` where what two systems answered is further apart than the workload's bound."""
    for first, second in zip(workers, workers[1:], strict=False):
        ours, theirs = first.ready["results"], second.ready["results"]
        largest = max(map(abs, [*ours, *theirs]))
        apart = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
        if not apart <= workload.bound * largest:
            raise DifferentResults(
                f"{workload.name}: {first.system} answers {ours}, {second.system} {theirs}: "
                f"{apart / largest:.1e} of the largest apart, more than {workload.bound:g}"
            )


def take_turns(workers: Sequence[Worker], budget_s: float) -> None:
    """Bursts round robin, each round begun by the next system, until each has had its budget."""
    for turn in range(math.ceil(budget_s / BURST_S)):
        for worker in rotated(workers, turn):
            if worker.spent_s() < budget_s or len(worker.times) < LEAST_SAMPLES:
                time.sleep(REST_S)
                worker.burst(BURST_S)


def rotated(workers: Sequence[Worker], turn: int) -> list[Worker]:
    start = turn % len(workers) if workers else 0
    return [*workers[start:], *workers[:start]]
