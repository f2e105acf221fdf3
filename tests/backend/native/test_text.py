"""What the builder of LLVM text prints, and that it runs as it says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from topos import op
from topos.backend.native.registers import INT64, Integer, Operand, constant, listed, literal, vector
from topos.backend.native.target import Target
from topos.backend.native.text import Function
from topos.backend.native.vocabulary import NativeReading
from topos.element import f32

from .chains import chain_kernel
from .compiled import Compiled, host

Array = np.ndarray[Any, np.dtype[Any]]
PLAIN = Target("x86-64-v3", "", 32, True)
TRIANGLE = """\
define void @NAME(ptr %arguments, i64 %tile, i64 %worker) nounwind {
entry:
  %v1 = load ptr, ptr %arguments, align 8
  %v2 = load <8 x float>, ptr %v1, align 4
  %v3 = fadd <8 x float> %v2, splat (float 0x3FF0000000000000)
  %v4 = fmul <8 x float> splat (float 0x3FB99999A0000000), %v3
  store <8 x float> %v4, ptr %v1, align 4
  ret void
}
"""


def test_print() -> None:
    function = Function()
    place = function.argument(0)
    eight = vector("float", 8)
    x = NativeReading(function, 8, PLAIN).lanes_of(function.load(eight, place, 4))
    assert str(x) == "<8 x float> %v2"
    product = NativeReading(function, 8, PLAIN).constant("float", 0.1) * (x + 1.0)
    function.store(product, place, 4)
    kernel = function.kernel("triangle", 1)
    assert kernel.text == TRIANGLE.replace("NAME", kernel.name)
    assert kernel.name.startswith("triangle_")
    assert kernel.helpers == ()


def test_equal_work_prints_equal_kernels() -> None:
    kernels = [chain_kernel(op.POWF, f32, 100, PLAIN) for _ in range(2)]
    assert kernels[0] == kernels[1]
    assert kernels[0] != chain_kernel(op.POWF, f32, 101, PLAIN)


def test_helpers_are_single_lines_each_once() -> None:
    kernel = chain_kernel([op.MAPS[op.MapOperation.SIN]] * 3, f32, 100, PLAIN)
    assert len({helper.split("=")[0] for helper in kernel.helpers}) == len(kernel.helpers)
    assert all("\n" not in helper for helper in kernel.helpers)
    assert sum(helper.startswith("@two_over_pi_f32_0 = internal") for helper in kernel.helpers) == 1


@pytest.mark.parametrize(
    ("item", "number", "text"),
    [
        ("double", 1.0, "0x3FF0000000000000"),
        ("double", -0.0, "0x8000000000000000"),
        ("double", math.inf, "0x7FF0000000000000"),
        ("double", math.nan, "0x7FF8000000000000"),
        ("float", 0.1, "0x3FB99999A0000000"),
        ("float", 2.0**-149, "0x36A0000000000000"),
        ("float", -math.inf, "0xFFF0000000000000"),
        ("i32", -0x80000000, "-2147483648"),
        ("i64", 0x4338000000000000, "4843621399236968448"),
        ("i1", 1, "true"),
    ],
)
def test_constants(item: str, number: float, text: str) -> None:
    assert literal(item, number) == text
    assert constant(vector(item, 4), number).text == f"splat ({item} {text})"
    assert constant(vector(item, 1), number).text == text


def test_zeros_of_either_sign_are_two_constants() -> None:
    reading = NativeReading(Function(), 1, PLAIN)
    kind = vector("double", 1)
    texts = [reading.constant_text(kind, number) for number in (0.0, -0.0, 0.0)]
    assert texts == ["0x0000000000000000", "0x8000000000000000", "0x0000000000000000"]


def test_lanes_have_no_truth() -> None:
    x = NativeReading(Function(), 4, PLAIN).constant("float", 1.0)
    with pytest.raises(TypeError, match="lanes have no truth while the text is written: use select or rare"):
        bool(x < 2.0)


# run
def called(function: Function, *buffers: Array) -> None:
    Compiled(function.kernel("test", 1), host())(*buffers)


def known(function: Function, numbers: Array, position: int, given: bool) -> Integer:
    """A bound as a Python number, or read from memory."""
    if given:
        return int(numbers[position])
    place = function.offset(function.argument(0), INT64, position)
    return function.load(INT64, place, 8)


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("bounds", [(0, 0), (0, 1), (3, 3), (5, 2), (0, 7), (2, 20), (0, 3)])
def test_loops_carry(bounds: tuple[int, int], given: bool) -> None:
    begin, end = bounds
    numbers = np.array([begin, end, -1, -1], np.int64)
    function = Function()
    first, last = known(function, numbers, 0, given), known(function, numbers, 1, given)

    def inner(index: Integer, total: Operand) -> list[Operand]:
        return [function.let(INT64, f"add i64 {total.text}, {index if isinstance(index, int) else index.text}")]

    def outer(index: Integer, total: Operand, rounds: Operand) -> list[Operand]:
        (summed,) = function.loop(index, last, 1, inner, [total])
        return [summed, function.let(INT64, f"add i64 {rounds.text}, 1")]

    zero = constant(INT64, 0)
    results = function.loop(first, last, 3, outer, [zero, zero])
    for position, result in enumerate(results):
        function.store(result, function.offset(function.argument(0), INT64, 2 + position), 8)
    called(function, numbers)
    rounds = range(begin, end, 3)
    assert list(numbers[2:]) == [sum(sum(range(start, end)) for start in rounds), len(rounds)]


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("item", ["i16", "i32", "double"])
@pytest.mark.parametrize("lanes", [1, 2, 8, 16])
def test_first_lanes(lanes: int, item: str, given: bool) -> None:
    type = vector(item, lanes)
    dtype = {"i16": np.int16, "i32": np.int32, "double": np.float64}[item]
    for count in range(lanes + 2):
        numbers = np.array([count], np.int64)
        source = np.arange(1, lanes + 1).astype(dtype)
        copied, opened = np.full(lanes, -7, dtype), np.full(lanes, -7, dtype)
        function = Function()
        active = known(function, numbers, 0, given)
        size = source.dtype.itemsize
        read = function.load_first(type, function.argument(1), active, size)
        function.store(read, function.argument(3), size)
        whole = function.load(type, function.argument(1), size)
        function.store_first(whole, function.argument(2), active, size)
        called(function, numbers, source, copied, opened)
        lane = np.arange(lanes)
        assert np.array_equal(copied, np.where(lane < count, source, -7))
        assert np.array_equal(opened, np.where(lane < count, source, {"i16": 0x3F80, "i32": 0, "double": 1.0}[item]))


def test_integers_known_while_writing() -> None:
    function = Function()
    x = Operand(INT64, "%x")
    assert (function.add(2, 3), function.multiply(2, 3), function.least(2, 3)) == (5, 6, 2)
    assert function.add(x, 0) is x
    assert function.multiply(1, x) is x
    assert function.multiply(x, 0) == 0
    assert function.offset(x, INT64, 0) is x
    assert str(function.add(x, 3)) == "i64 %v1"


def test_vectors_of_named_lanes() -> None:
    assert listed(vector("i64", 3), (0, 1, 2)).text == "<i64 0, i64 1, i64 2>"
    assert vector("float", 16) is vector("float", 16)
    assert (vector("ptr", 8).suffix, vector("i1", 4).suffix, vector("double", 1).suffix) == ("v8p0", "v4i1", "f64")
    assert vector("i16", 8).bytes == 16
