"""A user's element in native plans: the interpreter's bits, from the bodies that the interpreter reads."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from topos import Backend, Element, Formula, Native, Network, Symbol, Tape, Value, f32, f64
from topos.testing import assert_same_bits, grade_backend

pytest.importorskip("llvmlite")


class Clamped(Element):
    """f32 whose results stay within 4; products round to a multiple of an eighth."""

    name = "clamped"
    dtype = np.dtype(np.float32)
    accumulator = f32

    def round(self, numbers: Any) -> Any:
        return np.clip(np.asarray(numbers, np.float64), -4, 4).astype(np.float32)


def within(m: Any, x: Any) -> Any:
    return m.select(x > 4.0, 4.0, m.select(x < -4.0, -4.0, x))


def to_eighths(m: Any, left: Any, right: Any) -> Any:
    large = 1.5 * 2.0**20  # whose last bit is an eighth
    return within(m, (left * right + large) - large)


Clamped.native = Native("float", rounded=within, bodies={"mul": to_eighths})
clamped = Clamped()

MAGIC = 12582912.0  # 1.5 * 2^23: what is added to it is rounded to an integer, which its lowest bits then show


def whole(m: Any, x: Any) -> Any:
    scaled = m.select(x >= 32767 / 256, 32767.0, m.select(x <= -128.0, -32768.0, x * 256.0))
    return (scaled + MAGIC - MAGIC) * 2.0**-8


class Fixed(Element):
    """16 bits, 8 after the point."""

    name = "fixed"
    dtype = np.dtype(np.int16)
    accumulator = f32
    native = Native(
        "float",
        rounded=whole,
        stored="i16",
        opened=lambda m, code: (m.real(((code << 16) >> 16) + 0x4B400000) - MAGIC) * 2.0**-8,
        closed=lambda m, x: m.bits(x * 256.0 + MAGIC),
    )

    def admit(self, array: Any) -> Any:
        return self.round(array)

    def round(self, numbers: Any) -> Any:
        scaled = np.nan_to_num(np.rint(np.asarray(numbers, np.float64) * 256))
        return np.clip(scaled, -(2**15), 2**15 - 1).astype(np.int16)


fixed = Fixed()


class Eight(Element):
    """8 bits of which 5 are the exponent's, in double registers; a byte in memory, with one NaN."""

    name = "eight"
    dtype = np.dtype(np.uint8)
    accumulator = f64

    def admit(self, array: Any) -> Any:
        return self.round(array)

    def round(self, numbers: Any) -> Any:
        wide = np.asarray(numbers, np.float64)
        return self.native.narrowed(wide, self.dtype)  # type: ignore[union-attr]


def e5m2_opened(m: Any, code: Any) -> Any:
    magnitude = m.real((code & 0x7F) << 50) * 2.0**1008
    special = m.select((code & 0x7C) == 0x7C, m.real(((code & 3) << 50) | 0x7FF0000000000000), magnitude)
    return m.copysign(special, m.real(code << 56))


def e5m2_rounded(m: Any, x: Any) -> Any:
    size = m.absolute(x)
    magic = m.real((m.bits(m.select(size < 2.0**-14, 2.0**-14, size)) & 0x7FF0000000000000) + (50 << 52)) * 1.5
    nearest = (size + magic) - magic
    limited = m.select(nearest > 57344.0, float("inf"), nearest)
    return m.copysign(m.select(size < float("inf"), limited, size), x)


def e5m2_closed(m: Any, x: Any) -> Any:
    size = m.absolute(x)
    code = (m.bits(size * 2.0**-1008) >> 50) & 0x7F
    special = m.select(size == float("inf"), (m.bits(size) & 0) | 0x7C, code)
    return m.select(x != x, (m.bits(x) & 0) | 0x7E, special | ((m.bits(x) >> 56) & 0x80))


Eight.native = Native("double", rounded=e5m2_rounded, stored="i8", opened=e5m2_opened, closed=e5m2_closed)
eight = Eight()

ELEMENTS = [clamped, fixed, eight]
each = pytest.mark.parametrize("element", ELEMENTS, ids=lambda element: element.name)


@each
def test_one_instruction_and_whole_plans_have_the_bits(element: Element) -> None:
    grade = grade_backend(Backend.FUSED, elements=[element], seeds=1)
    assert grade.answered.keys() == {"MAP", "SUM", "REDUCE", "MOVE", "FOLD", "INDEX"}
    assert grade.answered["MAP"] > 200


def program(element: Element) -> tuple[Network, list[Symbol]]:
    random = np.random.default_rng(4)

    def record(tape: Tape) -> list[Value]:
        x, y = (tape.input(random.normal(size=(70, 33)) * 2) for _ in range(2))
        z = (x * y + x).tanh() * 2.5 - y
        chosen = z.step(y).select(x, y) + x.maximum(y) / (y * y + 1.0)
        moved = [z.narrow(1, 3, 5).pad(0, 2, 80, 0.5), z.transpose() + 1.25]
        return [z, chosen, z.sum_along(1), z.sum(), z.log_softmax(1), *moved]

    network, results = Tape.record(record, element=element)
    return network, results


@each
def test_a_plan_over_a_users_element_is_native(element: Element) -> None:
    network, results = program(element)
    plan = network.entry(results).lower()
    expected = network.entry(results).interpret(network.parameters()).of(results)
    assert_same_bits(plan.forward(network.parameters()).of(results), expected)
    assert plan.explain().splitlines()[-1].startswith("native: ")


@each
def test_products_and_casts_are_left_to_the_reference_and_the_rest_stays_fused(element: Element) -> None:
    random = np.random.default_rng(5)

    def record(tape: Tape) -> list[Value]:
        x = tape.parameter(random.normal(size=(5, 7)))
        y = (x * 0.5).exp() @ tape.leaf(random.normal(size=(7, 3)))
        return [y.sin() + 1.0, y.max_along(0), (y * y).sum_along(0)]

    network, results = Tape.record(record, element=element)
    plan = network.entry(results).lower()
    with Backend.tallied() as services:
        got = plan.forward(network.parameters()).of(results)
    assert_same_bits(got, network.entry(results).interpret(network.parameters()).of(results))
    assert services.by_formula["GEMM"] == {"REFERENCE": 1}
    assert services.by_formula["REDUCE"] == {"REFERENCE": 1}
    assert services.count("MAP", "FUSED") == services.count("MAP") > 3
    assert services.count("SUM", "FUSED") == 1


def test_sums_whose_accumulator_is_not_the_registers_own_are_left_to_the_reference() -> None:
    class Itself(Clamped):
        name = "itself"
        accumulator = property(lambda self: self)  # type: ignore[assignment]

    network, y = Tape.record(lambda tape: (tape.leaf([3.0, -3.0, 3.0]) * 1.0).sum(), element=Itself())
    plan = network.entry(y).lower()
    with Backend.tallied() as services:
        assert plan.forward(network.parameters()).of(y).tolist() == 1.0  # 4, less 3: each addition is clamped
    assert services.by_formula == {"MAP": {"FUSED": 1}, "SUM": {"REFERENCE": 1}, "MOVE": {"FUSED": 1}}


def test_a_composite_dtype_is_interpreted_and_the_plan_says_why() -> None:
    class Pair(Element):
        name = "pair"
        dtype = np.dtype([("value", np.float32), ("slope", np.float32)])

        def round(self, numbers: Any) -> Any:
            result = np.zeros(np.shape(numbers), self.dtype)
            result["value"] = numbers
            return result

        def add(self, left: Any, right: Any) -> Any:
            result = np.zeros(np.broadcast_shapes(left.shape, right.shape), self.dtype)
            for field in ("value", "slope"):
                result[field] = left[field] + right[field]
            return result

    network, y = Tape.record(lambda tape: tape.leaf([1.0]) + tape.leaf([2.0]), element=Pair())
    plan = network.entry(y).lower()
    assert plan.forward(network.parameters()).of(y).numpy()["value"].tolist() == [3.0]
    assert plan.explain() == "interpreted: no backend takes MAP over pair"


def test_coverage_knows_who_has_the_contract() -> None:
    coverage = Backend.FUSED.coverage(Formula.MAP)
    assert coverage is not None
    assert all(element in coverage.precisions for element in [f32, *ELEMENTS])
    assert Element() not in coverage.precisions
    assert repr(coverage.precisions) == "f32, f64, bf16 and elements with a native reading"


def test_eight_bits_are_what_they_are_called() -> None:
    e5m2 = np.dtype(ml_dtypes.float8_e5m2)
    codes = np.arange(256, dtype=np.uint8)
    assert eight.native is not None
    with np.errstate(all="ignore"):
        assert_same_bits(eight.native.widened(codes), codes.view(e5m2).astype(np.float64))
        numbers = np.random.default_rng(0).normal(size=5000) * 2.0 ** np.arange(-20, 20).repeat(125)
        narrow = numbers.astype(np.float32)
        assert_same_bits(eight.round(narrow), narrow.astype(e5m2).view(np.uint8))
