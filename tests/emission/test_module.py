"""What emitted text says: names, arguments, results, constants, places, and what is refused. Needs no engine."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import Element, EmissionError, Emittable, Tape, bf16, f32
from topos.emission import literals


def emitted(record: Callable[[Tape], Any], element: Element = f32, **options: Any) -> str:
    network, roots = Tape.record(record, element)
    return network.entry(roots).lower().emit_stablehlo(**options)


def body(text: str) -> list[str]:
    """The operations of a module."""
    return [line.strip() for line in text.splitlines()[2:-2]]


def walk(tape: Tape) -> list[Any]:
    weights = tape.parameter([[0.5, -0.25], [0.25, 0.4]])
    hidden = (tape.input([[1, 2]]) @ weights).tanh()
    return [*tape.differentiate((hidden * hidden).sum(), [weights]).roots(), hidden]


def test_the_walk(golden: Callable[[str, str], None]) -> None:
    golden(emitted(walk), "walk_stablehlo.mlir")


def test_parameters_come_first_and_what_nobody_asks_for_not_at_all() -> None:
    def record(tape: Tape) -> Any:
        x, unused, w = tape.input(1.0), tape.parameter(2.0), tape.parameter(3.0)
        assert unused.shape == ()
        return x - w

    assert emitted(record).splitlines()[1:3] == [
        "  func.func @main(%arg0: tensor<f32>, %arg1: tensor<f32>) -> (tensor<f32>) {",
        "    %v3 = stablehlo.subtract %arg1, %arg0 : tensor<f32>",
    ]


def test_what_replaces_a_carried_source_comes_last() -> None:
    network, (weight, half, twice) = Tape.record(lambda t: [w := t.parameter(8.0), w / 2, w + w])
    text = network.entry(twice).carry({weight: half}).lower().emit_stablehlo()
    assert text.splitlines()[-3] == "    return %v3, %v2 : tensor<f32>, tensor<f32>"


def test_the_user_s_lines() -> None:
    text = emitted(lambda tape: tape.parameter(1.0).exp(), locations=True)
    line = test_the_user_s_lines.__code__.co_firstlineno + 1
    assert text.splitlines()[1:3] == [
        f'  func.func @main(%arg0: tensor<f32> loc("{_here(text)}":{line}:1)) -> (tensor<f32>) {{',
        f'    %v1 = stablehlo.exponential %arg0 : tensor<f32> loc("{_here(text)}":{line}:1)',
    ]
    assert _here(text).endswith("test_module.py")
    assert " loc(" not in emitted(lambda tape: tape.parameter(1.0).exp())


def _here(text: str) -> str:
    return re.search(r'loc\("([^"]*)"', text)[1]


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.float32(0.1), "dense<0.1>"),
        (np.float32(1e-5), "dense<1.0e-05>"),
        (np.float32(3.4028235e38), "dense<3.4028235e+38>"),
        (np.float32(-0.0), "dense<0x80000000>"),
        (np.float32(np.inf), "dense<0x7F800000>"),
        (np.float64(-np.inf), "dense<0xFFF0000000000000>"),
        (np.array(np.nan, bf16.dtype), "dense<0x7FC0>"),
        (np.array(0.1, bf16.dtype), "dense<0.10009765625>"),
        (np.zeros((2, 3), np.float32), "dense<0.0>"),
        (np.array([0.0, -0.0], np.float32), "dense<[0.0, 0x80000000]>"),
        (np.zeros((0, 3), np.float32), "dense<>"),
        (np.arange(4, dtype=np.int32).reshape(2, 2), "dense<[[0, 1], [2, 3]]>"),
        (np.arange(17, dtype=np.int32), f'dense<"0x{np.arange(17, dtype="<i4").tobytes().hex().upper()}">'),
    ],
)
def test_a_constant_says_each_bit(array: np.ndarray, text: str) -> None:
    assert literals.dense(np.asarray(array)) == text


def test_every_number_reads_back() -> None:
    patterns = np.random.default_rng(0).integers(0, 0x7F800000, 20_000).astype(np.uint32)
    for number in patterns.view(np.float32):
        assert np.float32(float(literals.number(number))) == number


def test_sums_and_products_of_bf16_say_where_they_accumulate() -> None:
    def record(tape: Tape) -> Any:
        left, right = tape.parameter(np.ones((2, 3))), tape.parameter(np.ones((3, 2)))
        return (left @ right).sum_along(1)

    assert body(emitted(record, bf16)) == [
        "%v2_product = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0]"
        " : (tensor<2x3xbf16>, tensor<3x2xbf16>) -> tensor<2x2xf32>",
        "%v2 = stablehlo.convert %v2_product : (tensor<2x2xf32>) -> tensor<2x2xbf16>",
        "%v3_convert = stablehlo.convert %v2 : (tensor<2x2xbf16>) -> tensor<2x2xf32>",
        "%v3_seed = stablehlo.constant dense<0.0> : tensor<f32>",
        "%v3_total = stablehlo.reduce(%v3_convert init: %v3_seed) applies stablehlo.add across dimensions = [1]"
        " : (tensor<2x2xf32>, tensor<f32>) -> tensor<2xf32>",
        "%v3 = stablehlo.convert %v3_total : (tensor<2xf32>) -> tensor<2xbf16>",
        "return %v3 : tensor<2xbf16>",
    ]


def test_a_product_of_many_matrices_has_batch_axes() -> None:
    text = emitted(lambda t: t.parameter(np.ones((2, 3, 4, 5))) @ t.parameter(np.ones((2, 3, 5, 6))))
    assert "batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2]" in text


def test_selections_are_ids() -> None:
    def record(tape: Tape) -> Any:
        ids = tape.selection([2, 3], vocab=5, absent=-100)
        return tape.parameter(np.ones((5, 4))).gather(ids)

    text = emitted(record)
    assert "%arg0: tensor<5x4xf32>, %arg1: tensor<2x3xi32>" in text
    assert "x5xf32" not in text  # no rows of ones and zeros


class Plain(Element):
    """An element that says nothing of emission."""


class Halved(Element):
    """Binary32 whose products are rounded to quarters."""

    def round(self, numbers: np.ndarray) -> np.ndarray:
        return (np.rint(np.asarray(numbers) * 4) / 4).astype(np.float32)

    def mul(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return self.round(left * right)

    def add(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.asarray(left + right)


def quarters(m: Any, left: Any, right: Any) -> Any:
    product = m.mul(m.mul(left, right), m.number(4.0, left))
    rounded = m.writer.operation("round_nearest_even", [product], product.shape, product.type, short=True)
    return m.mul(rounded, m.number(0.25, left))


def own(kind: type[Element], emittable: Emittable | None) -> Element:
    element = kind()
    element.name, element.dtype, element.emittable = "own", np.dtype(np.float32), emittable
    element.round = Halved.round.__get__(element)
    return element


def test_an_element_of_one_s_own_spells_its_operations() -> None:
    element = own(Halved, Emittable("f32", bodies={"mul": quarters}))
    assert body(emitted(lambda tape: (x := tape.parameter(1.5)) * x, element)) == [
        "%v1_multiply = stablehlo.multiply %arg0, %arg0 : tensor<f32>",
        "%v1_number = stablehlo.constant dense<4.0> : tensor<f32>",
        "%v1_multiply_2 = stablehlo.multiply %v1_multiply, %v1_number : tensor<f32>",
        "%v1_round_nearest_even = stablehlo.round_nearest_even %v1_multiply_2 : tensor<f32>",
        "%v1_number_2 = stablehlo.constant dense<0.25> : tensor<f32>",
        "%v1 = stablehlo.multiply %v1_round_nearest_even, %v1_number_2 : tensor<f32>",
        "return %v1 : tensor<f32>",
    ]


@pytest.mark.parametrize(
    ("element", "record", "message"),
    [
        (own(Plain, None), lambda x: x, "%0 Parameter [2] LINE: element own has no Emittable contract"),
        (
            own(Plain, Emittable("f64")),
            lambda x: x,
            "%0 Parameter [2] LINE: element own is float32 in memory, which f64 is not",
        ),
        (
            own(Halved, Emittable("f32", bodies={"mul": quarters})),
            lambda x: x.sum(),
            "%1 Sum [] LINE: element own has sums of its own, which no reduction of StableHLO is",
        ),
    ],
)
def test_what_cannot_be_emitted_names_the_node(element: Element, record: Callable[..., Any], message: str) -> None:
    with pytest.raises(EmissionError) as caught:
        emitted(lambda tape: record(tape.parameter([1.0, 2.0])), element)
    assert re.sub(r"\S*test_module\.py:\d+", "LINE", str(caught.value)) == f"emit_stablehlo: {message}"


def test_an_emittable_has_a_type() -> None:
    with pytest.raises(ValueError, match=r"^emittable: type is one of bf16, f16, f32, f64, got 'i8'$"):
        Emittable("i8")


def test_the_text_grows_with_the_nodes() -> None:
    """Twice the nodes are twice the lines, and what is done for each does not grow."""

    def chain(count: int) -> Callable[[Tape], Any]:
        def record(tape: Tape) -> Any:
            x = tape.parameter(np.ones(4))
            for _ in range(count):
                x = x.tanh()
            return x

        return record

    assert [len(emitted(chain(count)).splitlines()) for count in (500, 1000)] == [505, 1005]
