"""Which rows share a kernel, what is read in place, and what is never computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from topos import Tape, Tensor, bf16, concat, f32, f64
from topos.element import Element
from topos.graph import Value

pytest.importorskip("llvmlite")

from topos.backend.native import stream
from topos.backend.native import target as targets
from topos.backend.native.groups import Lowering
from topos.backend.native.lowered import MOST_SCHEDULED, declined
from topos.backend.native.padding import padded
from topos.backend.native.views import Guard, View, dense
from topos.backend.native.writers import write
from topos.engine.liveness import schedule
from topos.op import Pad
from topos.shape import Shape

from .kernel_checks import check_kernels, target_named, values_of


def lowered(tape: Tape, kept: Sequence[Value]) -> Lowering:
    spec, rows = tape.into_network().spec, [value.index for value in kept]
    return Lowering(spec, schedule(spec.rows, rows), rows)


def names(lowering: Lowering) -> list[list[str]]:
    return [[lowering.spec.rows[row].opcode.name for row in group.rows] for group in lowering.groups]


def check(tape: Tape, kept: Sequence[Value], target: str = "host") -> None:
    rows = [value.symbol().index for value in kept]
    network = tape.into_network()
    assert check_kernels(network.spec, rows, values_of(network, {}), target_named(target)) == []


def numbers(*shape: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.random.default_rng(11).standard_normal(shape)


def test_a_zero_leaf_is_not_added_to_what_is_never_minus_zero() -> None:
    tape = Tape()
    x, w = tape.parameter(numbers(4, 5)), tape.parameter(numbers(5, 3))
    product = x @ w
    total = x.sum_along(0) + 0.0
    values = [(product + 0.0).tanh(), (0.0 + product.exp()) * 2.0, total.tanh()]
    assert not any("Add" in group for group in names(lowered(tape, values)))


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
def test_a_zero_leaf_is_added_where_minus_zero_may_be(element: Element) -> None:
    tape = Tape(element)
    x = tape.parameter([-0.0, 0.0, -1e-41, 3.0], element=element)
    tiny = tape.parameter(np.full((4, 2), -1e-41 if element is bf16 else -0.0), element=element)
    zero = x.zero_like()
    values = [
        (x + zero) * 1.0,
        (-x + zero) / 3.0,
        (x * x + zero).sqrt(),
        zero.maximum(x) + zero,
        x.maximum(zero) + zero,
    ]
    values += [(tiny.sum_along(1) + zero) * 2.0, x.sin() + zero, (x - x) + zero, x.to(f64).to(element) + zero]
    check(tape, [value.exp() / value for value in values])


def test_what_constants_make_is_a_constant() -> None:
    tape = Tape()
    x = tape.parameter(numbers(3))
    half = tape.leaf(1.0) / tape.leaf(2.0)
    lowering = lowered(tape, [x * half.broadcast([3])])
    assert names(lowering) == [["Mul"]]
    assert float(lowering.constants[half.index]) == 0.5


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
@pytest.mark.parametrize("shape", [(3, 5), (2, 40, 33), (7,)])
def test_pads_are_read_where_they_are_used(shape: tuple[int, ...], element: Element) -> None:
    for axis in range(len(shape)):
        tape = Tape(element)
        parts = [tape.parameter(numbers(*shape) + part, element=element) for part in range(3)]
        joined = concat(parts, axis)
        twice = (
            parts[0].pad(axis, 2, shape[axis] + 5, 7.0).pad(0, 1, (shape[0] + 5 if axis == 0 else shape[0]) + 2, -0.0)
        )
        grown = twice.exp() + twice
        values = [joined, grown, (grown * twice).softmax(len(shape) - 1), joined.sum_along(axis).exp()]
        values.append((parts[0].pad(axis, 0, shape[axis] + 1) * 2.0).sum())
        values.append(parts[1].permute([*reversed(range(len(shape)))]).pad(0, 1, shape[-1] + 1, np.inf).tanh())
        check(tape, values)


def test_a_concat_is_one_group() -> None:
    tape = Tape()
    joined = concat([tape.parameter(numbers(2, 3)) for _ in range(3)], 1)
    assert names(lowered(tape, [joined])) == [["Add", "Add"]]


def test_pads_of_pads() -> None:
    once = padded(dense(4, Shape([3, 5])), Pad(1, 2, 9, 1.0), Shape([3, 9]))
    assert once == View(4, -2, Shape([3, 9]), (5, 1), (Guard(1, 2, 5, 1.0),))
    again = padded(once, Pad(1, 1, 11, -0.0), Shape([3, 11]))
    assert again.offset == -3
    assert again.guards == (Guard(1, 3, 5, 1.0), Guard(1, 1, 9, -0.0))


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
def test_selections_stand_for_their_one_hot_rows(element: Element) -> None:
    tape = Tape(element)
    chosen = tape.leaf(Tensor.selection([2, -1, 0, 2], 3, absent=-1))
    table, rows = tape.parameter(numbers(3, 5), element=element), tape.parameter(numbers(4, 5), element=element)
    flat = chosen.reshape([12])
    values = [
        chosen @ table,
        chosen.permute([1, 0]) @ rows,
        flat * tape.parameter(numbers(12), element=element),
        chosen.permute([1, 0]).sum_along(0),
        chosen.sum(),
        chosen.reshape([2, 6]).max_along(1),
        chosen.narrow(0, 1, 2).pad(1, 1, 5, 2.0),
        chosen.reshape([2, 2, 3]).permute([1, 2, 0]).reshape([12]),
        tape.leaf(Tensor.filled([3, 2], 1.5, element)).gather(chosen),
        tape.leaf(Tensor.filled([4, 2], 1.5, element)).scatter(chosen),
        rows.permute([1, 0]).narrow(0, 0, 4).scatter(chosen),
        chosen.permute([1, 0]).gather(chosen),
        chosen.permute([1, 0]).narrow(1, 0, 3).permute([1, 0]).pad(0, 0, 4).scatter(chosen),
    ]
    check(tape, values)


@pytest.mark.parametrize("element", [f32, bf16], ids=str)
@pytest.mark.parametrize(("shape", "axis"), [((40, 300), 0), ((600, 400), 0), ((3, 33, 200), 1), ((1030, 131), 0)])
def test_columns_are_summed_by_panels(shape: tuple[int, ...], axis: int, element: Element) -> None:
    tape = Tape(element)
    x, y = (tape.parameter(numbers(*shape) + part, element=element) for part in range(2))
    slope = x * (y.one_like() - y * y)
    quotient = slope.sum_along(axis) / x.sum_along(axis)
    check(tape, [slope, quotient * quotient, (x * y).sum_along(axis).tanh()])


@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3", "host"])
def test_lanes_that_do_not_exist_are_not_divided_to_zero(target: str) -> None:
    """LLVM takes 0 / 0 for 0 in lanes that it knows to be zero."""
    tape = Tape()
    x = tape.parameter([1.5, 2.5, 3.5])
    check(tape, [(x / x).sum(), (x / x).max_along(0)], target)


def test_very_many_small_nodes_are_declined() -> None:
    tape = Tape()
    y = x = tape.parameter(1.0)
    for _ in range(MOST_SCHEDULED):
        y = y + x
    spec = tape.into_network().spec
    every = range(len(spec.rows))
    assert (
        declined(spec, every)
        == f"{MOST_SCHEDULED + 1} nodes of few numbers each take longer to compile than to interpret"
    )
    assert declined(spec, every[:-1]) is None


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
def test_results_that_go_past_the_caches(element: Element, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "STREAMED_BYTES", 64)
    for extent in (7, 64, 129, 1000, 70_001):
        tape = Tape(element)
        x, y = (tape.parameter(numbers(extent) + part, element=element) for part in range(2))
        check(tape, [(x * y).exp() + x, (x + y) * 2.0])


def test_what_is_read_again_stays_in_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "STREAMED_BYTES", 64)
    tape = Tape()
    x = tape.parameter(numbers(64, 64))
    y = x.tanh()
    lowering = lowered(tape, [y @ x])
    texts = [kernel.text for kernel in write(lowering, lowering.groups[0], target_named("host")).kernels]
    assert not any("nontemporal" in text for text in texts)
    lowering = Lowering(lowering.spec, [0, 1], [1])
    texts = [kernel.text for kernel in write(lowering, lowering.groups[0], target_named("host")).kernels]
    assert targets.host().vector_bytes < 32 or any("nontemporal" in text for text in texts)


@pytest.mark.parametrize("count", [24, 25, 2000])
def test_a_loop_takes_few_rows_that_read_nothing_of_it(count: int) -> None:
    """They would be many pointers in few registers; and however many there are, each finds a loop that has room."""
    tape = Tape()
    apart = lowered(tape, [tape.input(shape=[5]) * 2.0 for _ in range(count)])
    assert len(apart.groups) == -(-count // 24)
    tape = Tape()
    ends = [(tape.input(shape=[5]) * 2.0 + 1.0).exp() for _ in range(count)]
    assert len(lowered(tape, ends).groups) <= -(-count // 8)
    tape = Tape()
    value = tape.input(shape=[5])
    for _ in range(100):
        value = value * 2.0 + 1.0
    assert [len(group.rows) for group in lowered(tape, [value]).groups] == [128, 72]


def test_what_a_chain_of_functions_reads_is_fetched_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "STREAMED_BYTES", 64)
    fetched = []
    for functions in (False, True):
        tape = Tape()
        total = tape.parameter(numbers(128)) + tape.parameter(numbers(128))
        lowering = lowered(tape, [total.tanh() if functions else total])
        (group,) = lowering.groups
        written = write(lowering, group, target_named("host"))
        fetched.append(sum(kernel.text.count("call void @llvm.prefetch") for kernel in written.kernels))
    assert fetched == [0, 2 if targets.host().vector_bytes >= 32 else 0]
