"""The same plans served natively, by XLA and by IREE; and how long a plan takes to emit.

Run as `python -m benchmarks.serving`, with the extras `xla` and `iree`. Every row comes from a process of its own, in
which the three take turns. A call takes NumPy arrays for what is fed and answers NumPy arrays; trained numbers stay
where each of them keeps its own.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import models, results, table
from benchmarks.arrays import Ids, transformer
from benchmarks.measure import environment
from benchmarks.worker import burst
from benchmarks.workloads import WORKLOADS, Workload

ROOT = Path(__file__).parents[1]
SERVED = ("w2", "w3", "w10", "w7", "w5")
THREADS = (1, 2)
LAYERS = (10, 20, 40)
ROUNDS, ROUND_S = 8, 0.08
BOUND = 1e-3
Facts = dict[str, Any]
Call = Callable[[], list[Any]]


# what a child process measures
def recorded(workload: Workload) -> Any:
    from benchmarks.systems import system

    return system("topos").plan_of(workload, workload.arrays())


def emission(layers: str) -> Facts:
    """A training step of a transformer with as many layers: the processor time that its text takes, the best of a few.

    The machine has other work, which lengthens the wall time.
    """
    extents = models.Extents(vocab=65, context=64, width=128, heads=4, layers=int(layers))
    deep = Workload("deep", "", partial(models.characters, extents), partial(transformer, extents), "train", "sgd")
    plan = recorded(deep).plan
    found = {}
    for called, raises in (("raised", True), ("composed", False)):
        times = []
        for _ in range(5):
            start = time.process_time()
            text = plan.emit_stablehlo(raises=raises)
            times.append(time.process_time() - start)
        found[called] = min(times)
    return {"layers": int(layers), "nodes": len(plan.nodes()), "lines": text.count("\n") + 1, **found}


def serving(name: str, threads: str) -> Facts:
    """Medians of each engine, and how long each took to be ready."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(threads)])
    workload = WORKLOADS[name]._replace(kind="infer", rule="")
    found = recorded(workload)
    text, (held, fed) = found.plan.emit_stablehlo(), sources(found, workload.arrays().inputs)
    makers = {
        "topos": partial(native, found),
        "XLA": partial(xla, text, held, fed),
        "IREE": partial(iree, text, held, fed, int(threads)),
    }
    composed = found.plan.emit_stablehlo(raises=False)
    if composed != text:
        makers["XLA, composed"] = partial(xla, composed, held, fed)
    ready, calls, reference = {}, {}, None
    for engine, make in makers.items():
        start = time.perf_counter()
        calls[engine] = make()
        answer = calls[engine]()
        ready[engine] = time.perf_counter() - start
        reference = answer if reference is None else reference
        compared(name, engine, answer, reference)
    times: dict[str, list[float]] = {engine: [] for engine in calls}
    for _ in range(ROUNDS):
        for engine, call in calls.items():
            times[engine] += burst(call, 1, ROUND_S)
    medians = {engine: statistics.median(some) for engine, some in times.items()}
    return {"workload": name, "threads": int(threads), "medians": medians, "ready": ready}


def compared(name: str, engine: str, answer: list[Any], reference: list[Any]) -> None:
    for found, wanted in zip(answer, reference, strict=True):
        apart = np.max(np.abs(np.asarray(found) - np.asarray(wanted))) / (1 + np.max(np.abs(wanted)))
        if not apart <= BOUND:
            raise SystemExit(f"{name}: {engine} is {apart:.1e} of the largest number away")


def sources(found: Any, inputs: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """What stays and what is fed, in the order of the module's arguments."""
    nodes = found.plan.nodes()
    held = [np.asarray(found.network.payload(n.symbol).numpy()) for n in nodes if n.opcode.name == "Parameter"]
    fed = [inputs[node.name] for node in nodes if node.opcode.name == "Input"]
    return held, [one.array if isinstance(one, Ids) else one for one in fed]


# the three engines
def native(found: Any) -> Call:
    plan, parameters, feeds = found.plan.prepare(), found.network.parameters(), found.feeds
    arrays = {name: one if one.ids is not None else np.array(one.numpy()) for name, one in feeds.items()}

    def call() -> list[Any]:
        run = plan.forward(parameters, arrays)
        return [run.of(symbol).numpy() for symbol in found.results]

    return call


def xla(text: str, held: list[Any], fed: list[Any]) -> Call:
    import jax
    from jaxlib import xla_client

    device = jax.devices("cpu")[0]
    options, sharding = xla_client.CompileOptions(), jax.sharding.SingleDeviceSharding(device)
    loaded = device.client.compile_and_load(text, xla_client.DeviceList((device,)), options)
    kept = [jax.device_put(array, device) for array in held]
    forms = [jax.core.ShapedArray(array.shape, array.dtype) for array in fed]

    def call() -> list[Any]:
        put = xla_client.batched_device_put  # a tenth of what `jax.device_put` takes for small arrays
        given = [put(form, sharding, [array], [device]) for form, array in zip(forms, fed, strict=True)]
        answers = loaded.execute_sharded([*kept, *given])
        return [np.asarray(one[0]) for one in answers.disassemble_into_single_device_arrays()]

    return call


def iree(text: str, held: list[Any], fed: list[Any], threads: int) -> Call:
    from iree import compiler, runtime

    # A reduction over rows keeps more on the stack than is allowed by default.
    flags = ["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3", "--iree-llvmcpu-stack-allocation-limit=262144"]
    binary = compiler.compile_str(text, target_backends=["llvm-cpu"], input_type="stablehlo", extra_args=flags)
    config = runtime.Config("local-sync" if threads == 1 else "local-task")
    context = runtime.SystemContext(config=config)
    context.add_vm_module(runtime.VmModule.copy_buffer(context.instance, binary))
    main = context.modules.topos.main
    kept = [runtime.asdevicearray(config.device, array) for array in held]

    def call() -> list[Any]:
        answers = main(*kept, *fed)
        return [np.asarray(one) for one in (answers if isinstance(answers, tuple | list) else [answers])]

    return call


CHILDREN: dict[str, Callable[..., Facts]] = {"emission": emission, "serving": serving}


# what the parent asks and prints
def child(threads: int, what: str, *arguments: str) -> Facts:
    """What a fresh process measures."""
    command = [sys.executable, "-m", "benchmarks.serving", "--child", what, *arguments]
    with tempfile.TemporaryDirectory(prefix="serving-") as scratch:
        place = environment(threads, Path(scratch))
        ran = subprocess.run(command, cwd=ROOT, env=place, check=True, stdout=subprocess.PIPE, text=True)
    facts: Facts = json.loads(ran.stdout.splitlines()[-1])
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("--workloads", default=",".join(SERVED), help="what is served")
    parser.add_argument("--write", action="store_true", help="keep the results and render the page")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        what, *arguments = chosen.child
        print(json.dumps(CHILDREN[what](*arguments)))
        return
    found = {
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["python -m benchmarks.serving", *sys.argv[1:]]),
        "machine": results.machine(),
        "versions": {name: metadata.version(name) for name in ("jaxlib", "iree-base-compiler")},
        "emissions": [child(1, "emission", str(layers)) for layers in LAYERS],
        "servings": [
            child(threads, "serving", name, str(threads)) for name in chosen.workloads.split(",") for threads in THREADS
        ],
    }
    print(table.emission(found, WORKLOADS))
    if chosen.write:
        results.write(results.rounded(found), results.EMISSION)
        results.render("emission.md")


if __name__ == "__main__":
    main()
