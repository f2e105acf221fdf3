"""Copies of what a group computes: stored by the group itself where nobody wants the numbers in another order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import Element, Tape, bf16, f32, f64
from topos.testing import assert_same_bits

from ..plans import checked

pytest.importorskip("llvmlite")

from topos.backend.native import prologues


def numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def copies(record: Callable[[Tape], Any], element: Element = f32) -> int:
    """How many kernels of a plan are copies; its results are the interpreter's."""
    return checked(record, element).count("  copy_")


def product(tape: Tape) -> Any:
    return tape.input(numbers(3, 5, 7)) @ tape.input(numbers(3, 7, 4))


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=lambda element: element.name)
def test_a_product_stores_in_the_order_of_its_copy(element: Element) -> None:
    def record(tape: Tape) -> Any:
        joined = product(tape).permute([1, 0, 2]).reshape([5, 12])
        return [joined @ tape.input(numbers(12, 6)), joined.sum_along(1), joined.transpose().exp()]

    assert copies(record, element) == 0
    assert copies(lambda tape: [(product(tape) * 2 + 1).permute([2, 1, 0]).reshape([4, 15]).sum_along(1)], element) == 0


@pytest.mark.parametrize("order", [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]], ids=str)
def test_a_result_in_any_order_is_stored_once(order: list[int]) -> None:
    assert copies(lambda tape: [product(tape).permute(order)]) == 0
    assert copies(lambda tape: [product(tape).permute(order).reshape([60])]) == 0
    assert copies(lambda tape: [(product(tape) + 1).permute(order)]) == 0


def test_a_result_that_is_another_shape_of_a_value_is_stored_once() -> None:
    assert copies(lambda tape: [tape.input(numbers(6, 4)).exp().reshape([24])]) == 0
    read = lambda x: [x.reshape([24]), x.sum_along(0), x @ x.transpose()]  # noqa: E731
    assert copies(lambda tape: read(tape.input(numbers(6, 4)).exp())) == 0
    assert copies(lambda tape: [tape.input(numbers(6, 4)).sum_along(1).reshape([2, 3])]) == 0


def test_what_is_read_in_two_orders_is_copied() -> None:
    assert copies(lambda tape: [(x := product(tape)), x.permute([1, 0, 2])]) == 1
    assert copies(lambda tape: [x := product(tape).exp(), x.permute([1, 0, 2])]) == 1
    assert copies(lambda tape: [(x := product(tape)).reshape([15, 4]), x.reshape([60])]) == 1
    assert copies(lambda tape: [(x := product(tape)).permute([1, 0, 2]), x.permute([2, 0, 1])]) == 2
    assert copies(lambda tape: [(x := product(tape)).permute([1, 0, 2]), x.exp()]) == 1


def test_other_kernels_store_in_their_own_order() -> None:
    assert copies(lambda tape: [tape.input(numbers(6, 4)).exp().transpose()]) == 1
    assert copies(lambda tape: [product(tape).narrow(1, 1, 3).permute([1, 0, 2])]) == 1
    assert copies(lambda tape: [tape.input(numbers(6, 4)).reshape([24])]) == 1
    assert copies(lambda tape: [product(tape).reshape([3, 10, 2]).permute([1, 0, 2])]) == 1


def test_many_steps_store_each_their_own() -> None:
    def record(tape: Tape) -> Any:
        x = tape.input(numbers(6, 6), name="x")
        moved = (x @ tape.input(numbers(6, 6))).tanh()
        return x, moved, [moved.reshape([36]), (moved @ moved).transpose()]

    network, (x, moved, results) = Tape.record(record)
    plan = network.entry(results).carry({x: moved}).lower()
    state, other = network.state(), network.state()
    every = plan.advance(state, {}, steps=3)
    for at in range(3):
        one = plan.advance(other, {})
        for result in results:
            assert_same_bits(every.of(result)[at], one.of(result))


def test_a_copy_of_nothing_is_no_place_for_a_number() -> None:
    def record(tape: Tape) -> Any:
        total = tape.input(numbers(0, 3)).logsumexp(0)
        return [total.broadcast_along(0, 0), total.sum() + 1.0]

    copies(record)


def test_what_a_product_works_out_reads_the_value_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("LEAST_NUMBERS", "LEAST_OF_FEW_USES", "FEW_USES", "LEAST_ACROSS"):
        monkeypatch.setattr(prologues, limit, 1)

    def record(tape: Tape) -> Any:
        joined = (tape.input(numbers(3, 20, 7)) @ tape.input(numbers(3, 7, 4))).permute([1, 0, 2]).reshape([20, 12])
        return [(joined * 0.5 + 1.0) @ tape.input(numbers(12, 16))]

    network, results = Tape.record(record)
    plan = network.entry(results).lower()
    told = plan.explain()
    assert "left operand packed as" in told
    assert "  copy_" not in told
    expected = network.entry(results).interpret(network.parameters()).of(results)
    assert_same_bits(plan.forward(network.parameters()).of(results), expected)


def and_zero(value: Any) -> Any:
    return value.zero_like() + value


def test_what_a_zero_is_added_to_is_stored_as_the_sum() -> None:
    def record(tape: Tape) -> Any:
        x = tape.input(numbers(6, 4)).relu()
        return [and_zero(x.reshape([24]))]

    assert " 1 group," in checked(record)


def test_a_zero_is_added_where_that_may_change_a_sign() -> None:
    def record(tape: Tape) -> Any:
        signed = tape.input(np.where(numbers(6, 4) > 0, -0.0, 1.0))
        turned = signed.relu() * -1.0
        return [and_zero(signed), and_zero(turned.reshape([24])), turned]

    checked(record)


def test_a_sum_with_zero_that_is_read_beside_it_is_one_buffer() -> None:
    def record(tape: Tape) -> Any:
        x = tape.input(numbers(6, 4)).relu()
        turned = and_zero(x.reshape([24]))
        return [turned, turned * 2.0, x.sum_along(0)]

    assert "Add" not in checked(record)


def test_a_sum_with_zero_is_read_beside_it_under_another_name() -> None:
    def record(tape: Tape) -> Any:
        x = tape.input(numbers(30, 24)).sum_along(0)
        turned = and_zero(x.reshape([6, 4]))
        again = turned.reshape([24]).reshape([6, 4])
        return [turned, again * tape.input(numbers(6, 4)), turned.stop() - again]

    assert "Add" not in checked(record)


def test_a_product_stores_in_the_order_of_a_sum_with_zero() -> None:
    def record(tape: Tape) -> Any:
        return [and_zero(product(tape).permute([1, 0, 2]))]

    assert " 1 group," in checked(record)
