"""Operands stored narrower than the product: the bits of the product of the cast operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from topos import reference  # noqa: E402
from topos.backend.native.products import explain, product  # noqa: E402
from topos.element import bf16, f32, f64  # noqa: E402
from topos.testing import assert_same_bits  # noqa: E402

from . import product_compiler as compiler  # noqa: E402

ELEMENTS = {"f32": f32, "f64": f64, "bf16": bf16}
TARGETS = compiler.supported()
SHAPES = [(3, 20, 2), (1, 1030, 1), (1, 40, 70), (2, 530, 67), (20, 30, 40), (33, 520, 40), (300, 40, 530)]
FAR = [(1, 300, 1900), (1, 2300, 600), (3, 700, 800), (2, 777, 1003), (7, 300, 1900), (8, 1540, 611), (2, 70, 9001)]


def check(element: str, target: str, stored: tuple[str, str], shape: tuple[int, int, int], transposed: bool) -> str:
    rng = np.random.default_rng(shape[1])
    rows, terms, columns = shape
    left: Any = ELEMENTS[stored[0]].round(rng.standard_normal((rows, terms)))
    right: Any = ELEMENTS[stored[1]].round(rng.standard_normal((columns, terms) if transposed else (terms, columns)))
    right = right.T if transposed else right
    one = ELEMENTS[element]
    wide_left, wide_right = (one.round(np.asarray(array, np.float64)) for array in (left, right))
    out = np.zeros((rows, columns), wide_left.dtype)
    task = compiler.task_of(left, right, out, element)._replace(left_element=stored[0], right_element=stored[1])
    function = compiler.Compiled(product(task, TARGETS[target]), TARGETS[target])
    block, _scratch = compiler.arguments_of(left, right, out, function.scratch_bytes)
    function.run(block, 2)
    assert_same_bits(out, reference.matmul(one, wide_left, wide_right))
    return explain(task, TARGETS[target]).split(":")[0]


@pytest.mark.parametrize(
    ("element", "stored"),
    [("f32", ("f32", "bf16")), ("f32", ("bf16", "f32")), ("f64", ("f64", "f32")), ("f64", ("bf16", "f64"))],
)
@pytest.mark.parametrize("target", ["x86-64", "host"])
def test_a_narrow_operand_is_widened_as_it_is_read(element: str, stored: tuple[str, str], target: str) -> None:
    kinds = set()
    for shape in SHAPES:
        if target == "x86-64" and shape[0] * shape[1] * shape[2] > 200_000:
            continue
        kinds |= {check(element, target, stored, shape, transposed) for transposed in (False, True)}
    assert kinds >= {"direct", "lines", "packed"}


@pytest.mark.parametrize(("element", "stored"), [("f32", ("f32", "bf16")), ("f64", ("bf16", "f32"))])
def test_a_narrow_operand_comes_from_memory(element: str, stored: tuple[str, str]) -> None:
    for shape in FAR:
        for transposed in (False, True):
            check(element, "host", stored, shape, transposed)


def test_an_operand_that_does_not_widen_is_refused() -> None:
    left, right, out = np.zeros((2, 3), np.float64), np.zeros((3, 4), np.float32), np.zeros((2, 4), np.float32)
    task = compiler.task_of(left, right, out, "f32")._replace(left_element="f64")
    with pytest.raises(ValueError) as caught:
        product(task, compiler.V4)
    assert str(caught.value) == "product: an operand stored as f64 does not widen to f32"
