"""Tensors that compute at once, by native kernels: the bits of the definition, wherever an operand lies."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")


from topos import Element, ElementError, Tensor, bf16, f32, f64, op
from topos.backend.native import eager, layouts
from topos.tensor import offer, services
from topos.testing import assert_same_bits
from topos.testing.instructions import every_sample

from .eager_kinds import LAYOUTS, by_definition, laid, native_steps, offer_everything
from .samples import ELEMENTS, INSTRUCTIONS, any_bits, drawn, operands, result_element


@pytest.fixture(autouse=True)
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    offer_everything(monkeypatch)


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("opcode", INSTRUCTIONS, ids=str)
def test_elementwise_instructions_over_special_values(opcode: Any, element: Element) -> None:
    arrays = operands(opcode, element, 400)
    tensors = [Tensor.of(array, element) for array in arrays]
    expected = by_definition(opcode, result_element(opcode, element), *tensors)
    with native_steps(1):
        assert_same_bits(opcode.express(tensors), expected)


@pytest.mark.parametrize("sample", every_sample(), ids=str)
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_every_instruction(sample: Any, element: Element) -> None:
    tensors = sample.payloads(element)
    wanted = result_element(sample.opcode, element)
    assert_same_bits(sample.opcode.express(tensors), by_definition(sample.opcode, wanted, *tensors))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_layouts_of_elementwise_operands(element: Element, layout: str) -> None:
    for shape in ((5, 37), (3, 4, 18), (2, 1, 3, 5)):
        left, right = laid(drawn(element, shape), layout, element), Tensor.of(drawn(element, shape, 1), element)
        for pair in ((left, right), (right, left), (left, left)):
            with native_steps(1):
                assert_same_bits(pair[0] * pair[1], by_definition(op.MUL, element, *pair))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("other", ["dense", "transposed", "columns repeated"])
def test_layouts_of_two_operands(layout: str, other: str) -> None:
    left, right = laid(drawn(f32, (7, 21)), layout, f32), laid(drawn(f32, (7, 21), 1), other, f32)
    with native_steps(1):
        assert_same_bits(left - right, by_definition(op.SUB, f32, left, right))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_layouts_of_products(element: Element, layout: str) -> None:
    for rows, inner, columns in ((5, 7, 9), (33, 70, 18), (1, 40, 33)):
        left, right = drawn(element, (rows, inner)), drawn(element, (inner, columns))
        pairs = [
            (laid(left, layout, element), Tensor.of(right, element)),
            (Tensor.of(left, element), laid(right, layout, element)),
        ]
        for pair in pairs:
            with native_steps(1):
                assert_same_bits(pair[0] @ pair[1], by_definition(op.MATMUL, element, *pair))


def test_products_of_batches() -> None:
    left, right = Tensor(drawn(f32, (3, 2, 5, 6))), Tensor(drawn(f32, (3, 2, 4, 6))).permute([0, 1, 3, 2])
    with native_steps(1):
        assert_same_bits(left @ right, by_definition(op.MATMUL, f32, left, right))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_layouts_of_reductions(element: Element, layout: str) -> None:
    tensor = laid(drawn(element, (6, 19, 5)), layout, element)
    kinds = (op.SumAlong, op.MaxAlong, op.LogSumExp, op.LogSoftmax)
    for opcode in (op.SUM, *(kind(axis) for kind in kinds for axis in range(3))):
        with native_steps(1):
            assert_same_bits(opcode.express([tensor]), by_definition(opcode, element, tensor))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_layouts_of_indexed_rows(element: Element, layout: str) -> None:
    tensor = laid(drawn(element, (9, 11)), layout, element)
    chosen = Tensor.selection([3, 8, -1, 0, 3], 9, absent=-1)
    placed = Tensor.selection([3, 2, -1, 0, 3, 3, 1, -1, 2], 4, absent=-1)
    for opcode, pair in ((op.GATHER, (tensor, chosen)), (op.SCATTER, (tensor, placed))):
        assert_same_bits(opcode.express(pair), by_definition(opcode, element, *pair))


def test_ids_are_numbers_of_a_call_and_not_of_a_kernel() -> None:
    table = Tensor(drawn(f32, (9, 11)))
    for ids in ([1, 2, 8], [0, 0, 0], [5, -1, 5]):
        chosen = Tensor.selection(ids, 9, absent=-1)
        with native_steps(1):
            assert_same_bits(table.gather(chosen), by_definition(op.GATHER, f32, table, chosen))
    assert len(eager._kinds) == 1


def test_numbers_are_numbers_of_a_call_and_not_of_a_kernel() -> None:
    tensor = Tensor(drawn(f32, (40,)))
    for number in (2.0, -0.5, float("nan"), 0.1):
        with native_steps(1):
            assert_same_bits(tensor * number, tensor.numpy() * np.float32(number))
    assert len(eager._kinds) == 1


def test_results_own_their_buffers() -> None:
    tensor = Tensor(drawn(f32, (40,)))
    first = tensor + tensor
    kept = first.numpy().copy()
    second = first + tensor
    assert not np.shares_memory(first.numpy(), second.numpy())
    assert_same_bits(first, kept)
    with pytest.raises(ValueError, match="read-only"):
        first.numpy()[0] = 1


def test_a_users_element_is_never_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offer, "served", None)
    tensor = Tensor([1.0, 2.0], _users())
    assert (tensor + tensor).tolist() == [2.0, 4.0]
    with pytest.raises(ElementError, match="^cast: f64 cannot be made from users$"):
        tensor.to(f64)
    assert (tensor.reshape([1, 2]) @ tensor.reshape([2, 1])).tolist() == [[5.0]]


def _users() -> Element:
    class Users(Element):
        name = "users"
        dtype = np.dtype(np.float32)

        def round(self, array: Any) -> Any:
            return array.astype(np.float32)

        def add(self, left: Any, right: Any) -> Any:
            return left + right

        def mul(self, left: Any, right: Any) -> Any:
            return left * right

        def fma(self, left: Any, right: Any, third: Any) -> Any:
            return left * right + third

    return Users()


def test_a_selection_beside_a_product_is_left_to_numpy() -> None:
    selection, table = Tensor.selection([1, 0], 3), Tensor(drawn(f32, (3, 4)))
    with native_steps(0):
        assert_same_bits(selection @ table, by_definition(op.MATMUL, f32, selection, table))


def test_nothing_is_native_where_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPOS_NATIVE", "0")
    tensor = Tensor(drawn(f32, (40,)))
    with native_steps(0):
        assert_same_bits(tensor.tanh(), by_definition(op.MAPS[op.MapOperation.TANH], f32, tensor))
    assert not eager._kinds


def test_a_kernel_is_made_when_numpy_has_spent_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = Tensor(drawn(f32, (1000,)))
    monkeypatch.setattr(eager, "PROGRAM_NS", 3 * 15.0 * 1000)
    with services.tallied() as tally:
        for _ in range(5):
            tensor.tanh()
    assert tally.count(backend="SIMD") == 3


def test_kinds_are_forgotten_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "MOST_KINDS", 2)
    tensors = [Tensor(drawn(f32, (length,))) for length in (3, 4, 5, 3)]
    for tensor in tensors:
        with native_steps(1):
            assert_same_bits(tensor + tensor, by_definition(op.ADD, f32, tensor, tensor))
        assert len(eager._kinds) <= 2


def test_a_failed_compilation_leaves_the_work_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*facts: Any) -> Any:
        raise RuntimeError("no room for code")

    monkeypatch.setattr("topos.backend.native.eager_program.executable", refuse)
    tensor = Tensor(drawn(f32, (40,)))
    with pytest.warns(RuntimeWarning) as warned, native_steps(0):
        assert_same_bits(tensor + tensor, by_definition(op.ADD, f32, tensor, tensor))
    assert [str(one.message) for one in warned] == ["tensor: no native kernel, NumPy computes: no room for code"]
    with native_steps(0):
        tensor + tensor


def test_threads_at_once() -> None:
    tensors = [Tensor(any_bits(f32, 700 + at % 3, np.random.default_rng(at))) for at in range(8)]
    expected = [by_definition(op.MAPS[op.MapOperation.EXP], f32, tensor) for tensor in tensors]
    failed: list[BaseException] = []

    def work(at: int) -> None:
        try:
            for _ in range(50):
                assert_same_bits(tensors[at].exp(), expected[at])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (3,), (4, 1, 5), (2, 3, 4)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_says_where_numbers_are_read(shape: tuple[int, ...], layout: str) -> None:
    if len(shape) < 2 and layout != "one number":
        pytest.skip("of one layout")
    array = LAYOUTS[layout](drawn(f32, shape))
    dense, found = layouts.laid_out(array)
    assert dense.flags.c_contiguous and dense.shape == found.dense
    for opcode, made in found.movements():
        dense = opcode.view(dense)  # type: ignore[attr-defined]
        assert dense.shape == made
    assert_same_bits(dense, array)


def test_what_repeats_is_not_copied() -> None:
    for layout in ("transposed", "rows repeated", "one number", "inner axes swapped"):
        array = LAYOUTS[layout](drawn(f32, (6, 7)))
        assert np.shares_memory(layouts.laid_out(array)[0], array)


def test_small_work_loads_nothing() -> None:
    text = (
        "import sys, numpy as np; from topos import Tensor; x = Tensor(np.ones((64, 64), np.float32)); "
        "y = (x @ x).tanh().sum(); heavy = ('llvmlite', 'topos.backend.native'); "
        "print(any(name.startswith(heavy) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True).stdout == "False\n"


def test_elements_that_are_offered_have_a_native_reading() -> None:
    from topos.backend.native.reading import has_arithmetic
    from topos.element.built_in import BUILT_IN

    assert {f32, f64, bf16} == BUILT_IN
    assert all(has_arithmetic(element) for element in BUILT_IN)
