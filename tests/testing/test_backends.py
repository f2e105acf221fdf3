"""What grades a backend finds one flipped bit, a step over the envelope, and a backend that answers nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import (
    Backend,
    BackendUnavailable,
    Coverage,
    Declined,
    Dispatch,
    Fidelity,
    Formula,
    Shape,
    Status,
    Task,
    bf16,
    f32,
    f64,
)
from topos.op import MATMUL, SUM, MaxAlong, Permute
from topos.tensor import Tensor
from topos.tensor.evaluate import kernel_of
from topos.testing import grade_backend
from topos.testing.envelopes import envelope


def exact(task: Task) -> Any:
    return np.array(kernel_of(task.opcode)(task.opcode, task.element, list(task.operands)))  # type: ignore[arg-type]


class Graded(Backend):
    """Answers one formula over f32."""

    name = "GRADED"
    dispatch = Dispatch.OFFERED

    def __init__(
        self,
        answer: Callable[[Task], Any],
        fidelity: Fidelity = Fidelity.BIT_IDENTICAL,
        formula: Formula = Formula.GEMM,
    ) -> None:
        self.answer, self.fidelity, self.formula = answer, fidelity, formula

    def coverage(self, formula: Formula) -> Coverage | None:
        return Coverage(self.fidelity, (f32,)) if formula is self.formula else None

    def offer(self, task: Task) -> Any:
        return self.answer(task)


def flipped(task: Task) -> Any:
    array = exact(task)
    if array.shape == (2, 4):
        array.view(np.uint32)[1, 2] ^= 1
    return array


def test_the_reference_has_the_best_grade() -> None:
    grade = grade_backend(Graded(exact), seeds=1)
    assert grade.answered == {"GEMM": 36}
    assert (grade.declined, grade.largest_share) == (0, 0.0)


def test_one_flipped_bit_is_found() -> None:
    with pytest.raises(AssertionError) as caught:
        grade_backend(Graded(flipped), seeds=1)
    first, *_ = str(caught.value).splitlines()
    assert first == "GRADED: MatMul() over f32, dense: bits: 1 of 8 differ, the first at [1, 2]"


def test_one_flipped_bit_is_within_an_envelope() -> None:
    grade = grade_backend(Graded(flipped, Fidelity.ENVELOPE), seeds=1)
    assert 0 < grade.largest_share < 1


def test_a_step_over_the_envelope_is_found() -> None:
    with pytest.raises(AssertionError) as caught:
        grade_backend(Graded(lambda task: exact(task) * np.float32(1.00001), Fidelity.ENVELOPE), seeds=1)
    text = str(caught.value).splitlines()
    assert text[0].startswith("GRADED: MatMul() over f32, dense: ")
    assert " beyond the envelope, the first at " in text[0]
    assert [line.split()[0] for line in text[1:]] == ["actual", "expected", "allowed"]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (lambda task: exact(task)[..., :-1], "shape"),
        (lambda task: exact(task).astype(np.float64), "dtype"),
        (lambda task: np.full(task.shape, np.nan, np.float32), "bits"),
    ],
)
def test_another_shape_dtype_or_nan_is_found(answer: Callable[[Task], Any], complaint: str) -> None:
    with pytest.raises(AssertionError, match=f"^GRADED: MatMul\\(\\) over f32, dense: {complaint}"):
        grade_backend(Graded(answer), seeds=1)


def test_an_envelope_is_no_licence_for_nan_or_another_shape() -> None:
    for answer in (lambda task: np.full(task.shape, np.nan, np.float32), lambda task: exact(task)[..., :-1]):
        with pytest.raises(AssertionError, match="^GRADED: "):
            grade_backend(Graded(answer, Fidelity.ENVELOPE), seeds=1)


def test_an_operand_that_was_written_to_is_found() -> None:
    def spoiling(task: Task) -> Any:
        answer = exact(task)
        left = task.operands[0]
        assert isinstance(left, Tensor)
        array = left.dense(f32)
        array.flags.writeable = True
        array[...] = 0
        return answer

    with pytest.raises(AssertionError, match=r"^GRADED: MatMul\(\) over f32, dense: an operand was written to"):
        grade_backend(Graded(spoiling), seeds=1)


def test_who_answers_nothing_has_no_grade() -> None:
    with pytest.raises(AssertionError, match="^GRADED: answered none of the tasks, and declined 36$"):
        grade_backend(Graded(lambda task: Declined("not today")), seeds=1)
    with pytest.raises(AssertionError, match="^GRADED: answered none of the tasks, and declined 0$"):
        grade_backend(Graded(exact), elements=[f64])


def test_who_is_not_ready_has_no_grade() -> None:
    class Absent(Graded):
        def found(self) -> Status:
            return Status(False, "not installed: no device")

    with pytest.raises(BackendUnavailable, match="^backend GRADED: not installed: no device$"):
        grade_backend(Absent(exact))


@pytest.mark.parametrize("backend", [Backend.SIMD, Backend.FUSED], ids=lambda backend: backend.name)
def test_our_own_have_the_bits(backend: Backend) -> None:
    grade = grade_backend(backend, elements=[bf16], seeds=1)
    assert grade.answered["MAP"] > 200
    assert set(grade.answered) == {"GEMM", "MAP", "SUM", "REDUCE", "MOVE", "FOLD", "INDEX"}


@pytest.mark.parametrize("formula", [formula for formula in Formula][:7])
def test_every_formula_has_an_envelope(formula: Formula) -> None:
    grade = grade_backend(Graded(exact, Fidelity.ENVELOPE, formula), seeds=1)
    assert grade.answered.keys() == {formula}
    assert grade.largest_share == 0.0


def test_bounds_count_the_terms() -> None:
    ones = Tensor.filled([3, 100], 1.0), Tensor.filled([100, 2], -1.0)
    task = Task(Formula.GEMM, MATMUL, f32, Shape([3, 2]), ones)
    reference = exact(task)
    u = 2.0**-24
    np.testing.assert_allclose(envelope(task, reference), 2 * 102 * u * 100 + 2 * u * 100, rtol=1e-6)
    moved = Task(Formula.MOVE, Permute([1, 0]), f32, Shape([100, 3]), ones[:1])
    assert not envelope(moved, exact(moved)).any()
    largest = Task(Formula.REDUCE, MaxAlong(1), f32, Shape([3]), ones[:1])
    assert not envelope(largest, exact(largest)).any()
    total = Task(Formula.SUM, SUM, f32, Shape([]), ones[1:])
    np.testing.assert_allclose(envelope(total, exact(total)), 2 * 202 * u * 200 + 2 * u * 200, rtol=1e-6)
