"""Windows of a few terms are reduced where what they come to is read, and only places that are read are folded."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import Element, Tape, Value, bf16, f32, f64
from topos.neural import average_pool, max_pool

pytest.importorskip("llvmlite")

from ..plans import check_steps
from .kernel_checks import check_kernels, target_named, values_of
from .worked_out_checks import ELEMENTS, WORKED_OUT, checked, gradient, numbers, worked_out

BOTH = pytest.mark.parametrize("pool", [max_pool, average_pool])
Pool = Callable[..., Value]


def windows(x: Value, size: int, step: int, dilation: int) -> Value:
    """Of a batch of pictures, along both axes."""
    return x.unfold(3, size, step, dilation).unfold(2, size, step, dilation)


def largest(x: Value) -> Value:
    return x.max_along(5).max_along(3)


def total(x: Value) -> Value:
    return x.sum_along(5).sum_along(3)


def stores(told: str) -> list[str]:
    return re.findall(r"stores ([\d, ]+)", told)


SHAPES = {  # the picture, and the size, step and dilation of its windows
    "usual": ((2, 3, 15, 33), 3, 2, 1),
    "every place": ((2, 2, 9, 35), 3, 1, 1),
    "by three": ((1, 2, 23, 41), 5, 3, 1),
    "dilated": ((2, 2, 17, 29), 3, 2, 2),
    "dilated by three": ((1, 3, 19, 43), 4, 1, 3),
    "beyond the window": ((2, 3, 14, 37), 2, 5, 1),
    "far beyond the window": ((1, 2, 40, 60), 2, 19, 1),
    "one term": ((2, 2, 7, 9), 1, 2, 1),
    "two": ((2, 3, 8, 16), 2, 2, 1),
    "sixteen": ((1, 1, 19, 40), 16, 2, 1),
    "one window": ((3, 2, 3, 3), 3, 1, 1),
    "narrow": ((3, 2, 12, 2), 2, 1, 1),
}


@ELEMENTS
@pytest.mark.parametrize("taken", [largest, total])
@pytest.mark.parametrize("case", SHAPES)
def test_windows(case: str, taken: Callable[[Value], Value], element: Element) -> None:
    shape, size, step, dilation = SHAPES[case]

    def record(tape: Tape) -> list[Value]:
        return [taken(windows(tape.parameter(numbers(*shape)), size, step, dilation))]

    told = checked(record, element)
    assert len(stores(told)) == 1 or case in ("far beyond the window", "one window")


@ELEMENTS
@pytest.mark.parametrize("taken", [largest, total])
@pytest.mark.parametrize("case", SHAPES)
def test_gradients_of_windows(case: str, taken: Callable[[Value], Value], element: Element) -> None:
    shape, size, step, dilation = SHAPES[case]

    def record(tape: Tape) -> list[Value]:
        x = tape.parameter(numbers(*shape))
        y = taken(windows(x, size, step, dilation))
        return [gradient(y, x, tape), y]

    checked(record, element)


@pytest.mark.parametrize("threads", range(1, 5))
@BOTH
def test_any_number_of_threads(pool: Pool, threads: int) -> None:
    def record(tape: Tape) -> list[Value]:
        x = tape.parameter(numbers(4, 16, 31, 33))
        y = pool(x, 3, stride=2, padding=1)
        return [gradient(y, x, tape), y]

    assert WORKED_OUT in checked(record, counts=[threads])


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), -0.0])
@BOTH
def test_numbers_of_every_kind(pool: Pool, number: float) -> None:
    def record(tape: Tape) -> list[Value]:
        drawn = numbers(2, 2, 13, 37)
        x = tape.parameter(np.where(drawn == 1.0, number, drawn))
        y = pool(x, 3, stride=1, padding=1)
        return [y, gradient(y, x, tape)]

    checked(record)


CLAIMED = [(3, 2, 1), (3, 2, 0), (3, 1, 1), (5, 3, 2), (3, 3, 1), (2, 2, 1)]


@pytest.mark.parametrize("case", CLAIMED, ids=str)
@BOTH
def test_nothing_larger_than_the_picture_is_stored(pool: Pool, case: tuple[int, int, int]) -> None:
    size, stride, padding = case
    shape = (2, 3, 32, 34)

    def record(tape: Tape) -> list[Value]:
        x = tape.parameter(numbers(*shape))
        return [gradient(pool(x, size, stride=stride, padding=padding), x, tape)]

    network, results = Tape.record(record)
    plan = network.entry(results).lower()
    kinds = [pattern.kind for pattern in plan.patterns()]
    # A gradient of averages reads no average.
    assert kinds == (["max pool", "max pool gradient"] if pool is max_pool else ["average pool gradient"])
    padded = 2 * 3 * (32 + 2 * padding) * (34 + 2 * padding)
    rows = [int(row) for line in stores(plan.explain()) for row in line.split(", ")]
    assert all(network.spec.rows[row].shape.volume <= padded for row in rows)
    # Beside the fill around it: the largest of each window, its ties or their slope, and what each place is given.
    assert len(rows) <= (2 if padding else 0) + 4


@BOTH
def test_a_pool_by_itself_stores_nothing_in_between(pool: Pool) -> None:
    network, results = Tape.record(lambda tape: [pool(tape.parameter(numbers(2, 3, 33, 35)), 3, stride=2)])
    assert len(stores(network.entry(results).lower().explain())) == 1


@ELEMENTS
def test_a_fold_of_which_some_places_are_read(element: Element) -> None:
    def record(tape: Tape) -> list[Value]:
        x, y = (tape.parameter(numbers(2, 5, 3, 8, 3)) for _ in range(2))
        other = tape.parameter(numbers(2, 6, 13))
        folded = (x * y).fold(1, 3, 2, 1, 11).fold(2, 3, 2, 1, 17)
        return [folded.narrow(2, 3, 13).narrow(1, 1, 6) * other + other]

    told = checked(record, element)
    assert WORKED_OUT in told and len(stores(told)) == 1


def test_a_fold_of_which_two_parts_are_read_together() -> None:
    def record(tape: Tape) -> list[Value]:
        folded = (tape.parameter(numbers(4, 12, 3)) * 0.5).fold(1, 3, 1, 1, 14)
        return [folded.narrow(1, 0, 9) * folded.narrow(1, 5, 9)]

    for element in (f32, f64, bf16):
        checked(record, element)


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "x86-64-v4", "host"])
@pytest.mark.parametrize("case", SHAPES)
def test_kernels(case: str, cpu: str) -> None:
    (shape, size, step, dilation), tape = SHAPES[case], Tape()
    x = tape.parameter(numbers(*shape))
    y = largest(windows(x, size, step, dilation))
    ((_, slope),) = tape.differentiate((y * tape.leaf(numbers(*y.shape))).sum(), [x])
    kept = [slope.symbol().index, y.symbol().index]
    network = tape.into_network()

    assert check_kernels(network.spec, kept, values_of(network, {}), target_named(cpu), worked_out) == []


@ELEMENTS
@pytest.mark.parametrize("shape", [(50, 3), (7, 2), (1, 3), (5, 40, 3), (3, 1), (257, 3)], ids=str)
def test_rows_of_a_few_terms(shape: tuple[int, ...], element: Element) -> None:
    def record(tape: Tape) -> list[Value]:
        x = tape.parameter(numbers(*shape))
        mean = x.mean_along(len(shape) - 1)
        centred = x - mean.broadcast_along(len(shape) - 1, shape[-1])
        return [(centred * centred).sum_along(len(shape) - 1), x.max_along(len(shape) - 1)]

    checked(record, element)


def test_windows_of_many_terms_are_stored() -> None:
    def record(tape: Tape) -> list[Value]:
        return [largest(windows(tape.parameter(numbers(1, 2, 40, 40)), 17, 2, 1))]

    assert len(stores(checked(record))) == 2


def test_what_is_a_result_is_stored() -> None:
    def record(tape: Tape) -> list[Value]:
        rows = windows(tape.parameter(numbers(2, 3, 15, 33)), 3, 2, 1).max_along(5)
        return [rows, rows.max_along(3)]

    (first, *_) = stores(checked(record))
    assert len(first.split(", ")) == 1 and len(stores(checked(record))) == 2


def test_what_a_product_reads_is_stored() -> None:
    def record(tape: Tape) -> list[Value]:
        rows = tape.parameter(numbers(40, 13)).unfold(1, 3, 2).max_along(2)
        return [rows @ tape.parameter(numbers(6, 10)), rows.unfold(1, 2).max_along(2)]

    assert len(stores(checked(record))) == 3


def test_windows_of_what_was_worked_out_are_stored() -> None:
    def record(tape: Tape) -> list[Value]:
        rows = tape.parameter(numbers(2, 3, 15, 33)).unfold(3, 3, 2).max_along(4)
        return [rows.unfold(2, 3, 2).max_along(4)]

    assert len(stores(checked(record))) == 2


def test_reductions_in_another_order_are_stored() -> None:
    def record(tape: Tape) -> list[Value]:
        rows = tape.parameter(numbers(2, 33, 15)).unfold(1, 3, 2).max_along(2)
        return [rows.reshape([2, 16, 5, 3]).max_along(3)]

    assert len(stores(checked(record))) == 2


def test_elementary_functions_are_not_worked_out_again() -> None:
    def record(tape: Tape) -> list[Value]:
        rows = windows(tape.parameter(numbers(2, 3, 15, 33)), 3, 2, 1).exp().sum_along(5)
        return [rows.sum_along(3)]

    assert len(stores(checked(record))) == 2


@ELEMENTS
@pytest.mark.parametrize("shape", [(0, 3, 9, 9), (2, 0, 9, 9)], ids=str)
def test_no_pictures(shape: tuple[int, ...], element: Element) -> None:
    def record(tape: Tape) -> list[Value]:
        x = tape.parameter(np.zeros(shape))
        y = largest(windows(x, 3, 2, 1))
        return [y, gradient(y, x, tape)]

    assert checked(record, element).splitlines()[-1].startswith("native: ")


def test_terms_of_none() -> None:
    def record(tape: Tape) -> list[Value]:
        x = tape.parameter(np.zeros((4, 5, 0, 3)))
        return [x.max_along(3).sum_along(2), x.sum_along(2).max_along(2)]

    checked(record)


def test_a_step_that_carries() -> None:
    def record(tape: Tape) -> Any:
        x = tape.parameter(numbers(2, 2, 13, 15), name="x")
        return (max_pool(x, 3, stride=1, padding=1)).sum(), {x: x - max_pool(x, 3, stride=1, padding=1) * 0.25}

    network, (loss, following) = Tape.record(record)
    plan = network.entry(loss).carry(following).lower()
    check_steps(plan, network, [loss], following, {})


@ELEMENTS
def test_one_row_of_a_few_terms(element: Element) -> None:
    def record(tape: Tape) -> list[Value]:
        x = tape.parameter(numbers(3, 2))
        return [x.max_along(1).sum_along(0), x.max_along(0).max_along(0) * 2]

    checked(record, element)
