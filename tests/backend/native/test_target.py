import pytest

pytest.importorskip("llvmlite")

from topos.backend.native import target
from topos.backend.native.flags import architecture
from topos.errors import SettingError

x86 = pytest.mark.skipif(architecture() != "x86", reason="levels of x86-64")


def test_the_host_has_vectors():
    host = target.host()
    assert host.cpu
    assert host.vector_bytes in (16, 32, 64)
    assert host.lanes(4) == host.vector_bytes // 4
    assert target.host() is host


@pytest.mark.parametrize(
    ("vector_bytes", "has_fma", "registers"), [(16, False, 16), (32, True, 16), (64, True, 32), (16, True, 32)]
)
def test_registers(vector_bytes, has_fma, registers):
    assert target.Target("some", "", vector_bytes, has_fma).registers == registers


@x86
def test_the_host_says_what_the_feature_list_says():
    _, has = target._host_facts()
    host = target.host()
    assert host.has_fma == (has["fma"] or has["avx512f"])
    assert host.vector_bytes == (64 if has["avx512f"] else 32 if has["avx"] else 16)


@x86
@pytest.mark.parametrize(
    ("cpu", "vector_bytes", "has_fma"),
    [("x86-64", 16, False), ("x86-64-v3", 32, True), ("x86-64-v4", 64, True),
     ("haswell", 32, True), ("sandybridge", 32, False), ("bdver2", 32, True)],
)  # fmt: skip
def test_a_narrower_processor(cpu, vector_bytes, has_fma):
    host = target.host()
    if vector_bytes > host.vector_bytes or has_fma > host.has_fma:
        pytest.skip("wider than this machine")
    named = target.named(cpu)
    assert named[:1] + named[2:] == (cpu, vector_bytes, has_fma)


@x86
def test_what_the_host_lacks_is_refused_or_left_out(monkeypatch):
    cpu, has = target._host_facts()
    narrow = {feature: present and not feature.startswith("avx512") for feature, present in has.items()}
    monkeypatch.setattr(target, "_host_facts", lambda: ("narrow", narrow))
    with pytest.raises(SettingError, match=r"^target: this machine \(narrow\) has no avx512bw, .*, which x86-64-v4"):
        target.named.__wrapped__("x86-64-v4")
    wide = target.named.__wrapped__("sapphirerapids")
    assert wide.vector_bytes == 32
    assert "-avx512f" in wide.features.split(",")


@x86
def test_the_environment_forces_one(monkeypatch):
    monkeypatch.setenv("TOPOS_CPU", "x86-64")
    assert target.current() == target.named("x86-64")
    monkeypatch.setenv("TOPOS_CPU", "")
    assert target.current() is target.host()


@x86
@pytest.mark.parametrize("cpu", ["nonsense", "native", "help", "cortex-a72", "i386"])
def test_a_processor_that_llvm_does_not_know_is_refused(monkeypatch, cpu):
    """LLVM itself would end the process over it."""
    monkeypatch.setenv("TOPOS_CPU", cpu)
    with pytest.raises(SettingError) as refusal:
        target.current()
    assert str(refusal.value) == f"target: LLVM knows no 64-bit x86 processor called {cpu!r}"


@x86
@pytest.mark.parametrize("cpu", ["generic", "pentium4", "k8", "core2", "znver5"])
def test_a_processor_that_llvm_knows_is_taken(cpu):
    assert target.named(cpu).cpu == cpu
