import ctypes
import gc
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("llvmlite")

from topos.backend.native import compiler, counts, emission, llvm, objects, target
from topos.backend.native.compiler import compiled
from topos.backend.native.emission import CompilationError

from .texts import adding


def called(library, name, x):
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.addresses[name])(x)


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_a_text_becomes_a_function():
    library = compiled(adding(41))
    assert list(library.addresses) == ["f"]
    assert called(library, "f", 1) == 42
    assert library.target == target.current()
    assert repr(library) == "Library(f)"


def test_texts_call_each_other():
    caller = "declare i64 @one(i64)\ndefine i64 @two(i64 %x) {\n  %y = call i64 @one(i64 %x)\n  ret i64 %y\n}\n"
    assert called(compiled([caller, adding(7, "one")]), "two", 3) == 10


def test_internal_functions_of_two_texts_are_their_own():
    def text(number, name):
        inner = adding(number, "inner").replace("define", "define internal").replace("{", "noinline {", 1)
        return inner + f"define i64 @{name}(i64 %x) {{\n  %y = call i64 @inner(i64 %x)\n  ret i64 %y\n}}\n"

    library = compiled([text(1, "f"), text(2, "g")])
    assert list(library.addresses) == ["f", "g"]
    assert (called(library, "f", 0), called(library, "g", 0)) == (1, 2)


def test_equal_texts_compile_once_and_answer_the_same_library():
    before = counts.compiles()
    library = compiled([adding(1), adding(1)])
    assert compiled(adding(1)) is library
    del library
    gc.collect()
    compiled(adding(1))
    assert counts.compiles().since(before).by_reason == {counts.COLD: 1}


@pytest.mark.parametrize("processors", [1, 2, 5])
@pytest.mark.parametrize("is_known", [True, False])
def test_texts_become_the_same_objects_on_any_number_of_threads(monkeypatch, processors, is_known):
    monkeypatch.setattr(emission, "allowed", lambda: processors)
    if not is_known:
        monkeypatch.setattr(emission, "_emit", lambda: None)
    monkeypatch.setattr(emission, "_SLICE_S", 0.004)
    monkeypatch.setattr(emission, "_MOST_MODULE_BYTES", 0)
    wanted = [emission.Wanted(adding(at, f"f{at}"), f"key {at}", f"f{at}") for at in range(40)]
    every, objects, steps = emission.Emission(wanted, target.current()), {}, 0
    while every.left:
        objects.update(llvm.ask(every.step))
        steps += 1
    assert steps > 1
    alone = {one.key: llvm.ask(lambda one=one: emission.emitted([one], target.current(), 0)) for one in wanted}
    assert objects == alone


@pytest.mark.parametrize("processors", [1, 2])
def test_small_texts_share_objects(monkeypatch, processors):
    """What they declare stands once; a text with functions of its own, or one that calls another, is by itself."""
    table = "@table = internal unnamed_addr constant [2 x double] [double 1.5, double -2.5]\n"
    shared = "declare double @llvm.fabs.f64(double)\n" + table
    body = "  %at = getelementptr double, ptr @table, i64 {at}\n  %y = load double, ptr %at\n"
    body += "  %z = call double @llvm.fabs.f64(double %y)\n  %n = fptosi double %z to i64\n"
    tail = "  %sum = add i64 %x, %n\n  ret i64 %sum\n}}\n"
    small = [
        (shared + "define i64 @{name}(i64 %x) {{\n" + body + tail).format(name=f"f{at}", at=at % 2) for at in range(9)
    ]
    internal = adding(5, "inner").replace("define", "define internal")
    alone = [internal + adding(5, "g"), adding(6, "h"), "declare i64 @h(i64)\n" + adding(7, "k")]
    monkeypatch.setattr(emission, "allowed", lambda: processors)
    wanted = [emission.Wanted(text, f"key {text}", "some") for text in [*small, *alone]]
    every, objects = emission.Emission(wanted, target.current()), {}
    while every.left:
        objects.update(llvm.ask(every.step))
    of_small = {objects[f"key {text}"] for text in small}
    assert 1 <= len(of_small) <= processors + 1
    assert of_small.isdisjoint({objects[f"key {alone[0]}"], objects[f"key {alone[2]}"]})
    library = compiled([*small, *alone])
    assert [called(library, f"f{at}", 10) for at in range(9)] == [11, 12] * 4 + [11]
    assert [called(library, name, 10) for name in "ghk"] == [15, 16, 17]
    few = compiled([small[3], adding(8, "another")])
    assert (called(few, "f3", 0), called(few, "another", 0)) == (2, 8)


@pytest.mark.parametrize(("inner", "is_shared"), [("g_inner", True), ("inner", False), ("gather_inner", False)])
def test_functions_named_after_the_first_leave_a_text_its_share_of_a_module(inner, is_shared):
    internal = adding(5, inner).replace("define", "define internal")
    wanted = [emission.Wanted(text, text, "some") for text in (adding(5, "g") + internal, adding(6, "h"))]
    assert (wanted[0].declared() == []) is is_shared
    if is_shared:
        both = emission.joined(wanted)
        assert both.count("define ") == 3
        assert called(compiled(both), "h", 1) == 7


def test_texts_are_compiled_while_others_are_written(monkeypatch):
    """What is kept is not begun, what is begun is not made again, and nothing that was wanted is missing."""
    monkeypatch.setattr(emission, "_MODULE_BYTES", 2)
    known, texts = adding(20, "known"), [adding(at, f"ahead{at}") for at in range(6)]
    compiled(known)
    before, ahead = counts.compiles(), objects.Ahead(target.current())
    for text in [known, *texts[:3], texts[0]]:
        ahead.want(text)
    deadline = time.monotonic() + 30
    while not counts.compiles().since(before).compiled and time.monotonic() < deadline:
        time.sleep(0.001)
    assert counts.compiles().since(before).compiled
    for text in texts[3:5]:
        ahead.want(text)
    library = compiled([known, *texts], ahead=ahead)
    assert counts.compiles().since(before).by_reason == {counts.COLD: 6}
    assert [called(library, f"ahead{at}", 1) for at in range(6)] == [1, 2, 3, 4, 5, 6]


def test_while_more_comes_a_little_text_waits_for_others():
    every = emission.Emission((), target.current(), closed=False)
    every.add(emission.Wanted(adding(1, "little"), "key", "little"))
    assert llvm.ask(every.step) == {}
    every.close()
    assert list(llvm.ask(every.step)) == ["key"]


def test_a_text_that_is_refused_ahead_is_told_of_in_the_end():
    ahead = objects.Ahead(target.current())
    ahead.want("this is no text")
    ahead.want(adding(1, "behind_it"))
    with pytest.raises(CompilationError, match="LLVM refuses a text without functions"):
        compiled([adding(1, "behind_it")], ahead=ahead)
    assert called(compiled(adding(1, "behind_it")), "behind_it", 1) == 2


def test_a_processor_is_left_to_whoever_writes_until_all_is_written(monkeypatch):
    monkeypatch.setattr(emission, "allowed", lambda: 2)
    monkeypatch.setattr(emission, "_MODULE_BYTES", 2)
    monkeypatch.setattr(emission, "_MOST_MODULE_BYTES", 0)
    monkeypatch.setattr(emission, "_SLICE_S", 60.0)
    going_on, seats, both = threading.Event(), [], threading.Barrier(2)

    def emitted(texts, target, seat):
        seats.append(seat)
        if len(seats) > 2:
            both.wait(30)  # one thread alone would never get further
        elif len(seats) == 2:
            going_on.set()
            closed.wait(30)
        return b"an object"

    monkeypatch.setattr(emission, "emitted", emitted)
    closed = threading.Event()
    every = emission.Emission((), target.current(), closed=False)
    for at in range(4):
        every.add(emission.Wanted(adding(at, f"f{at}"), f"key {at}", f"f{at}"))
    step = llvm.begun(every.step)
    assert going_on.wait(30)
    assert seats == [0, 0]
    every.close()
    closed.set()
    assert len(step.result(30)) == 4
    assert sorted(seats) == [0, 0, 0, 1]


def test_objects_that_define_the_same_function_are_loaded_together():
    """As two processes may leave them in one cache, where each made one text together with another one."""
    texts = [adding(at, f"shared{at}") for at in range(3)]
    wanted = [emission.Wanted(text, objects._key(text, target.current()), "some") for text in texts]
    both = [
        llvm.ask(lambda other=other: emission.emitted([wanted[0], other], target.current(), 0)) for other in wanted[1:]
    ]
    assert both[0] != both[1]
    for one, content in zip(wanted, (both[0], *both), strict=True):
        assert llvm.ask(lambda one=one, content=content: objects._remember(one.key, content))
    library = compiled(texts)
    assert [called(library, f"shared{at}", 10) for at in range(3)] == [10, 11, 12]


def test_one_text_that_is_refused_refuses_all():
    refused = "LLVM refuses a text without functions: LLVM IR parsing error"
    with pytest.raises(CompilationError, match=refused):
        compiled([*(adding(at, f"f{at}") for at in range(10)), "this is no text"])
    assert called(compiled([adding(at, f"f{at}") for at in range(10)]), "f3", 1) == 4


def test_another_target_is_another_object():
    before = counts.compiles()
    libraries = [compiled(adding(2)), compiled(adding(2), target.named(target.host().cpu))]
    assert libraries[0] is libraries[1]
    baseline = target.Target("", target.host().features, 16, False)
    assert called(compiled(adding(2), baseline), "f", 1) == 3
    assert counts.compiles().since(before).compiled == 2


def test_a_library_call_of_the_code_generator_is_found():
    text = """
    declare float @llvm.fma.f32(float, float, float)
    define float @f(float %x) {
      %y = call float @llvm.fma.f32(float %x, float %x, float 1.0)
      ret float %y
    }
    """.replace("\n    ", "\n")
    narrow = target.named("x86-64") if "64" in target.host().features else target.host()
    function = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(compiled(text, narrow).addresses["f"])
    assert function(2.0) == 5.0


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["define i64 @f(i64 %x) {\n  ret i64 %y\n}\n"], r"^LLVM refuses f: LLVM IR parsing error"),
        (["declare void @nowhere()\n"], r"^nothing defines nowhere$"),
        ([adding(1), adding(2)], r"^two texts define f$"),
    ],
)
def test_what_does_not_compile(texts, message):
    with pytest.raises(CompilationError, match=message):
        compiled(texts)
    assert called(compiled(adding(5)), "f", 0) == 5


def test_a_function_of_libc_is_found_by_the_first_text_of_a_process(script):
    text = """
        import ctypes
        from topos.backend.native.compiler import compiled
        text = "declare i64 @labs(i64)\\ndefine i64 @f(i64 %x) {\\n  %y = call i64 @labs(i64 %x)\\n  ret i64 %y\\n}\\n"
        library = compiled(text)
        print(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.addresses["f"])(-3))
    """
    assert script(text) == "3\n"


def test_refusals_that_are_kept_hold_nothing_of_llvm(script):
    """Collected late, on another thread and in any order, the frames of an exception free nothing of LLVM's."""
    text = """
        import gc
        from topos.backend.native.compiler import compiled
        from topos.backend.native.emission import CompilationError
        unfit = "define void @f(i64 %x) {\\na:\\n  br label %b\\nb:\\n  %z = phi i64 [0, %b]\\n  ret void\\n}\\n"
        alone = "declare void @nowhere()\\ndefine void @f() {\\n  call void @nowhere()\\n  ret void\\n}\\n"
        for text in [unfit, alone] * 20:
            try:
                compiled(text)
            except CompilationError as error:
                error.cycle = [error]
        gc.collect()
        print("done")
    """
    assert script(text, MALLOC_PERTURB_="165") == "done\n"


def test_assembly_can_be_read():
    assert "f:" in compiler.assembly(adding(1)).splitlines()


def test_eight_threads_ask_first_at_once():
    before, barrier, answers = counts.compiles(), threading.Barrier(8), []

    def work():
        barrier.wait()
        answers.append(compiled([adding(100 + i, f"f{i}") for i in range(20)]))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(library) for library in answers}) == 1
    assert called(answers[0], "f19", 1) == 120
    assert counts.compiles().since(before).compiled == 20


def test_eight_threads_use_llvm_first(script):
    """Each is the first of the process: import and preparation included."""
    text = """
        import threading
        from topos.backend.native.compiler import compiled
        text = "define i64 @f(i64 %x) {\\n  ret i64 %x\\n}\\n"
        barrier, answers = threading.Barrier(8), []
        def work():
            barrier.wait()
            answers.append(compiled(text))
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(len(answers), len(set(map(id, answers))))
    """
    assert script(text) == "8 1\n"


@pytest.mark.exhaustive
def test_memory_is_flat_over_compile_and_drop(monkeypatch):
    monkeypatch.setenv("TOPOS_CACHE", "")

    def drop(start, count):
        for number in range(start, start + count):
            assert called(compiled(adding(number)), "f", 1) == number + 1
        gc.collect()
        llvm.ask(lambda: None)
        return resident_bytes()

    drop(0, 200)
    start = drop(200, 200)
    # The objects themselves are remembered, at about a kilobyte each.
    assert drop(1000, 1000) - start < 3 << 20


def test_a_library_in_use_is_not_freed():
    library = compiled(adding(9))
    address = library.addresses["f"]
    for number in range(20):
        compiled(adding(number, "g"))
    gc.collect()
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(1) == 10


def test_without_llvmlite_the_reason_is_told(script):
    text = """
        import sys
        sys.modules["llvmlite"] = None
        from topos import BackendUnavailable
        from topos.backend.native import compiler, llvm, pool, target
        print(llvm.available())
        print(pool.threads() >= 1)
        try:
            compiler.compiled("")
        except BackendUnavailable as error:
            print("refused:", error)
    """
    assert script(text) == "llvmlite is not installed\nTrue\nrefused: native code: llvmlite is not installed\n"


def test_importing_loads_no_llvmlite(script):
    text = """
        import sys
        from topos.backend.native import compiler, pool, target
        print("llvmlite" in sys.modules)
    """
    assert script(text) == "False\n"


@pytest.mark.exhaustive
def test_ctrl_c_during_a_long_compilation(script):
    """The caller is interrupted at once; the unit under way is finished out of sight, and everything works on."""
    text = f"""
        import ctypes, os, signal, sys, threading, time
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from texts import adding, long
        from topos.backend.native.compiler import compiled
        from topos.backend.native import counts
        compiled(adding(1))
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        began = time.perf_counter()
        try:
            compiled([long("slow"), *(adding(i, f"f{{i}}") for i in range(50))])
        except KeyboardInterrupt:
            print("interrupted", time.perf_counter() - began < 0.5)
        library = compiled([long("slow"), adding(3, "g")])
        print(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.addresses["g"])(1), counts.compiles().compiled)
    """
    assert script(text) == "interrupted True\n4 3\n"


@pytest.mark.exhaustive
def test_exit_while_a_compilation_is_abandoned(script):
    text = f"""
        import sys, threading
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from texts import long
        from topos.backend.native.compiler import compiled
        threading.Thread(target=lambda: compiled(long()), daemon=True).start()
        compiled("define i64 @f(i64 %x) {{\\n  ret i64 %x\\n}}\\n")
        print("done")
    """
    assert script(text) == "done\n"


@pytest.mark.parametrize("first", ["topos", "numba", "torch"])
def test_beside_other_users_of_llvm(script, first):
    if first != "topos":
        pytest.importorskip(first)
    text = f"""
        if {first!r} == "numba":
            import numba
            assert numba.njit(lambda x: x + 1)(1) == 2
        elif {first!r} == "torch":
            import torch
        from topos.backend.native.compiler import compiled
        kept = compiled("define i64 @f(i64 %x) {{\\n  ret i64 %x\\n}}\\n")
        print(list(kept.addresses))
    """
    assert script(text) == "['f']\n"
