"""Several processes over one mesh, on the loopback interface; whoever fails is reported, and nobody is left waiting."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from topos.emission.xla.children import of_script

EXAMPLES = Path(__file__).parents[3] / "examples"
TOPOS = [sys.executable, "-m", "topos", "launch"]
TWICE_TWO = [*TOPOS, "--processes", "2", "--devices", "2"]

SUM = """
import os, sys, time
import numpy as np
from topos import Tape, f64
from topos.emission import xla

me = xla.processes()
network, (weights, after, loss) = Tape.record(
    lambda tape: [w := tape.parameter(np.arange(8.0), name="w"), w * 2.0, (w * tape.input(shape=[8], name="x")).sum()],
    f64,
)
plan = network.entry(loss).carry({weights: after}).lower()
executable = xla.compile(plan, mesh={"data": 4}, shardings={"w": ("data",), "x": ("data",)})
state = network.state()
"""
"""What each process runs over its half of the devices: the weights are cut over both."""


def python(folder: Path, text: str) -> str:
    file = folder / "script.py"
    file.write_text(text, encoding="utf-8")
    return str(file)


def run(*command: str, timeout_s: float = 100) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def alive(pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.append(pid)
    return found


def gone(pids: list[int], within_s: float = 10) -> bool:
    end = time.monotonic() + within_s
    while alive(pids) and time.monotonic() < end:
        time.sleep(0.05)
    return not alive(pids)


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("extra")]
posix = pytest.mark.skipif(not hasattr(os, "killpg") or not Path("/proc/self/stat").exists(), reason="reads /proc")


GLOO = "[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1"


@pytest.mark.parametrize(
    ("lines", "own"),
    [
        ([GLOO, "one", "", "two"], ["one", "", "two"]),
        ([GLOO + GLOO, "", "one", ""], ["one", ""]),
        ([GLOO, GLOO, "", "one"], ["", "one"]),
        ([GLOO + GLOO, "one", "", "two"], ["one", "", "two"]),
        (["", "one"], ["", "one"]),
    ],
)
def test_what_gloo_says_is_left_out(lines: list[str], own: list[str]) -> None:
    assert [*of_script(f"{line}\n" for line in lines)] == [f"{line}\n" for line in own]


def test_two_processes_of_two_devices_gather_their_results(tmp_path: Path) -> None:
    """And each has the whole State afterwards."""
    text = """
run = executable.advance(state, {"x": np.ones(8)}, steps=3)
print(me, run.of(loss).tolist(), state.of(weights).tolist(), sys.argv[1:], __name__)
"""
    done = run(*TWICE_TWO, python(tmp_path, SUM + text), "one", "--two")
    assert done.returncode == 0, done.stderr
    whole = f"[28.0, 56.0, 112.0] {[8.0 * at for at in range(8)]} ['one', '--two'] __main__"
    assert sorted(done.stdout.splitlines()) == [f"[{at}] Processes(rank={at}, total=2) {whole}" for at in (0, 1)]


def test_the_model_of_names_learns_alike_in_two_processes(tmp_path: Path) -> None:
    text = f"""
import sys
sys.path.insert(0, {str(EXAMPLES / "makemore")!r})
import devices
layouts = ["data parallel", "data and tensor"]
found = devices.main(steps=10, together=5, hidden=32, limit=500, layouts=layouts)
print({{name: trained.distance <= 2e-6 for name, trained in found.items()}})
"""
    alike = "{'data parallel': True, 'data and tensor': True}"
    file = python(tmp_path, text)
    alone, together = run(sys.executable, file), run(*TWICE_TWO, file)
    assert alone.returncode == together.returncode == 0, alone.stderr + together.stderr
    assert alone.stdout.splitlines()[-1] == alike
    assert {f"[0] {alike}", f"[1] {alike}"} <= set(together.stdout.splitlines())
    losses = [line.split("loss")[1].split("  ")[0] for line in alone.stdout.splitlines() if "loss" in line]
    assert len(losses) == 3 and len(set(losses)) == 1
    assert together.stdout.count(losses[0]) == 3


def test_it_listens_on_the_loopback_interface_alone(tmp_path: Path) -> None:
    text = """
executable.advance(state, {"x": np.ones(8)})
inodes = set()
for entry in os.listdir("/proc/self/fd"):
    try:
        inodes.add(os.readlink(f"/proc/self/fd/{entry}"))
    except OSError:
        pass
for table in ("tcp", "tcp6"):
    for line in open(f"/proc/net/{table}").readlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
            print("listens", fields[1].split(":")[0])
"""
    if not Path("/proc/net/tcp").exists():
        pytest.skip("reads /proc")
    done = run(*TWICE_TWO, python(tmp_path, SUM + text))
    assert done.returncode == 0, done.stderr
    found = {line.split()[-1] for line in done.stdout.splitlines() if "listens" in line}
    assert found <= {"0100007F", "0000000000000000FFFF00000100007F"} and found


def test_an_error_in_one_is_reported_and_stops_the_others(tmp_path: Path) -> None:
    text = """
if me.rank == 1:
    raise ValueError("no more names")
executable.advance(state, {"x": np.ones(8)})
"""
    start = time.monotonic()
    done = run(*TWICE_TWO, python(tmp_path, SUM + text))
    assert done.returncode == 1 and time.monotonic() - start < 60
    lines = done.stderr.splitlines()
    report = lines.index("launch: process 1 of 2 ended with exit status 1; it last printed")
    assert lines[report + 1] == "  Traceback (most recent call last):"
    assert lines[-2:] == ["  ValueError: no more names", "launch: stopped process 0"]


@posix
def test_one_that_is_killed_is_reported_and_stops_the_others(tmp_path: Path) -> None:
    text = """
executable.advance(state, {"x": np.ones(8)})
print(os.getpid(), flush=True)
if me.rank == 1:
    os.kill(os.getpid(), 9)
executable.advance(state, {"x": np.ones(8)}, steps=10)
time.sleep(1000)
"""
    done = run(*TWICE_TWO, python(tmp_path, SUM + text))
    assert done.returncode == 1
    assert "launch: process 1 of 2 was killed by signal 9 (SIGKILL); it last printed" in done.stderr.splitlines()
    assert gone([int(line.split()[1]) for line in done.stdout.splitlines()])


WAITING = """
print(os.getpid(), flush=True)
if me.rank == 1:
    time.sleep(1000)
executable.advance(state, {"x": np.ones(8)})
"""


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A launcher whose process 0 waits in XLA for process 1, and the ids of both."""
    command = [*TWICE_TWO, python(tmp_path, SUM + WAITING)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    launcher = subprocess.Popen(command, start_new_session=True, **pipes)
    pids = [int(launcher.stdout.readline().split()[1]) for _ in range(2)]
    time.sleep(1)
    yield launcher, pids
    launcher.kill()
    launcher.communicate()


@posix
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_stops_everyone(
    waiting: tuple[subprocess.Popen[str], list[int]], number: int, status: int
) -> None:
    launcher, pids = waiting
    launcher.send_signal(number)
    assert launcher.wait(timeout=20) == status
    assert gone(pids)


@posix
def test_a_launcher_that_is_killed_leaves_nobody_behind(waiting: tuple[subprocess.Popen[str], list[int]]) -> None:
    launcher, pids = waiting
    launcher.kill()
    assert gone(pids)


@posix
def test_time_may_be_limited(tmp_path: Path) -> None:
    done = run(*TOPOS, "--timeout", "1", python(tmp_path, "import time; time.sleep(1000)"))
    assert (done.returncode, done.stderr) == (124, "launch: out of time; stopped process 0\n")


def test_a_script_ends_a_single_process_as_it_likes(tmp_path: Path) -> None:
    done = run(
        *TOPOS, "--devices", "3", python(tmp_path, SUM.split("me =")[0] + "print(xla.processes(), len(sys.argv))")
    )
    assert (done.returncode, done.stdout) == (0, "Processes(rank=0, total=1) 1\n")
    done = run(*TOPOS, python(tmp_path, "raise SystemExit(3)"))
    assert (done.returncode, done.stderr) == (1, "launch: process 0 of 1 ended with exit status 3\n")
    done = run(*TOPOS, python(tmp_path, "raise SystemExit('nothing to do')"))
    assert done.stderr.splitlines()[-2:] == [
        "launch: process 0 of 1 ended with exit status 1; it last printed",
        "  nothing to do",
    ]


@pytest.fixture
def apart() -> Iterator[Callable[..., list[subprocess.Popen[str]]]]:
    """Starts two launchers of a process each, as two hosts would run them; neither outlives the test."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    common = [*TOPOS, "--processes", "2", "--here", "1", "--devices", "2", "--address", "127.0.0.1"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    begun: list[subprocess.Popen[str]] = []

    def apart(file: str, *options: str) -> list[subprocess.Popen[str]]:
        meeting = [*options, "--coordinator", f"127.0.0.1:{port}"]
        begun.extend(subprocess.Popen([*common, *meeting, "--first", str(rank), file], **pipes) for rank in (0, 1))
        return begun

    yield apart
    for launcher in begun:
        launcher.kill()
        launcher.communicate()


def test_two_launchers_meet(apart: Callable[..., list[subprocess.Popen[str]]], tmp_path: Path) -> None:
    text = """
print(executable.advance(state, {"x": np.ones(8)}, steps=2).of(loss).tolist())
"""
    launchers = apart(python(tmp_path, SUM + text))
    found = [launcher.communicate(timeout=100) for launcher in launchers]
    assert [launcher.returncode for launcher in launchers] == [0, 0], found
    assert [out for out, _ in found] == ["[0] [28.0, 56.0]\n", "[1] [28.0, 56.0]\n"]


@posix
def test_a_launcher_hears_of_a_failure_elsewhere(
    apart: Callable[..., list[subprocess.Popen[str]]], tmp_path: Path
) -> None:
    text = """
if me.rank == 1:
    os.kill(os.getpid(), 9)
time.sleep(1000)
"""
    first, second = apart(python(tmp_path, SUM + text), "--wait", "10")
    assert "was killed by signal 9 (SIGKILL)" in second.communicate(timeout=100)[1]
    assert "launch: process 0 of 2" in first.communicate(timeout=100)[1]
    assert [first.returncode, second.returncode] == [1, 1]


def test_one_that_ends_early_is_not_waited_for_forever(tmp_path: Path) -> None:
    text = """
if me.rank == 0:
    executable.advance(state, {"x": np.ones(8)})
"""
    start = time.monotonic()
    done = run(*TWICE_TWO, "--wait", "10", python(tmp_path, SUM + text))
    assert done.returncode == 1 and time.monotonic() - start < 60
    assert "launch: process 0 of 2" in done.stderr or "launch: process 1 of 2" in done.stderr
