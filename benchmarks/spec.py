"""What a spec costs, as a Markdown table: `python benchmarks/spec.py`.

Import time, the time and memory per node of every reading of a long chain, and what the interpreter adds to a kernel.
Times depend on the machine and on what else it does: nothing here is a gate.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from topos import Network, Symbol, Tape, __version__
from topos.tensor.evaluate import kernel_of

Row = tuple[str, str, str]


def median_import_ms(statement: str, rounds: int) -> float:
    """The wall time of a fresh interpreter that runs the statement, less that of one that runs nothing."""

    def once(text: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", text], check=True)
        return time.perf_counter() - start

    once(statement)  # the first reads the files from the disk
    pairs = [(once(statement), once("pass")) for _ in range(rounds)]
    return 1e3 * (statistics.median(pair[0] for pair in pairs) - statistics.median(pair[1] for pair in pairs))


def imports(rounds: int) -> Iterator[Row]:
    for statement in ("import numpy", "import ml_dtypes", "import topos"):
        yield (
            f"`{statement}`",
            f"{median_import_ms(statement, rounds):.0f} ms",
            f"median of {rounds}, less an empty run",
        )


# a chain, in a process of its own, so that the peak is its peak

CHAIN = """
import json, sys, time
from topos import Tape

length = int(sys.argv[1])
facts = {}

def peak_mib():
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        import resource
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 2**20)

def timed(name, nodes, function):
    start = time.perf_counter()
    answer = function()
    facts[name] = [time.perf_counter() - start, nodes, peak_mib()]
    return answer

def chain():
    y = x
    for _ in range(length):
        y = y + x
    return y

facts["start"] = [0.0, 1, peak_mib()]
tape = Tape()
x = tape.parameter(1.0)
y = timed("record", length, chain)
before = len(tape)
adjoints = timed("differentiate", 3 * length + 1, lambda: tape.differentiate(y, x)).detach()
x, y = x.symbol(), y.symbol()
nodes = len(tape)
network = timed("seal", nodes, tape.into_network)
timed("describe", nodes, network.describe)
timed("describe, names and lines", nodes, lambda: network.describe(names=True, lines=True))
timed("fingerprint", nodes, lambda: network.fingerprint)
parameters = network.parameters()
plan = timed("lower", nodes, network.entry(adjoints.roots()).lower)
timed("plan.forward", nodes, lambda: plan.forward(parameters))
run = timed("network.forward", nodes, lambda: network.forward(parameters))
timed("run.backward", length, lambda: run.backward(y))
print(json.dumps(facts))
"""


def chain(length: int, **environment: str) -> dict[str, list[float]]:
    ran = subprocess.run(
        [sys.executable, "-c", CHAIN, str(length)],
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    facts: dict[str, list[float]] = json.loads(ran.stdout)
    return facts


def chains(length: int) -> Iterator[Row]:
    facts, bare = chain(length), chain(length, TOPOS_LOCATIONS="0")
    for name, kind in (("with file and line", facts), ("TOPOS_LOCATIONS=0", bare)):
        seconds, nodes, _ = kind["record"]
        yield f"record `y + x`, {name}", f"{nodes / seconds:,.0f} nodes/s", f"{1e6 * seconds / nodes:.2f} us per node"
    start = facts.pop("start")[2]
    for name, (seconds, nodes, peak) in facts.items():
        if name != "seal":
            yield f"{name}", f"{1e6 * seconds / nodes:.2f} us per node", f"{nodes:,} nodes; peak so far {peak:.0f} MiB"
    seconds = facts["seal"][0]
    yield "seal", f"{1e6 * seconds:.0f} us", "whatever the length"
    peak = max(peak for _, _, peak in facts.values())
    total = 4 * length + 2
    yield (
        "memory",
        f"{peak:.0f} MiB peak",
        f"{total:,} nodes recorded, and a run of all kept; {start:.0f} MiB at the start",
    )


# the interpreter


def best_ns(work: Callable[[], Any], count: int, rounds: int = 9) -> float:
    """The least time of several rounds per one of `count`, in ns: what disturbs only adds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1e9 * min(times) / count


def interpreter(length: int, operation: Callable[[Any, Any], Any]) -> tuple[float, float, float]:
    """Per node of a rank-0 chain: a plan's run, a kernel on its own, and the NumPy operation alone; in ns."""

    def record(tape: Tape) -> Any:
        x = tape.input(1.0)
        y = x
        for _ in range(length):
            y = operation(y, x)
        return y

    recorded: tuple[Network, Symbol] = Tape.record(record)
    network, y = recorded
    plan, parameters = network.entry(y).lower(), network.parameters()
    run = best_ns(lambda: plan.forward(parameters), length)
    node = network.nodes()[-1]
    assert node.element is not None
    kernel, opcode, element = kernel_of(node.opcode), node.opcode, node.element
    tensor = network.payload(network.nodes()[0].symbol)

    def kernels() -> None:
        for _ in range(length):
            kernel(opcode, element, [tensor, tensor])

    number = np.float32(1.0)

    def numpy() -> None:
        for _ in range(length):
            operation(number, number)

    with np.errstate(all="ignore"):
        return run, best_ns(kernels, length), best_ns(numpy, length)


def interpreters(length: int) -> Iterator[Row]:
    for name, operation in (("Add", lambda a, b: a + b), ("Mul", lambda a, b: a * b)):
        run, kernel, numpy = interpreter(length, operation)
        yield (
            f"interpreter, rank-0 {name}",
            f"{run - kernel:.0f} ns overhead per node",
            f"run {run:.0f} ns, kernel {kernel:.0f} ns (NumPy scalars {numpy:.0f} ns)",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=100_000, help="additions in the chain")
    parser.add_argument("--rounds", type=int, default=15, help="fresh interpreters per import")
    options = parser.parse_args()
    machine = f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}, {os.cpu_count()} CPUs"
    print(f"topos {__version__}; {machine}; a chain of {options.length:,} additions\n")
    print("| what | cost | of which |\n|---|---|---|")
    for rows in (imports(options.rounds), chains(options.length), interpreters(20_000)):
        for row in rows:
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
