"""Products in plans: what follows a result in its registers, operands stored narrower, and updates in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from topos import Element, Tape, bf16, f32, f64
from topos.testing import assert_same_bits

from ..plans import checked

pytest.importorskip("llvmlite")

SIZES = [(3, 5, 7), (1, 600, 1), (70, 513, 17), (2, 1030, 3), (8, 3, 257), (64, 64, 1), (1, 64, 64), (33, 70, 50)]


def numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=lambda element: element.name)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_rows_after_a_product_are_part_of_it(size: tuple[int, int, int], element: Element) -> None:
    rows, terms, columns = size

    def record(tape: Tape) -> Any:
        left, right = tape.input(numbers(rows, terms)), tape.input(numbers(terms, columns))
        mask, bias = tape.input(numbers(columns, rows)).transpose(), tape.parameter(numbers(columns))
        product = left @ right + bias.broadcast_along(0, rows)
        selected = mask.select(product * mask + product.one_like(), product - mask).maximum(mask)
        turned = right.transpose() @ left.transpose() * mask.transpose()
        return [selected, turned.sum_along(0), product]

    told = checked(record, element)
    if rows * columns > 1:
        assert "MatMul 7:Add" in told


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_each_product_of_a_batch_has_its_own_rows(size: tuple[int, int, int]) -> None:
    rows, terms, columns = size

    def record(tape: Tape) -> Any:
        left, right = tape.input(numbers(2, 3, rows, terms)), tape.input(numbers(2, 3, terms, columns))
        product, bias = left @ right, tape.input(numbers(2, 3)).broadcast_along(2, rows).broadcast_along(3, columns)
        return [product * 0.5 - bias, product]

    assert " 1 group," in checked(record)


def test_elementary_functions_stay_in_loops() -> None:
    told = checked(lambda tape: (tape.input(numbers(20, 30)) @ tape.input(numbers(30, 40))).tanh())
    assert "the product %2 takes only a few cheap nodes of its element" in told


@pytest.mark.parametrize("narrow, wide", [(bf16, f32), (bf16, f64), (f32, f64)], ids=str)
def test_a_product_widens_what_it_reads(narrow: Element, wide: Element) -> None:
    def record(tape: Tape) -> Any:
        weight = tape.parameter(numbers(70, 50), element=narrow).to(wide)
        x = tape.input(numbers(33, 70))
        part = weight.narrow(0, 3, 40).transpose() @ x.transpose().narrow(0, 3, 40)
        return [x @ weight, part]

    told = checked(record, wide)
    assert "Cast" not in told
    assert (
        checked(lambda tape: [w := tape.parameter(numbers(9, 9), element=narrow).to(wide), w @ w], wide).count("Cast")
        == 1
    )


def test_an_update_is_written_over_its_weight_by_the_product_of_its_gradient() -> None:
    def record(tape: Tape) -> Any:
        weight, x = tape.parameter(numbers(70, 50)), tape.input(numbers(33, 70))
        loss = (x @ weight).tanh().sum()
        gradient = tape.differentiate(loss, weight).of(weight)
        return weight, loss, weight - gradient * 0.1

    network, (weight, loss, following) = Tape.record(record)
    plan = network.entry(loss).carry({weight: following}).lower()
    assert " 3 groups, 0 copies" in plan.explain()
    state, expected = network.state(), network.state()
    for _ in range(3):
        plan.advance(state)
        expected.replace({weight.index: network.entry(following).interpret(expected).of(following)})
    assert_same_bits(state.of(weight), expected.of(weight))


def test_a_weight_that_the_product_itself_reads_is_not_written_over() -> None:
    def record(tape: Tape) -> Any:
        weight = tape.parameter(numbers(40, 40))
        return weight, weight - weight @ weight * 0.1

    network, (weight, following) = Tape.record(record)
    plan = network.entry([]).carry({weight: following}).lower()
    assert " 1 copy," in plan.explain()
    state = network.state()
    plan.advance(state)
    assert_same_bits(state.of(weight), network.entry(following).interpret(network.parameters()).of(following))
