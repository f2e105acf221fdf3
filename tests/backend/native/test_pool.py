import os
import threading
import time

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from topos.backend.native import flags, pool_text, processors
from topos.backend.native.compiler import compiled, function
from topos.backend.native.pool import Pool, pool, threads
from topos.errors import SettingError
from topos.tensor.memory import address_of, aligned

from .tables import Table
from .texts import REPEATING, TILE

TEXTS = [TILE, REPEATING]

# Nested: each tile runs 4 more through the function of its arguments' first word.
NESTED = """
define void @nested(ptr %table, i64 %tile, i64 %worker) {
  %run = load ptr, ptr %table
  %at1 = getelementptr ptr, ptr %table, i64 1
  %function = load ptr, ptr %at1
  %at2 = getelementptr ptr, ptr %table, i64 2
  %arguments = load ptr, ptr %at2
  call void %run(ptr %function, ptr %arguments, i64 4)
  ret void
}
"""


def repeat(made, words, tiles, times):
    """Runs the tile function `times` times over the tiles, from native code."""
    library = compiled(TEXTS)
    table = Table(5)
    table[0], table[1], table[3], table[4] = made.address(), library.addresses["tile"], tiles, times
    table.hold(2, words)
    made.ready()
    function(library, "repeat")(table.address)


@pytest.fixture(params=["futex", "condition", "polling"])
def made(request):
    if request.param == "futex" and pool_text.waiting() != "futex":
        pytest.skip("Linux only")
    made = Pool(request.param)
    yield made
    made.close()


@pytest.mark.parametrize("count", range(1, 9))
def test_every_tile_runs_once_on_any_number_of_threads(made, count):
    """More threads than processors among them."""
    assert made.threads(count) == count
    words, library = aligned(97, np.int64), compiled(TEXTS)
    words[:] = 0
    repeat(made, words, 97, 100)
    for _ in range(100):
        made.run(library.addresses["tile"], address_of(words), 97)
    assert (words == 200).all()


# Of the words behind the tiles each worker has one, which nobody else may have at the same time.
NUMBERED = """
declare void @usleep(i32)
define void @numbered(ptr %words, i64 %tile, i64 %worker) {
entry:
  %at = add i64 %worker, TILES
  %mine = getelementptr i64, ptr %words, i64 %at
  %before = atomicrmw xchg ptr %mine, i64 1 seq_cst
  %free = icmp eq i64 %before, 0
  br i1 %free, label %work, label %end
work:
  call void @usleep(i32 50)
  %number = add i64 %worker, 1
  %word = getelementptr i64, ptr %words, i64 %tile
  store i64 %number, ptr %word
  store atomic i64 0, ptr %mine seq_cst, align 8
  br label %end
end:
  ret void
}
"""


@pytest.mark.parametrize("tiles", [2, 5, 40])
def test_workers_at_the_same_time_have_different_numbers(made, tiles):
    made.threads(8)
    library = compiled(NUMBERED.replace("TILES", str(tiles)))
    for _ in range(20):
        words = np.zeros(2 * tiles, np.int64)
        made.run(library.addresses["numbered"], address_of(words), tiles)
        numbers = words[:tiles]
        assert (numbers >= 1).all()
        assert numbers.max() <= tiles
        assert not words[tiles:].any()


def test_the_dispatcher_takes_the_first_tiles_and_the_others_the_last(made):
    made.threads(2)
    library = compiled(NUMBERED.replace("TILES", "40"))
    words = np.zeros(80, np.int64)
    made.run(library.addresses["numbered"], address_of(words), 40)
    assert np.count_nonzero(np.diff(words[:40])) <= 1


def test_threads_that_fell_asleep_are_woken(made):
    made.threads(3)
    words = np.zeros(50, np.int64)
    for times in range(1, 6):
        repeat(made, words, 50, 1)
        time.sleep(0.01)
        assert (words == times).all()


def test_the_count_changes_under_way(made):
    words = np.zeros(64, np.int64)
    for count in [1, 3, 2, 5, 1, 4] * 3:
        made.threads(count)
        repeat(made, words, 64, 10)
    assert (words == 180).all()


def test_other_threads_of_python_at_once(made):
    made.threads(3)
    every = [np.zeros(40, np.int64) for _ in range(4)]
    workers = [threading.Thread(target=repeat, args=(made, words, 40, 5000)) for words in every]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all((words == 5000).all() for words in every)


def test_a_tile_may_dispatch(made):
    made.threads(4)
    library, words = compiled([TILE, NESTED]), np.zeros(4, np.int64)
    table = Table(3)
    table[0], table[1] = made.address(), library.addresses["tile"]
    table.hold(2, words)
    for _ in range(200):
        made.run(library.addresses["nested"], table.address, 10)
    assert (words == 2000).all()


@pytest.mark.parametrize("tiles", [0, 1, -3])
def test_few_tiles(made, tiles):
    words = np.zeros(2, np.int64)
    repeat(made, words, tiles, 1)
    assert words.tolist() == [max(tiles, 0), 0]


@pytest.mark.exhaustive
def test_both_threads_take_part(made):
    """Tiles of a millisecond: with two processors to run on, two threads share them."""
    if processors.allowed() < 2:
        pytest.skip("one processor")
    text = """
    declare void @usleep(i32)
    define void @nap(ptr %arguments, i64 %tile, i64 %worker) {
      call void @usleep(i32 2000)
      ret void
    }
    """.replace("\n    ", "\n")
    made.threads(2)
    library = compiled(text)
    address = library.addresses["nap"]
    made.run(address, 0, 2)
    began = time.perf_counter()
    made.run(address, 0, 100)
    assert time.perf_counter() - began < 0.19


def test_after_close_jobs_still_run(made):
    made.threads(3)
    words = np.zeros(8, np.int64)
    repeat(made, words, 8, 1)
    workers = list(made._threads)
    assert len(workers) == 2
    made.close()
    assert not any(thread.is_alive() for thread in workers)
    repeat(made, words, 8, 1)
    assert (words == 2).all()


# Settings ------------------------------------------------------------------------------------------------------------
def test_threads_can_be_read_and_set():
    before = threads()
    assert before >= 1
    assert threads(3) == threads() == pool().threads() == 3
    assert threads(before) == before
    for wrong in [0, -1, 2.0, True, 10**6]:
        with pytest.raises(SettingError, match=r"^threads: wants a whole number from 1 to 1024, got "):
            threads(wrong)


def test_the_environment_sets_the_threads(script):
    assert script("from topos.backend.native.pool import threads; print(threads())", TOPOS_THREADS="5") == "5\n"
    text = """
        from topos.backend.native.pool import threads
        try: threads()
        except ValueError as error: print(error)
    """
    assert script(text, TOPOS_THREADS="many") == "TOPOS_THREADS: wants a whole number from 1 to 1024, got 'many'\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}, None),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "150000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "20000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "100000 100000\n"}, 1),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/g\n1:memory:/\n0::/\n",
                "sys/fs/cgroup/cpu,cpuacct/g/cpu.cfs_quota_us": "100000\n",
                "sys/fs/cgroup/cpu,cpuacct/g/cpu.cfs_period_us": "100000\n",
            },
            1,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
        ({"proc/self/cgroup": "nonsense\n"}, None),
    ],
)
def test_the_quota_of_the_control_group(tmp_path, monkeypatch, files, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert processors.allowed(tmp_path) == (6 if expected is None else expected)


# Processes and signals -----------------------------------------------------------------------------------------------
START = """
    import os, sys, time, threading, warnings
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    import numpy as np
    from topos.backend.native.compiler import compiled
    from topos.backend.native.pool import pool, threads
    from topos.tensor.memory import address_of
    threads(4)
    TILE = '''
    define void @tile(ptr %arguments, i64 %tile, i64 %worker) {
      %word = getelementptr i64, ptr %arguments, i64 %tile
      %before = atomicrmw add ptr %word, i64 1 monotonic
      ret void
    }
    '''.replace("\\n    ", "\\n")
    library, words = compiled(TILE), np.zeros(32, np.int64)
    def work(words=words, times=500):
        for _ in range(times):
            pool().run(library.addresses["tile"], address_of(words), 32)
    work()
"""

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

IN_A_CHILD = """
    def in_a_child(rebuilt):
        child = os.fork()
        if not child:
            mine = np.zeros(32, np.int64)
            if not rebuilt:
                pool().ready = lambda: None
                pool().running = True
            work(mine)
            fine = (mine == 500).all() and (len(pool()._threads) == (3 if rebuilt else 0))
            os._exit(0 if fine else 1)
        for _ in range(1000):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        os.kill(child, 9)
        return "hangs"
"""


@forks
def test_a_child_goes_on_alone_and_rebuilds(script):
    text = START + IN_A_CHILD + "    print(in_a_child(False), in_a_child(True)); work(); print((words == 1000).all())\n"
    assert script(text) == "0 0\nTrue\n"


@forks
def test_a_fork_in_the_middle_of_a_job_of_another_thread(script):
    text = (
        START
        + IN_A_CHILD
        + """
    other = threading.Thread(target=work, kwargs={"times": 30000})
    other.start()
    print([in_a_child(True) for _ in range(10)])
    other.join()
    print((words == 30500).all())
"""
    )
    assert script(text) == f"{[0] * 10}\nTrue\n"


@forks
def test_a_child_compiles(script):
    """Forked while another thread compiles: the child has an LLVM that nobody is in."""
    text = (
        START
        + """
    def text(n): return f"define i64 @g(i64 %x) {{\\n  %y = add i64 %x, {n}\\n  ret i64 %y\\n}}\\n"
    stop = []
    def compile_on():
        n = 0
        while not stop:
            n += 1
            compiled(text(n))
    other = threading.Thread(target=compile_on)
    other.start()
    for at in range(5):
        time.sleep(0.02)
        child = os.fork()
        if not child:
            compiled(text(10**6 + at))
            os._exit(0)
        for _ in range(1000):
            done, status = os.waitpid(child, os.WNOHANG)
            if done: break
            time.sleep(0.01)
        else:
            os.kill(child, 9)
        print(status, end=" ")
    stop.append(1)
    other.join()
"""
    )
    assert script(text, TOPOS_CACHE="") == "0 0 0 0 0 "


@pytest.mark.parametrize("moment", ["awake", "asleep", "in a job"])
def test_the_interpreter_ends_with_live_workers(script, moment):
    text = (
        START
        + {
            "awake": "    print('end')\n",
            "asleep": "    time.sleep(0.1)\n    print('end')\n",
            "in a job": "    threading.Thread(target=work, kwargs={'times': 10**9}, daemon=True).start()\n"
            "    time.sleep(0.05)\n    print('end')\n",
        }[moment]
    )
    began = time.perf_counter()
    assert script(text, timeout_s=20) == "end\n"
    assert time.perf_counter() - began < 10


def test_an_exception_and_exit_status_pass_through(script):
    with pytest.raises(AssertionError, match="KeyError: 'mine'"):
        script(START + "    raise KeyError('mine')\n")
    with pytest.raises(AssertionError, match="^3"):
        script(START + "    sys.exit(3)\n")


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_during_jobs(script):
    text = (
        START
        + """
    import signal
    for _ in range(5):
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            work(times=10**9)
        except KeyboardInterrupt:
            print("interrupted", end=" ")
        timer.join()
    assert len(set(words)) == 1, words
    work()
    print("on")
"""
    )
    assert script(text) == "interrupted " * 5 + "on\n"


# The floating-point mode ---------------------------------------------------------------------------------------------
HALVING = """
define void @halve(ptr %table) noinline {
  %x = load double, ptr %table
  %y = fmul double %x, 0.5
  store double %y, ptr %table
  ret void
}
define void @halve_tile(ptr %table, i64 %tile, i64 %worker) {
  %word = getelementptr double, ptr %table, i64 %tile
  call void @halve(ptr %word)
  ret void
}
"""
TAMPERING = """
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare void @llvm.x86.sse.stmxcsr(ptr)
define void @set(ptr %word) {
  call void @llvm.x86.sse.ldmxcsr(ptr %word)
  ret void
}
define void @get(ptr %word) {
  call void @llvm.x86.sse.stmxcsr(ptr %word)
  ret void
}
"""
FLUSHING = 0x9FC0  # flush-to-zero, denormals-are-zero, all exceptions masked


@pytest.mark.skipif(flags.architecture() != "x86", reason="MXCSR")
def test_flush_to_zero_of_the_caller_is_undone_and_restored(made):
    made.threads(3)
    library = compiled([HALVING + flags.guarded("guarded", "halve"), TAMPERING])
    tiny = 2.0**-1022
    numbers, mode = np.full(16, tiny), np.array([FLUSHING], np.uint32)
    bare, before = np.full(1, tiny), np.zeros(1, np.uint32)
    after = np.zeros(1, np.uint32)
    addresses = [address_of(array) for array in (numbers, mode, bare, before, after)]
    set_mode, get_mode, halve, guarded = (function(library, n) for n in ("set", "get", "halve", "guarded"))
    get_mode(addresses[3])
    # The workers are started in this mode, which a new thread inherits.
    set_mode(addresses[1])
    try:
        made.run(library.addresses["halve_tile"], addresses[0], 15)
        guarded(addresses[0] + 15 * 8)
        halve(addresses[2])
        get_mode(addresses[4])
    finally:
        set_mode(addresses[3])
    assert bare[0] == 0.0
    assert (numbers.view(np.int64) == np.int64(1) << 51).all()
    # But for the flags that `halve` raised.
    assert int(after[0]) & ~0x3F == FLUSHING & ~0x3F


@pytest.mark.parametrize("wait", ["futex", "condition", "polling"])
def test_the_text_is_code_on_aarch64(wait):
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    text = pool_text.pool_text("aarch64", wait) + flags.guarded("run", "pool_set_epoch_", "aarch64")
    text += "define void @pool_set_epoch_(ptr %t) {\n  ret void\n}\n"
    triple = "aarch64-unknown-linux-gnu"
    machine = llvm.Target.from_triple(triple).create_target_machine(opt=1)
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple = triple
    module.verify()
    assembly = machine.emit_assembly(module)
    assert "fpcr" in assembly.lower()
    assert "yield" in assembly or "hint" in assembly


# Calls ---------------------------------------------------------------------------------------------------------------
def test_a_function_keeps_its_library():
    repeating = function(compiled(REPEATING), "repeat")
    words = np.zeros(4, np.int64)
    table = Table(5)
    table[0], table[3], table[4] = pool().address(), 4, 6
    kept = compiled(TILE)
    table[1] = kept.addresses["tile"]
    table.hold(2, words)
    repeating(table.address)
    assert words.tolist() == [6] * 4
