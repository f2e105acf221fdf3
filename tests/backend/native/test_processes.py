"""Native plans and the life of a process: first calls, other users of LLVM, the cache, forks, signals and exits."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llvmlite")

from topos.backend.native import target
from topos.backend.native.cache import Cache

PLAN = """
    import gc, hashlib, os, signal, sys, threading, time, warnings
    import numpy as np
    from topos import Tape, detach
    from topos.backend.native import counts, pool
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)

    def numbers(seed, *shape):
        return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)

    def recorded(rows=40, factor=0.5):
        tape = Tape()
        x, w = tape.input(shape=[rows, 30], name="x"), tape.parameter(numbers(1, 30, 20))
        y = ((x @ w) * factor).tanh().softmax(1)
        adjoints = detach(tape.differentiate((y * y).sum(), [w, x]))
        network = tape.into_network()
        return network, network.entry(adjoints), adjoints.roots(), {"x": numbers(2, rows, 30)}

    def digest(tensors):
        return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()[:12]

    def call(rows=40):
        network, entry, roots, feeds = recorded(rows)
        plan = entry.lower()
        assert plan.explain().splitlines()[-1].startswith("native: "), plan.explain()
        return digest(plan.forward(network.parameters(), feeds).of(roots))

    def oracle(rows=40):
        network, entry, roots, feeds = recorded(rows)
        return digest(entry.interpret(network.parameters(), feeds).of(roots))
"""

MADE = """
    made = counts.compiles()
    print(made.compiled, made.loaded)
"""

RUN = PLAN + "    assert call() == oracle()\n" + MADE

Script = Callable[..., str]
Begin = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Begins a process; whatever becomes of the test, none outlives it."""
    begun: list[subprocess.Popen[str]] = []

    def begin(text: str, **environment: str) -> subprocess.Popen[str]:
        begun.append(
            subprocess.Popen(
                [sys.executable, "-u", "-c", textwrap.dedent(text)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


@pytest.fixture
def scripts(begin: Begin) -> Callable[..., list[subprocess.CompletedProcess[str]]]:
    """Runs Python in several processes at once."""

    def run(texts: Sequence[str], **environment: str) -> list[subprocess.CompletedProcess[str]]:
        started = [begin(text, **environment) for text in texts]
        done = []
        for process in started:
            out, told = process.communicate(timeout=120)
            done.append(subprocess.CompletedProcess(process.args, process.returncode, out, told))
        return done

    return run


# First calls ---------------------------------------------------------------------------------------------------------
def test_c69_eight_threads_make_the_first_call_together(script: Script) -> None:
    """The first of the process: llvmlite, the compiler, the pool and the plan are all made under eight callers."""
    text = """
    network, entry, roots, feeds = recorded()
    plan, parameters = entry.lower(), network.parameters()
    barrier, answers = threading.Barrier(8), []
    def work(own):
        barrier.wait()
        chosen = entry.lower() if own else plan
        answers.append(digest(chosen.forward(parameters, feeds).of(roots)))
    threads = [threading.Thread(target=work, args=(at % 2,)) for at in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert set(answers) == {oracle()} and len(answers) == 8, answers
    print(len(plan.llvm()) > 0)
    """
    assert script(PLAN + text, TOPOS_THREADS="3") == "True\n"


LIBRARIES = {
    "topos": "print(call() == oracle())",
    "numba": "import numba\nassert numba.njit(lambda x: x * 2 + 1)(3) == 7",
    "torch": "import torch\nassert float(torch.arange(4.0).tanh().sum()) > 1",
}
ORDERS = list(itertools.permutations(LIBRARIES))


@pytest.mark.exhaustive
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_c69_beside_other_users_of_llvm(script: Script, order: Sequence[str]) -> None:
    """Each loads and compiles in turn, in every order, and all work on."""
    here = [name for name in order if name == "topos" or find_spec(name) is not None]
    if len(here) == 1:
        pytest.skip("neither numba nor torch is installed")
    lines = [line for name in [*here, "topos"] for line in LIBRARIES[name].split("\n")]
    text = "    warnings.simplefilter('ignore')\n" + "".join(f"    {line}\n" for line in lines)
    assert script(PLAN + text, timeout_s=240) == "True\nTrue\n"


def test_c69_exit_with_live_plans(script: Script) -> None:
    """Plans in globals, in cycles, in a thread that is still running them: the process ends with status 0."""
    text = """
    network, entry, roots, feeds = recorded(400)
    kept = [entry.lower().prepare() for _ in range(3)]
    cycle = [kept]; cycle.append(cycle)
    def work():
        while True:
            kept[0].forward(network.parameters(), feeds)
    threading.Thread(target=work, daemon=True).start()
    kept[1].forward(network.parameters(), feeds)
    time.sleep(0.05)
    print("done")
    """
    assert script(PLAN + text, TOPOS_THREADS="4") == "done\n"


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_c69_compile_and_drop_a_thousand_plans(script: Script) -> None:
    text = """
    def resident():
        gc.collect()
        with open("/proc/self/statm") as counts:
            return int(counts.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    def drop(start, count):
        for number in range(start, start + count):
            network, entry, roots, feeds = recorded(6, 1 + number / 1024)
            entry.lower().forward(network.parameters(), feeds)
    drop(0, 300)
    before = resident()
    drop(300, 1000)
    grown = resident() - before
    print(counts.compiles().compiled > 1300, "flat" if grown < 24 << 20 else f"{grown / 1e6:.1f} MB more")
    """
    assert script(PLAN + text, timeout_s=500, TOPOS_CACHE="") == "True flat\n"


# The cache -----------------------------------------------------------------------------------------------------------
def test_c70_a_second_process_compiles_nothing(script: Script) -> None:
    compiled, loaded = map(int, script(RUN).split())
    assert compiled >= 3
    assert loaded == 0
    assert script(RUN) == f"0 {compiled}\n"


def test_c70_a_narrower_processor_is_a_miss(script: Script) -> None:
    if "avx" not in target.host().features:
        pytest.skip("levels of x86-64")
    wide = int(script(RUN).split()[0])
    narrow = int(script(RUN, TOPOS_CPU="x86-64").split()[0])
    assert narrow >= 3
    assert script(RUN, TOPOS_CPU="x86-64") == f"0 {narrow}\n"
    assert script(RUN) == f"0 {wide}\n"


def test_c70_another_option_is_a_miss(script: Script) -> None:
    compiled = int(script(RUN).split()[0])
    other = PLAN + "    from topos.backend.native import objects\n    objects.OPTIONS += ' other'\n" + RUN[len(PLAN) :]
    assert script(other) == f"{compiled} 0\n"
    assert script(other) == f"0 {compiled}\n"


@pytest.mark.parametrize(
    "kept", [0, pytest.param(20, marks=pytest.mark.exhaustive), pytest.param(1000, marks=pytest.mark.exhaustive)]
)
def test_c70_a_truncated_file_is_a_miss_with_a_warning(script: Script, own_cache: Path, kept: int) -> None:
    compiled = int(script(RUN).split()[0])
    largest = max(own_cache.iterdir(), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:kept])
    text = """
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert call() == oracle()
    print([str(warning.message).split(",")[0] for warning in told])
    """
    assert script(PLAN + text + MADE) == f"['the cache of compiled code holds a damaged file']\n1 {compiled - 1}\n"
    assert script(RUN) == f"0 {compiled}\n"


def test_c70_processes_fill_it_at_once(scripts: Any, own_cache: Path) -> None:
    done = scripts([RUN] * 3)
    assert [(one.returncode, one.stderr) for one in done] == [(0, "")] * 3
    (again,) = scripts([RUN])
    assert again.stdout.startswith("0 ")
    assert {path.suffix for path in own_cache.iterdir()} == {".object"}


def test_c70_no_cache_gives_the_same_bits(script: Script, own_cache: Path) -> None:
    compiled = int(script(RUN).split()[0])
    assert script(RUN, TOPOS_CACHE="") == f"{compiled} 0\n"


# Forks ---------------------------------------------------------------------------------------------------------------
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

IN_A_CHILD = """
    def in_a_child(work):
        began, child = time.perf_counter(), os.fork()
        if not child:
            try:
                work()
            except BaseException as error:
                print("child:", repr(error), file=sys.stderr)
                os._exit(1)
            os._exit(0)
        while time.perf_counter() - began < 10:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        os.kill(child, 9)
        return "hangs"

    network, entry, roots, feeds = recorded(1500)
    plan, parameters = entry.lower(), network.parameters()
    expected = digest(entry.interpret(parameters, feeds).of(roots))
    def same():
        answer = digest(plan.forward(parameters, feeds).of(roots))
        assert answer == expected, answer
"""


@forks
def test_c67_a_child_runs_the_parents_plan(script: Script) -> None:
    """After use, more than once, and then a plan that the parent never compiled, with all the threads again."""
    text = """
    same()
    print([in_a_child(same) for _ in range(3)])
    def another():
        same()
        assert call(rows=37) == oracle(37)
        assert len([thread for thread in threading.enumerate() if thread.name.startswith("topos")]) >= 1
    print(in_a_child(another))
    same()
    """
    assert script(PLAN + IN_A_CHILD + text, TOPOS_THREADS="4") == "[0, 0, 0]\n0\n"


@forks
def test_c67_forked_during_a_run_and_a_compilation(script: Script) -> None:
    """Another thread is in the middle of a run, and a third in the middle of compiling, at each of the forks."""
    text = """
    same()
    stop = threading.Event()
    def run():
        while not stop.is_set():
            same()
    def compile():
        at = 0
        while not stop.is_set():
            at += 1
            recorded(5, 1 + at / 1000)[1].lower().prepare()
    workers = [threading.Thread(target=work) for work in (run, compile)]
    for worker in workers: worker.start()
    outcomes = [in_a_child(same) for _ in range(8)]
    stop.set()
    for worker in workers: worker.join()
    print(outcomes)
    """
    assert script(PLAN + IN_A_CHILD + text, TOPOS_THREADS="3", TOPOS_CACHE="") == f"{[0] * 8}\n"


# Signals and exceptions ----------------------------------------------------------------------------------------------
LONG = """
    def long(steps=40):
        # Many different kernels: seconds of compilation.
        tape = Tape()
        x = tape.input(shape=[64], name="x")
        ends = []
        for at in range(steps):
            y = x
            for _ in range(8):
                y = (y * (1 + at / 64)).tanh() + y.exp().sin()
            ends.append(y.sum())
        roots = detach(ends)
        return tape.into_network().entry(roots)
"""


def ended(
    process: subprocess.Popen[str], after: str, number: int, ready: Callable[[], bool] = lambda: True
) -> tuple[int, str, str, float]:
    """Sends a signal once the process has printed a line and all is ready; how it ended."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == after + "\n", (line, process.communicate(timeout=60))
    time.sleep(0.1)
    for _ in range(1000):
        if ready():
            break
        time.sleep(0.02)
    os.kill(process.pid, number)
    began = time.perf_counter()
    out, told = process.communicate(timeout=60)
    return process.returncode, out, told, time.perf_counter() - began


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_killed_during_a_compilation(begin: Begin, script: Script, own_cache: Path, number: int) -> None:
    """It ends soon and with the status of the signal; what it had put into the cache is whole, and the rest follows."""
    text = (
        PLAN + LONG + "    plan = long().lower()\n    print('compiling')\n    plan.prepare()\n    print('compiled')\n"
    )
    some = lambda: own_cache.exists() and len(list(own_cache.iterdir())) >= 2  # noqa: E731
    status, out, told, took_s = ended(begin(text), "compiling", number, some)
    assert status == -number
    assert out == ""
    assert ("KeyboardInterrupt" in told) == (number == signal.SIGINT)
    assert took_s < 30  # the kernel that LLVM is at is finished
    left = [path.stem for path in own_cache.iterdir() if path.suffix != ".unfinished"]
    assert left
    assert all(Cache(own_cache).get(key) for key in left)
    all_of_it = sum(map(int, script(RUN).split()))  # some of it may be there already
    assert script(RUN) == f"0 {all_of_it}\n"


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_during_a_compilation_and_on(script: Script) -> None:
    """The interrupt is raised at once in the caller; the same plan is then compiled and right."""
    text = """
    entry = long(12)
    plan = entry.lower()
    call()
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    began = time.perf_counter()
    try:
        plan.prepare()
        print("not interrupted")
    except KeyboardInterrupt:
        print("interrupted", time.perf_counter() - began < 5)
    plan.prepare()
    print(plan.explain().splitlines()[-1].split(":")[0], call() == oracle())
    """
    assert script(PLAN + LONG + text, TOPOS_CACHE="") == "interrupted True\nnative True\n"


RUNNING = """
    network, entry, roots, feeds = recorded(3000)
    plan, parameters = entry.lower().prepare(), network.parameters()
    plan.forward(parameters, feeds)
    print("running")
    while True:
        plan.forward(parameters, feeds)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_killed_during_a_run(begin: Begin, number: int) -> None:
    status, out, told, took_s = ended(begin(PLAN + RUNNING, TOPOS_THREADS="4"), "running", number)
    assert (status, out) == (-number, "")
    assert ("KeyboardInterrupt" in told) == (number == signal.SIGINT)
    assert took_s < 5


def test_an_exception_in_another_thread(script: Script) -> None:
    """One thread fails beside a plan that runs, and in a call of the plan itself: the others have their answers."""
    text = """
    network, entry, roots, feeds = recorded(700)
    plan, parameters = entry.lower(), network.parameters()
    expected = digest(entry.interpret(parameters, feeds).of(roots))
    answers, failures = [], []
    threading.excepthook = lambda told: failures.append(type(told.exc_value).__name__)
    def fine():
        for _ in range(40):
            answers.append(digest(plan.forward(parameters, feeds).of(roots)))
    def fails():
        for _ in range(20):
            plan.forward(parameters, feeds)
        plan.forward(parameters, {"x": np.zeros((2, 2))})
    def raises():
        time.sleep(0.002)
        raise OSError("elsewhere")
    threads = [threading.Thread(target=work) for work in (fine, fails, raises, fine)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(set(answers) == {expected}, len(answers), sorted(failures))
    """
    assert script(PLAN + text, TOPOS_THREADS="3") == "True 80 ['FeedError', 'OSError']\n"


def test_interrupts_at_any_moment_of_a_run(script: Script) -> None:
    """Ctrl-C now and then, whatever the call is at: the next one is right, and nothing is left locked."""
    text = """
    network, entry, roots, feeds = recorded(900)
    plan, parameters = entry.lower(), network.parameters()
    expected = digest(entry.interpret(parameters, feeds).of(roots))
    plan.forward(parameters, feeds)
    met = 0
    for delay_s in np.linspace(0, 0.004, 60):
        timer = threading.Timer(delay_s, lambda: os.kill(os.getpid(), signal.SIGINT))
        try:
            timer.start()
            for _ in range(4):
                plan.forward(parameters, feeds)
            timer.join()
            time.sleep(0.01)
        except KeyboardInterrupt:
            met += 1
        timer.join()
        assert digest(plan.forward(parameters, feeds).of(roots)) == expected
    print(met)
    """
    assert script(PLAN + text, TOPOS_THREADS="3") == "60\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_during_many_steps(script: Script) -> None:
    """Raised soon, and between two steps: what moves together was moved as often, and the State goes on."""
    text = """
    tape = Tape()
    a, b = tape.parameter(np.zeros(300)), tape.parameter(np.zeros(300))
    carry = {a.symbol(): (a + 1).symbol(), b.symbol(): (b + 1).symbol()}
    first, second, total = detach(a, b, (a - b).sum())
    network = tape.into_network()
    plan, state = network.entry(total).carry(carry).lower().prepare(), network.state()
    plan.advance(state, steps=3)
    timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    began = time.perf_counter()
    try:
        plan.advance(state, steps=3 * 10**7)
        print("not interrupted")
    except KeyboardInterrupt:
        print(time.perf_counter() - began < 5)
    x, y = state.of(first).numpy(), state.of(second).numpy()
    print((x == x[0]).all(), (x == y).all(), x[0] == int(x[0]) >= 3)
    plan.advance(state)
    print((state.of(first).numpy() == x + 1).all())
    """
    assert script(PLAN + text) == "True\nTrue True True\nTrue\n"


# Threads -------------------------------------------------------------------------------------------------------------
def test_two_threads_fill_the_cache_of_one_process(script: Script) -> None:
    text = """
    answers = []
    threads = [threading.Thread(target=lambda rows=rows: answers.append(call(rows=rows) == oracle(rows)))
               for rows in (5, 6, 7, 5, 6, 7)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(answers)
    """
    assert script(PLAN + text) == f"{[True] * 6}\n"
    assert threading.active_count() >= 1
