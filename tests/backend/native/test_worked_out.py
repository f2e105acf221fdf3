"""Folds work out what they fold: no windows are stored, and the bits are the interpreter's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from topos import Element, Tape, Value, bf16, f32, f64
from topos.backend.native.groups import Lowering
from topos.graph.spec import Spec
from topos.neural import average_pool, max_pool

pytest.importorskip("llvmlite")

from ..plans import check_steps
from .kernel_checks import check_kernels, target_named, values_of
from .worked_out_checks import ELEMENTS, WORKED_OUT, checked, gradient, numbers, worked_out

POOLS = {  # the picture, and the size, stride and padding of its windows
    "usual": ((2, 3, 14, 15), 3, 2, 1),
    "without padding": ((2, 3, 15, 17), 3, 2, 0),
    "every place": ((2, 2, 9, 33), 3, 1, 1),
    "by three": ((1, 2, 16, 35), 5, 3, 2),
    "by three side by side": ((2, 3, 13, 19), 3, 3, 1),
    "beyond the window": ((2, 3, 11, 20), 2, 3, 0),
    "far beyond the window": ((1, 2, 23, 37), 2, 9, 0),
    "by more than a register": ((1, 1, 50, 70), 20, 19, 0),
    "large": ((1, 1, 20, 40), 9, 2, 4),
    "one": ((1, 1, 3, 3), 3, 2, 1),
    "one window": ((2, 2, 3, 3), 3, 2, 0),
    "a line": ((2, 3, 33), 3, 2, 1),
    "one line": ((1, 1, 70), 4, 3, 2),
}


@ELEMENTS
@pytest.mark.parametrize("pool", [max_pool, average_pool])
@pytest.mark.parametrize("case", POOLS)
def test_gradients_of_pools(case: str, pool: Callable[..., Value], element: Element) -> None:
    shape, size, stride, padding = POOLS[case]

    def record(tape: Tape) -> list[Value]:
        x = tape.parameter(numbers(*shape))
        return [gradient(pool(x, size, stride=stride, padding=padding), x, tape)]

    told = checked(record, element)
    if min(shape[2:]) > size and (pool is max_pool or len(shape) > 3):
        assert WORKED_OUT in told and "Fold has a kernel of its own" not in told


@pytest.mark.parametrize("threads", range(1, 9))
def test_any_number_of_threads(threads: int) -> None:
    def record(tape: Tape) -> list[Value]:
        x = tape.parameter(numbers(4, 16, 31, 33))
        return [gradient(max_pool(x, 3, stride=2, padding=1), x, tape)]

    assert WORKED_OUT in checked(record, counts=[threads])


def test_no_windows_are_stored() -> None:
    network, result = Tape.record(lambda tape: pooled(tape))
    stored = {inner for pattern in network.entry(result).lower().patterns() for inner in pattern.results.values()}
    kinds = [pattern.kind for pattern in network.entry(result).lower().patterns()]
    assert kinds == ["max pool", "max pool gradient"]
    assert all(network.node(symbol).shape.volume <= 2 * 3 * 34 * 34 for symbol in stored)


def pooled(tape: Tape) -> Value:
    x = tape.parameter(numbers(2, 3, 32, 32))
    return gradient(max_pool(x, 3, stride=2, padding=1), x, tape)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), -0.0])
def test_numbers_of_every_kind(number: float) -> None:
    def record(tape: Tape) -> list[Value]:
        drawn = numbers(2, 2, 13, 21)
        x = tape.parameter(np.where(drawn == 1.0, number, drawn))
        y = max_pool(x, 3, stride=2, padding=1)
        seed = numbers(*y.shape)
        ((_, slope),) = tape.differentiate((y * tape.leaf(np.where(seed == 1.0, number, seed))).sum(), [x])
        return [slope]

    assert WORKED_OUT in checked(record)


def test_channels_last() -> None:
    for channels in (1, 3, 20):

        def record(tape: Tape, channels: int = channels) -> list[Value]:
            x = tape.parameter(numbers(2, 13, 15, channels))
            pooled = max_pool(x.permute([0, 3, 1, 2]), 3, stride=2, padding=1).permute([0, 2, 3, 1])
            return [gradient(pooled, x, tape)]

        assert WORKED_OUT in checked(record)


FOLDS: dict[str, tuple[tuple[int, ...], tuple[tuple[int, int, int, int, int], ...]]] = {
    "dilated": ((2, 5, 3, 8, 2), ((1, 3, 1, 2, 9), (2, 2, 2, 3, 18))),
    "one after the other": ((3, 4, 2, 3), ((1, 2, 2, 1, 9), (1, 3, 3, 2, 29))),
    "the offsets first": ((5, 4, 6, 2), ((2, 2, 3, 1, 17), (1, 17, 2, 1, 23))),
    "a long line after": ((2, 6, 3, 5, 3, 40), ((1, 3, 2, 1, 13), (2, 3, 1, 1, 7))),
    "short lines after": ((7, 6, 3, 9, 3), ((1, 3, 2, 1, 14),)),
    "many offsets": ((2, 4, 30, 9), ((1, 30, 2, 1, 36),)),
    "many offsets along": ((2, 9, 30), ((1, 30, 2, 1, 46),)),
    "one place": ((3, 1, 1), ((1, 1, 1, 1, 1),)),
    "a place and its windows": ((40, 2, 1, 2, 1), ((1, 1, 4, 1, 5), (2, 1, 1, 1, 2))),
}


def folded(value: Value, case: str) -> Value:
    for axis, size, step, dilation, extent in FOLDS[case][1]:
        value = value.fold(axis, size, step, dilation, extent)
    return value


@ELEMENTS
@pytest.mark.parametrize("case", FOLDS)
def test_folds_of_what_is_worked_out(case: str, element: Element) -> None:
    shape = FOLDS[case][0]
    order = [*reversed(range(len(shape)))]

    def record(tape: Tape) -> list[Value]:
        x, turned = tape.parameter(numbers(*shape)), tape.parameter(numbers(*shape[::-1]))
        one = tape.parameter(numbers(*shape[:1]))
        for extent in shape[1:]:
            one = one.broadcast_along(one.shape.rank, extent)
        return [folded(x * turned.permute(order) + one, case)]

    told = checked(record, element)
    assert WORKED_OUT in told and len(told.splitlines()) == 2


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "x86-64-v4", "host"])
@pytest.mark.parametrize("case", FOLDS)
def test_kernels(case: str, cpu: str) -> None:
    shape, tape = FOLDS[case][0], Tape()
    x, y = (tape.parameter(numbers(*shape)) for _ in range(2))
    value = folded((x * 0.5 + y).relu(), case)
    kept = [value.symbol().index]
    network = tape.into_network()

    def lowered(spec: Spec, scheduled: Sequence[int], kept: frozenset[int]) -> Lowering:
        lowering = worked_out(spec, scheduled, kept)
        assert len(lowering.groups) == 1
        return lowering

    assert check_kernels(network.spec, kept, values_of(network, {}), target_named(cpu), lowered) == []


def test_what_somebody_else_reads_is_stored() -> None:
    def record(tape: Tape) -> list[Value]:
        x, y = (tape.parameter(numbers(3, 20, 3)) for _ in range(2))
        product = x * y
        return [product.fold(1, 3, 2, 1, 41), product]

    assert WORKED_OUT not in checked(record)

    def again(tape: Tape) -> list[Value]:
        x, y = (tape.parameter(numbers(3, 20, 3)) for _ in range(2))
        product = x * y
        return [product.fold(1, 3, 2, 1, 41), product.sum_along(1)]

    assert WORKED_OUT not in checked(again)


def test_a_fold_that_is_read_in_another_shape() -> None:
    def record(tape: Tape) -> list[Value]:
        x, y = (tape.parameter(numbers(4, 3, 6, 3, 2)) for _ in range(2))
        between = (x * y).fold(2, 3, 2, 1, 13).fold(2, 2, 2, 1, 26)
        return [between.fold(1, 26, 1, 1, 28), (x * y).fold(2, 3, 2, 1, 13).reshape([4, 3, 26]).fold(1, 26, 1, 1, 28)]

    for element in (f32, f64, bf16):
        checked(record, element)


def test_windows_of_windows_along_one_axis_are_not_all_written_out() -> None:
    def record(tape: Tape) -> list[Value]:
        x = tape.parameter(numbers(3, 40, 40))
        return [(x * 0.5).fold(0, 40, 1, 1, 42).fold(0, 40, 1, 1, 81)]

    told = checked(record)
    assert WORKED_OUT in told and "2 kernels" in told


@ELEMENTS
@pytest.mark.parametrize("shape", [(0, 1, 3, 1, 17), (2, 3, 2, 0, 40), (0, 3, 2, 40), (1, 0, 3, 2, 40)], ids=str)
def test_folds_of_nothing(shape: tuple[int, ...], element: Element) -> None:
    for axis in range(len(shape) - 1):
        if 0 in shape[axis : axis + 2]:
            continue

        def record(tape: Tape, axis: int = axis) -> list[Value]:
            size, extent = shape[axis + 1], shape[axis] * 3 - 3 + shape[axis + 1]
            return [tape.parameter(np.zeros(shape)).relu().fold(axis, size, 3, 1, extent)]

        assert checked(record, element).splitlines()[-1].startswith("native: ")


@pytest.mark.parametrize("shown", ["reshape", "permute", "narrow"])
def test_a_result_in_another_form_is_stored(shown: str) -> None:
    forms: dict[str, Callable[[Value], Value]] = {
        "reshape": lambda value: value.reshape([60, 3]),
        "permute": lambda value: value.permute([2, 0, 1]),
        "narrow": lambda value: value.narrow(1, 2, 9),
    }

    def record(tape: Tape) -> list[Value]:
        x, y = (tape.parameter(numbers(3, 20, 3)) for _ in range(2))
        product = x * y
        return [product.fold(1, 3, 2, 1, 41), forms[shown](product)]

    assert WORKED_OUT not in checked(record)


def test_elementary_functions_are_not_worked_out_lane_by_lane() -> None:
    def record(tape: Tape) -> list[Value]:
        return [tape.parameter(numbers(3, 20, 3)).exp().fold(1, 3, 2, 1, 41)]

    assert WORKED_OUT not in checked(record)


def test_a_step_that_carries() -> None:
    def record(tape: Tape) -> Any:
        x = tape.parameter(numbers(2, 2, 13, 15), name="x")
        slope = gradient(max_pool(x, 3, stride=2, padding=1), x, tape)
        return slope.sum(), {x: x - slope * 0.25}

    network, (loss, following) = Tape.record(record)
    plan = network.entry(loss).carry(following).lower()
    check_steps(plan, network, [loss], following, {})
