"""What a backend says of itself."""

import pickle
from typing import Any

import pytest

import topos
from topos import Backend, BackendUnavailable, Coverage, Entry, Fidelity, Formula, Numerics, Status, f32, f64
from topos.backend.elsewhere import system_library

from .mine import Mine


def test_all_names_every_backend_once() -> None:
    assert [backend.name for backend in Backend.ALL] == [
        *("ACCELERATE", "METAL", "CUDA", "BLAS", "FUSED", "SIMD", "STABLEHLO")
    ]
    assert all(getattr(Backend, backend.name) is backend for backend in Backend.ALL)
    assert repr(Backend.ALL[-2:]) == "(Backend.SIMD, Backend.STABLEHLO)"
    assert repr(Mine()) == "Mine()"


def test_a_status_reads_as_a_line() -> None:
    assert str(Status(True, "always")) == "ready: always"
    assert str(Status(False, "platform: no such thing here")) == "platform: no such thing here"
    assert Mine().status() == Status(True, "always")


def test_what_has_no_kernels_here_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    assert Backend.METAL.status() == Status(False, "platform: Metal is Apple's, this is linux")
    monkeypatch.setattr("sys.platform", "darwin")
    assert Backend.METAL.status() == Status(False, "not installed: this version has no Metal kernels")
    for backend in (Backend.METAL, Backend.CUDA):
        assert not backend.status().ready
        assert all(backend.coverage(formula) is None for formula in Formula)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ("libcuda.so.1", "not installed: found a CUDA driver, but this version has no CUDA kernels"),
        (None, "not installed: found no CUDA driver; this version has no CUDA kernels either"),
    ],
)
def test_a_driver_alone_is_no_backend(found: str | None, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topos.backend.elsewhere.system_library", lambda name: found)
    assert Backend.CUDA.status() == Status(False, reason)
    assert system_library("no library of this name") is None


def test_native_code_may_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPOS_NATIVE", "0")
    assert Backend.FUSED.status() == Backend.SIMD.status() == Status(False, "switched off: TOPOS_NATIVE=0")


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("llvmlite is not installed", "not installed: llvmlite is not installed"),
        ("LLVM cannot make code for this machine: x", "setup failed: LLVM cannot make code for this machine: x"),
    ],
)
def test_native_code_that_cannot_be_made_says_why(reason: str, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topos.backend.native.llvm.available", lambda: reason)
    assert Backend.SIMD.status() == Status(False, status)


def test_a_setup_that_raises_is_an_ordinary_answer() -> None:
    class Broken(Mine):
        def found(self) -> Status:
            raise OSError("no such device\nat all")

    assert Broken().status() == Status(False, "setup failed: OSError: no such device")


def test_who_wants_no_other_requires_it() -> None:
    mine = Mine()
    assert mine.required() is mine
    with pytest.warns(RuntimeWarning, match="^backend MINE is asked no more: it raised ValueError: too large$"):
        mine.poison(ValueError("too large"))
    mine.poison(ValueError("another"))
    assert mine.is_poisoned
    with pytest.raises(BackendUnavailable) as caught:
        mine.required()
    assert str(caught.value) == "backend MINE: poisoned: ValueError: too large"
    assert isinstance(caught.value, RuntimeError)


def test_our_own_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(Backend.ALL)) == Backend.ALL


def test_an_entry_keeps_its_chain(step: Any) -> None:
    entry = step.entry(Backend.BLAS, Backend.SIMD, Backend.BLAS).entry
    assert entry.backends == (Backend.BLAS, Backend.SIMD)
    assert pickle.loads(pickle.dumps(Entry((), backends=entry.backends))).backends == entry.backends
    assert len({entry, step.entry().entry, step.network.entry(step.results).entry}) == 3


@pytest.mark.parametrize(
    ("backends", "message"),
    [
        ("BLAS", "entry: backends wants a sequence of backends, got 'BLAS'"),
        (7, "entry: backends wants a sequence of backends, got 7"),
        ([Mine], f"entry: wants objects of a subclass of Backend, got {Mine!r}"),
        (["BLAS"], "entry: wants objects of a subclass of Backend, got 'BLAS'"),
    ],
)
def test_what_is_no_backend_is_refused(backends: Any, message: str, step: Any) -> None:
    with pytest.raises(BackendUnavailable) as caught:
        step.network.entry(step.results).backends(backends)
    assert str(caught.value) == message


def test_exact_admits_what_is_exact() -> None:
    assert [fidelity.is_exact for fidelity in Fidelity] == [True, True, False]
    envelope, same = Coverage(Fidelity.ENVELOPE, (f32,)), Coverage(Fidelity.BIT_IDENTICAL, (f32,))
    assert [envelope.admits(f32, exact) for exact in (True, False)] == [False, True]
    assert [same.admits(element, True) for element in (f32, f64)] == [True, False]


def test_the_base_class_names_what_is_missing() -> None:
    class Bare(Backend):
        name = "BARE"

    for method, argument in (("coverage", Formula.MAP), ("offer", None)):
        with pytest.raises(NotImplementedError, match=f"^BARE.{method}$"):
            getattr(Bare(), method)(argument)


def test_a_posture_for_tensors_outside_plans() -> None:
    from topos.tensor import services

    with Numerics.exactly():
        assert services.exact()
    assert not services.exact()
    assert topos.Services is services.Services
