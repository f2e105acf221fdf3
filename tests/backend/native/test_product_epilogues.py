"""Epilogues of products: bias, residual and activation on finished results, whatever kind of kernel finishes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from topos import reference  # noqa: E402
from topos.backend.native.arithmetic import arithmetic  # noqa: E402
from topos.backend.native.kernel import NAME  # noqa: E402
from topos.backend.native.products import Definition, Epilogue, Finish, explain, product  # noqa: E402
from topos.backend.native.registers import INT64, Integer, Operand, vector  # noqa: E402
from topos.backend.native.target import Target  # noqa: E402
from topos.backend.native.text import Function  # noqa: E402
from topos.backend.native.vocabulary import NativeReading  # noqa: E402
from topos.element import bf16, f32, f64  # noqa: E402
from topos.testing import assert_same_bits  # noqa: E402

from . import product_compiler as compiler  # noqa: E402

ELEMENTS = {"f32": f32, "f64": f64, "bf16": bf16}
TARGETS = compiler.supported()


class Biased:
    """`first = max(x + bias[column], residual[batch, row, column])` and `second = first * first`, by strides."""

    def __init__(self, element: str, target: Target, arrays: dict[str, Any]) -> None:
        self.element, self.target, self.arrays = ELEMENTS[element], target, arrays

    def strides(self, name: str, along_rows: bool) -> tuple[int, int, int]:
        """Numbers from one product, other line and lane to the next."""
        array = self.arrays[name]
        batch, row, column = (stride // array.itemsize for stride in array.strides)
        return (batch, column, row) if along_rows else (batch, row, column)

    def __call__(self, finish: Finish) -> Definition:
        function = Function(finish.parameters)
        reading = NativeReading(function, finish.lanes, self.target)
        m = arithmetic(self.element, reading)
        batch, row, column = (Operand(INT64, f"%{name}") for name in ("batch", "row", "column"))
        lines = (column, row) if finish.along_rows else (row, column)

        def places(place: int, name: str) -> list[Operand]:
            base = function.argument(place)
            across, line, step = self.strides(name, finish.along_rows)
            offset: Integer = function.multiply(batch, across)
            offset = function.add(offset, function.multiply(lines[0], line))
            offset = function.add(offset, function.multiply(lines[1], step))
            return [m.offset(base, function.add(offset, lane * step)) for lane in range(finish.active)]

        def load(place: int, name: str) -> Any:
            stored = vector(m.stored, finish.lanes)
            text = "zeroinitializer" if finish.lanes > 1 else "poison"
            found = Operand(stored, text)
            for lane, pointer in enumerate(places(place, name)):
                one = function.load(stored.of_one(), pointer, m.bytes)
                found = one if finish.lanes == 1 else function.let(stored, f"insertelement {found}, {one}, i32 {lane}")
            return m.opened(found)

        def store(place: int, name: str, value: Any) -> None:
            closed = m.closed(value)
            for lane, pointer in enumerate(places(place, name)):
                one = closed
                if finish.lanes > 1:
                    one = function.let(closed.type.of_one(), f"extractelement {closed}, i32 {lane}")
                function.store(one, pointer, m.bytes)

        value = reading.lanes_of(Operand(m.type, "%value"))
        first = m.maximum(m.add(value, load(4, "bias")), load(5, "residual"))
        store(2, "first", first)
        store(3, "second", m.mul(first, first))
        return Definition(function.text(finish.name), tuple(function.helpers))


def check(element: str, target: Target, batch: int, shape: tuple[int, int, int], transposed: bool) -> str:
    rng = np.random.default_rng(shape[1])
    one = ELEMENTS[element]
    rows, terms, columns = shape
    left = one.round(rng.standard_normal((batch, rows, terms)))
    right = one.round(rng.standard_normal((batch, columns, terms) if transposed else (batch, terms, columns)))
    right = right.swapaxes(-1, -2) if transposed else right
    residual = one.round(rng.standard_normal((batch, columns, rows))).swapaxes(-1, -2)
    bias = one.round(rng.standard_normal(columns))
    wide = np.broadcast_to(bias, (batch, rows, columns))
    arrays = {"bias": wide, "residual": residual}
    for name in ("first", "second"):
        arrays[name] = np.zeros((batch, rows, columns), left.dtype)
    task = compiler.task_of(left, right, arrays["first"], element)
    kernels = product(task, target, Epilogue(Biased(element, target, arrays), 3))
    function = compiler.Compiled(kernels, target)
    order = [left, right, arrays["first"], arrays["second"], bias, residual]
    scratch = np.full(function.scratch_bytes + 256, 0xA5, np.uint8)
    block = compiler.block_of([*order, scratch[104:]])
    function.run(block, 2)
    expected = one.maximum(one.add(reference.matmul(one, left, right), wide), residual)
    assert_same_bits(arrays["first"], expected)
    assert_same_bits(arrays["second"], one.mul(expected, expected))
    assert (scratch[:104] == 0xA5).all() and (scratch[104 + function.scratch_bytes :] == 0xA5).all()
    return explain(task, target).split(":")[0]


SHAPES = [(3, 5, 2), (1, 1030, 1), (20, 30, 40), (20, 1030, 40), (2, 40, 67), (70, 530, 5), (9, 0, 20), (300, 40, 600)]
SHAPES += [(3, 130, 2101)]


@pytest.mark.parametrize("element", list(ELEMENTS))
@pytest.mark.parametrize("target", ["x86-64", "host"])
def test_finished_results_reach_the_epilogue_once(element: str, target: str) -> None:
    kinds = set()
    for shape in SHAPES:
        if target == "x86-64" and shape[0] * shape[1] * shape[2] > 200_000:
            continue
        for transposed in (False, True):
            for batch in (1, 3):
                kinds.add(check(element, TARGETS[target], batch if shape[0] < 70 else 1, shape, transposed))
    narrow = {"dots"} if (element, target) == ("f64", "x86-64") else set()
    wide = {"streamed"} if target == "host" and TARGETS[target].has_fma else set()
    assert kinds | narrow == {"dots", "direct", "lines", "packed", "zeros"} | wide


def test_the_function_is_told_what_it_gets() -> None:
    told: list[Finish] = []

    def define(finish: Finish) -> Definition:
        told.append(finish)
        return Definition(Function(finish.parameters).text(finish.name))

    left, right, out = np.zeros((20, 30), np.float32), np.zeros((30, 21), np.float32), np.zeros((20, 21), np.float32)
    (kernel,) = product(compiler.task_of(left, right, out, "f32"), compiler.V4, Epilogue(define))
    assert {(finish.lanes, finish.active, finish.along_rows) for finish in told} == {(16, 16, False), (16, 5, False)}
    assert told[-1].parameters == "ptr %arguments, <16 x float> %value, i64 %batch, i64 %row, i64 %column"
    written = told[-1].name.replace(NAME, kernel.name)  # a kernel is named when its text is known
    assert f"define internal void @{written}({told[-1].parameters}) nounwind alwaysinline {{" in kernel.text
