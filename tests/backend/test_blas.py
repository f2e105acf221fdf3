"""Products by a library behind the CBLAS interface: found, read in any layout, within the envelope."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topos import Backend, Fidelity, Formula, Outline, Shape, Status, Task, Tensor, bf16, f32, f64
from topos.backend import blas, cblas
from topos.backend.blas import CblasBackend
from topos.backend.cblas import Cblas
from topos.op import MATMUL, Opcode
from topos.testing import grade_backend

from .mine import Step

needs_blas = pytest.mark.skipif(not Backend.BLAS.status().ready, reason="no library with the CBLAS interface")


@pytest.fixture(scope="module")
def library() -> Cblas:
    for path, _ in blas.libraries():
        try:
            return Cblas(path)
        except (OSError, LookupError):
            continue
    pytest.skip("no library with the CBLAS interface")


def task(left: Any, right: Any, element: Any = f32, opcode: Opcode = MATMUL) -> Task:
    operands = (Outline(Shape(left), element), Outline(Shape(right), element))
    return Task(Formula.GEMM, opcode, element, Shape([*left[:-1], right[-1]]), operands)


def test_what_it_covers() -> None:
    for formula in Formula:
        coverage = Backend.BLAS.coverage(formula)
        assert (coverage is not None) == (formula is Formula.GEMM)
    coverage = Backend.ACCELERATE.coverage(Formula.GEMM)
    assert coverage is not None
    assert coverage.fidelity is Fidelity.ENVELOPE
    assert [element in coverage.precisions for element in (f32, f64, bf16)] == [True, True, False]


@needs_blas
def test_every_product_is_within_the_envelope() -> None:
    grade = grade_backend(Backend.BLAS)
    assert grade.answered["GEMM"] > 50
    assert grade.declined == 0
    assert 0 < grade.largest_share < 1


@needs_blas
def test_a_plan_uses_it_only_where_fast_permits(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topos.backend.lowering.gain", lambda *facts: 2.0)
    with Backend.tallied() as services:
        results = step.run(step.entry(*Backend.ALL))
    assert services.by_formula["GEMM"] == {"BLAS": 5}
    for got, wanted in zip(results, step.expected, strict=True):
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-6)


LAYOUTS = {
    "dense": lambda m: m,
    "transposed": lambda m: np.array(np.swapaxes(m, -1, -2), order="C").swapaxes(-1, -2),
    "reversed": lambda m: np.array(m[..., ::-1])[..., ::-1],
    "apart": lambda m: np.repeat(m, 2, axis=-1)[..., ::2],
    "inside": lambda m: np.pad(m, [(0, 0)] * (m.ndim - 2) + [(1, 2), (3, 1)])[..., 1:-2, 3:-1],
    "one row for all": lambda m: np.broadcast_to(m[..., :1, :], m.shape),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("right_layout", LAYOUTS)
@pytest.mark.parametrize("left_layout", LAYOUTS)
def test_operands_lie_anyhow(left_layout: str, right_layout: str, dtype: Any, library: Cblas) -> None:
    random = np.random.default_rng(3)
    for batch, rows, terms, columns in (((), 4, 7, 5), ((2, 3), 1, 6, 2), ((), 3, 1, 1), ((2,), 1, 1, 4)):
        left = LAYOUTS[left_layout](random.normal(size=(*batch, rows, terms)).astype(dtype))
        right = LAYOUTS[right_layout](random.normal(size=(*batch, terms, columns)).astype(dtype))
        got = library.matmul(left, right, 1)
        np.testing.assert_allclose(got, left @ right, rtol=1e-4)
        assert (got.dtype, got.flags.c_contiguous) == (dtype, True)


@pytest.mark.parametrize("layout", ["dense", "transposed", "inside"])
def test_lines_of_neighbours_are_not_copied(layout: str) -> None:
    matrix = LAYOUTS[layout](np.ones((4, 6), np.float32))
    assert np.shares_memory(cblas._layout(matrix).array, matrix)
    assert cblas._layout(matrix).order == (cblas.TRANSPOSED if layout == "transposed" else cblas.AS_IT_IS)


def test_nothing_is_zero(library: Cblas) -> None:
    for left, right in (((2, 0), (0, 3)), ((0, 2), (2, 3)), ((2, 2), (2, 0)), ((0, 2, 2), (0, 2, 2))):
        got = library.matmul(np.ones(left, np.float32), np.ones(right, np.float32), 1)
        assert got.shape == (*left[:-1], right[-1])
        assert not got.any()


def test_special_values_pass_through(library: Cblas) -> None:
    left = np.array([[1.0, np.inf], [np.nan, 1.0], [1e30, 1e30]], np.float32)
    right = np.array([[0.0, 1.0], [1.0, 1e30]], np.float32)
    got = library.matmul(left, right, 1)
    assert np.isposinf(got[0]).all() and np.isnan(got[1]).all() and np.isposinf(got[2, 1])


def test_threads_stand_as_they_were(library: Cblas) -> None:
    calls: list[int] = []
    library = Cblas.__new__(Cblas)
    library._thread_calls = (lambda: 3, calls.append)
    with library._threads(3):
        pass
    assert calls == []
    with pytest.raises(KeyError), library._threads(1):
        raise KeyError
    assert calls == [1, 3]


def test_declines_what_its_integers_cannot_count() -> None:
    backend = CblasBackend("BLAS", blas.libraries, "")
    if not backend.status().ready:
        pytest.skip("no library with the CBLAS interface")
    assert backend.offer(task((2, 3), (3, 4))) is not None
    assert backend._library is not None
    backend._library.most = 3
    assert backend.offer(task((2, 3), (3, 4))) is None
    selection = Tensor.selection([0, 1], 3)
    assert backend.offer(task((2, 3), (3, 2))._replace(operands=(selection, selection))) is None


def test_the_one_that_the_environment_names_is_the_only_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "not_a_library.so"
    file.write_text("text")
    monkeypatch.setenv("TOPOS_BLAS", str(file))
    assert [*blas.libraries()] == [(str(file), f"TOPOS_BLAS={file}")]
    status = CblasBackend("BLAS", blas.libraries, blas.NOT_INSTALLED).status()
    assert not status.ready
    assert status.reason.startswith(f"setup failed: TOPOS_BLAS={file}: ")


def test_a_library_without_the_interface_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_interface(path: str) -> Any:
        raise LookupError(f"{path} has no CBLAS interface")

    monkeypatch.setattr(blas, "Cblas", no_interface)
    found = CblasBackend("BLAS", lambda: iter([("libm.so", "the system's m")]), blas.NOT_INSTALLED).status()
    assert found == Status(False, "setup failed: the system's m: libm.so has no CBLAS interface")


def test_nowhere_to_look_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Iterator[tuple[str, str]]:
        return iter(())

    status = CblasBackend("BLAS", nowhere, blas.NOT_INSTALLED).status()
    assert str(status) == "not installed: found no library with the CBLAS interface; name one in TOPOS_BLAS"
    monkeypatch.setattr("sys.platform", "linux")
    assert [*blas.accelerate()] == []
    monkeypatch.setattr("sys.platform", "darwin")
    assert [path.rpartition("/")[2] for path, _ in blas.accelerate()] == ["Accelerate"]


class Spelled:
    """A library with some names in it."""

    def __init__(self, *names: str) -> None:
        for name in names:
            setattr(self, name, name)


@pytest.mark.parametrize(
    ("names", "spelling", "bits"),
    [
        (("cblas_sgemm", "cblas_dgemm"), "cblas_{}gemm", 32),
        (("cblas_sgemm64_", "cblas_dgemm64_", "cblas_sgemm", "cblas_dgemm"), "cblas_{}gemm64_", 64),
        (("scipy_cblas_sgemm64_", "scipy_cblas_dgemm64_"), "scipy_cblas_{}gemm64_", 64),
    ],
)
def test_builds_spell_the_interface_differently(names: tuple[str, ...], spelling: str, bits: int) -> None:
    found, integer = cblas._spelling(Spelled(*names), "lib.so")
    assert (found, 8 * integer().__sizeof__() > 0) == (spelling, True)
    assert integer(2**bits - 1).value == -1


def test_half_an_interface_is_none() -> None:
    with pytest.raises(LookupError, match="^lib.so has no CBLAS interface$"):
        cblas._spelling(Spelled("cblas_sgemm"), "lib.so")
    assert cblas._thread_calls(Spelled()) is None
    assert cblas._description(Spelled()) == "a library with the CBLAS interface"
