"""Very long specs: nothing recurses, nothing is quadratic, and the memory per node is bounded."""

import gc
import json
import subprocess
import sys
from typing import Any

import pytest

from topos import Tape, Value

resource = pytest.importorskip("resource", reason="the peak of a process is asked of resource, which Windows lacks")

# Everything that is done to a chain, in a process of its own, which tells what it found and what it took.
CHILD = """
import gc, json, resource, sys, time
from topos import Tape

length, recorded = int(sys.argv[1]), sys.argv[2] == "recorded"
assert sys.getrecursionlimit() == 1000
unit = 1024 if sys.platform != "darwin" else 1
facts, seconds = {}, {}

def peak():  # in MiB
    try:  # Linux's own count starts anew with the program; the one of getrusage starts from the parent's
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20

def timed(name, function):
    start = time.perf_counter()
    answer = function()
    seconds[name] = time.perf_counter() - start
    return answer

def chain():
    y = x
    for _ in range(length):
        y = y + x
    return y

facts["before"] = peak()
tape = Tape()
x = tape.parameter(1.0)
y = timed("record", chain)
facts["nodes"] = len(tape)
adjoints = timed("differentiate", lambda: tape.differentiate(y, x)).detach() if recorded else None
facts["all"] = len(tape)
x, y = x.symbol(), y.symbol()
network = timed("seal", tape.into_network)
text = timed("describe", network.describe)
facts["text"] = text[text.rfind("\\n") + 1:]
del text
parameters = network.parameters()
run = timed("forward", lambda: network.forward(parameters))
facts["y"] = float(run.of(y))
facts["engine"] = float(timed("backward", lambda: run.backward(y)).of(x))
plan = None
if adjoints:
    facts["gradient"] = float(run.of(adjoints.of(x)))
    run = None
    plan = timed("lower", network.entry(adjoints.roots()).lower)
    run = timed("run the plan", lambda: plan.forward(parameters))
    facts["planned"] = [float(tensor) for tensor in run.of(adjoints.roots())]
facts["peak"] = peak()
objects = len(gc.get_objects())
def free():
    global run, network, parameters, plan, adjoints
    run = network = parameters = plan = adjoints = None
    gc.collect()
timed("free", free)
facts["freed"] = objects - len(gc.get_objects())
facts["seconds"] = seconds
print(json.dumps(facts))
"""


def measured(length: int, gradient: str) -> dict[str, Any]:
    """The facts of one chain whose gradient is `recorded` as well as swept, or only `swept`."""
    ran = subprocess.run([sys.executable, "-c", CHILD, str(length), gradient], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
    facts: dict[str, Any] = json.loads(ran.stdout)
    spent = ", ".join(f"{name} {1e6 * elapsed / length:.2f}" for name, elapsed in facts["seconds"].items())
    print(f"\n{length} additions, gradient {gradient}: peak {facts['peak']:.0f} MiB; us per addition: {spent}")
    return facts


def test_a_chain_of_100_000_additions() -> None:
    """y = x, then 100000 times y = y + x: 100001 exactly, and so is its slope."""
    length = 100_000
    facts = measured(length, "recorded")
    assert facts["nodes"] == length + 1
    # the seed; per addition a zero and a sum for y and a sum for x, whose one zero makes up for y being x at the first
    assert facts["all"] - facts["nodes"] == 1 + 3 * length
    assert facts["text"] == f"network: {facts['all']} nodes, 1 parameter, 0 inputs"
    assert facts["y"] == facts["engine"] == facts["gradient"] == length + 1
    assert facts["planned"] == [length + 1] * 2
    assert facts["freed"] > 2 * length
    assert facts["peak"] < 500


def test_memory_grows_with_the_number_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPOS_NATIVE", "0")  # loading LLVM takes as much as thousands of nodes
    short, long = (measured(length, "recorded") for length in (8_000, 16_000))
    small, large = (facts["peak"] - facts["before"] for facts in (short, long))
    assert 1.5 < large / small < 2.5


@pytest.mark.slow
def test_a_chain_of_a_million_nodes() -> None:
    length = 1_000_000
    facts = measured(length, "swept")
    assert (facts["nodes"], facts["y"], facts["engine"]) == (length + 1, length + 1, length + 1)
    assert facts["peak"] < 2000


def calls(work: Any) -> int:
    """How many functions of topos are entered: a measure of work that no other process disturbs."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()  # a collection calls what others have hung on it
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def chain(length: int) -> tuple[Tape, Value, Value]:
    tape = Tape()
    x = tape.parameter(1.0)
    y = x
    for _ in range(length):
        y = y * x
    return tape, x, y


def readings(length: int) -> dict[str, int]:
    counts = {"record": calls(lambda: chain(length))}
    tape, x, y = chain(length)
    counts["differentiate"] = calls(lambda: tape.differentiate(y, x))
    gradient = tape.differentiate(y, x).of(x).symbol()
    symbols = [y.symbol(), gradient]
    counts["describe"] = calls(lambda: tape.describe(names=True, lines=True))
    network = tape.into_network()
    parameters = network.parameters()
    entry = network.entry(symbols)
    plan = entry.lower()
    counts["lower"] = calls(entry.lower)
    counts["describe the plan"] = calls(plan.describe)
    counts["forward"] = calls(lambda: plan.forward(parameters))
    counts["interpret"] = calls(lambda: entry.interpret(parameters))
    run = network.forward(parameters)
    counts["backward"] = calls(lambda: run.backward(symbols[0]))
    counts["diagnose"] = calls(lambda: entry.diagnose().lower().forward(parameters))
    counts["fingerprint"] = calls(lambda: network.fingerprint)
    counts["live series"] = calls(plan.live_series)
    counts["reopen"] = calls(lambda: network.into_tape())
    return counts


def test_every_reading_is_linear_in_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPOS_NATIVE", "0")  # kernels are cut every hundred nodes or so, which shows in short chains
    readings(10)  # what is done once is done here
    short, long = readings(300), readings(600)
    ratios = {name: long[name] / short[name] for name in short}
    assert ratios.pop("reopen") == 1
    assert max(ratios.values()) < 2.1, ratios
    assert min(ratios.values()) > 1.5, ratios


def test_a_failed_call_costs_what_it_took_back_not_what_is_there() -> None:
    def refused(tape: Tape, x: Value) -> None:
        with pytest.raises(ValueError):
            x + [1.0, 2.0]

    counts = []
    for length in (100, 3000):
        tape, x, _ = chain(length)
        for _ in range(length):
            tape.leaf(1.0)
        counts.append(calls(lambda tape=tape, x=x: refused(tape, x)))
    assert counts[0] == counts[1]


def test_5_000_nested_scopes_and_deep_composition() -> None:
    tape = Tape()
    scopes = [tape.scope(f"s{level % 10}") for level in range(5000)]
    for scope in scopes:
        scope.__enter__()
    x = tape.parameter(1.0, name="x")
    for scope in reversed(scopes):
        scope.__exit__(None, None, None)
    y = x
    for _ in range(2000):
        y = y.relu()
    tape.differentiate(y, x)
    network = tape.into_network()
    assert network.describe(names=True).count("s9.") == 500
    assert network.symbol(".".join([*(f"s{level % 10}" for level in range(5000)), "x"])).index == 0


def test_one_node_read_by_very_many() -> None:
    tape = Tape()
    x = tape.parameter(2.0)
    total = tape.leaf(0.0)
    for _ in range(3000):
        total = total + x * x
    gradient = tape.differentiate(total, x).of(x).symbol()
    symbol = total.symbol()
    network = tape.into_network()
    run = network.forward(network.parameters())
    assert float(run.of(symbol)) == 12_000
    assert float(run.of(gradient)) == 12_000
