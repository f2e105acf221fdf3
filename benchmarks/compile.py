"""What compilation costs: cold, from the cache on disk, many kernels, equal layers; and the memory of a step.

Run as `python -m benchmarks.compile`. Every figure comes from a process of its own.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import models, results, table
from benchmarks.arrays import transformer
from benchmarks.workloads import WORKLOADS, Workload

ROOT = Path(__file__).parents[1]
KERNELS = 500
LAYERS = (2, 4, 8)
STEPS = ("w1", "w2", "w5", "w10")
GROWING = ("w2", "w3", "w4", "w5", "w10")
"""Steps that hold enough for pages of memory to be a measure."""
SMALLEST = "w1"
Facts = dict[str, Any]


# what a child process measures
def recorded(workload: Workload) -> Any:
    from benchmarks.systems import system

    return system("topos").plan_of(workload, workload.arrays())


def prepared(plan: Any) -> Facts:
    """How long a plan takes to compile, after LLVM itself is loaded, and what was compiled."""
    from topos.backend.native.compiler import compiled
    from topos.backend.native.counts import compiles

    llvm_s, _ = spent(lambda: compiled("define void @nothing() {\n  ret void\n}\n"))
    before = compiles()
    elapsed_s, processor_s = spent(plan.prepare)
    counts = compiles().since(before)
    slowest = sorted(counts.recent, key=lambda event: event.elapsed_s, reverse=True)
    return {
        "llvm_s": llvm_s,
        "elapsed_s": elapsed_s,
        "processor_s": processor_s,
        "compiled": counts.compiled,
        "loaded": counts.loaded,
        "slowest": [[event.what, event.elapsed_s] for event in slowest[:2]],
        "what": plan.explain().splitlines()[-1],
    }


def spent(call: Callable[[], object]) -> tuple[float, float]:
    """The wall time of a call, and the processor time of all threads, which other processes lengthen little."""
    start, processor = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - start, time.process_time() - processor


def step_compiled(name: str) -> Facts:
    return prepared(recorded(WORKLOADS[name]).plan)


def many_compiled(count: str) -> Facts:
    """A plan of as many fused loops, no two of one shape."""
    from topos import Numerics, Tape

    def record(tape: Tape) -> Any:
        inputs = [tape.input(shape=[100 + at]) for at in range(int(count))]
        return [(x * x + 1.0).sqrt() * x - x.maximum(0.5) / 3.0 for x in inputs]

    network, results = Tape.record(record)
    return prepared(network.entry(results).numerics(Numerics.EXACT).lower())


def layers_compiled(layers: str) -> Facts:
    """A training step of a transformer with as many equal layers."""
    extents = models.Extents(vocab=65, context=64, width=128, heads=4, layers=int(layers))
    deep = Workload("deep", "", partial(models.characters, extents), partial(transformer, extents), "train", "sgd")
    return prepared(recorded(deep).plan)


def step_memory(name: str) -> Facts:
    """How far the process grows while a step runs, beside what the plan says lives at once, and its tables.

    A small step runs before: what any first step touches, the pages of libraries above all, is not this one's.
    """
    small = recorded(WORKLOADS[SMALLEST])
    resting = small.network.state()
    for _ in range(3):
        small.plan.advance(resting, small.feeds)
    found = recorded(WORKLOADS[name])
    state, plan = found.network.state(), found.plan.prepare()
    tables = sum(4 * state.of(source).shape.volume for source in plan.entry.carry)
    live = 4 * max(volume for _, volume in plan.live_series())
    before = resident_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts here
    for _ in range(3):
        plan.advance(state, found.feeds)
    return {"grown": resident_bytes("VmHWM") - before, "live": live, "tables": tables}


def resident_bytes(key: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key))


CHILDREN: dict[str, Callable[[str], Facts]] = {
    "step": step_compiled,
    "many": many_compiled,
    "layers": layers_compiled,
    "memory": step_memory,
}


# what the parent asks and prints
def child(cache: str, what: str, argument: str) -> Facts:
    """What a fresh process measures, over a cache folder."""
    command = [sys.executable, "-m", "benchmarks.compile", "--child", what, argument]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["TOPOS_CACHE"] = cache
    ran = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    facts: Facts = json.loads(ran.stdout)
    return facts


def compilations() -> list[Facts]:
    """For each plan: cold, then again in a second process over the cache that the first one left."""
    asked = [("step", name, f"`{name}`") for name in STEPS]
    asked.append(("many", str(KERNELS), f"{KERNELS} loops of different shapes"))
    asked += [("layers", str(layers), f"a step of {layers} equal layers") for layers in LAYERS]
    found = []
    for what, argument, plan in asked:
        with tempfile.TemporaryDirectory(prefix="compile-") as cache:
            found.append({"plan": plan, "cold": child(cache, what, argument), "again": child(cache, what, argument)})
    return found


def memories() -> list[Facts]:
    """For each step: how far the process grows beyond its tables, and what lives at once."""
    found = []
    for name in GROWING:
        with tempfile.TemporaryDirectory(prefix="compile-") as cache:
            found.append({"plan": f"`{name}`", **child(cache, "memory", name)})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile", description=__doc__)
    parser.add_argument("--write", action="store_true", help="keep the results and render the page")
    parser.add_argument("--child", nargs=2, metavar=("WHAT", "ARGUMENT"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        what, argument = chosen.child
        print(json.dumps(CHILDREN[what](argument)))
        return
    with tempfile.TemporaryDirectory(prefix="compile-") as cache:
        child(cache, "step", "w1")  # Python's own bytecode is there from now on
    found = {
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["python -m benchmarks.compile", *sys.argv[1:]]),
        "machine": results.machine(),
        "compilations": compilations(),
        "memories": memories(),
    }
    print(table.compilation(found))
    if chosen.write:
        results.write(results.rounded(found), results.COMPILATION)
        results.render()


if __name__ == "__main__":
    main()
