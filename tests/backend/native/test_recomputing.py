"""Values that are worked out again where they are read, and large rows that join no loop of long ago."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from topos import Network, Tape, Value, bf16, f32, f64
from topos.element import Element
from topos.testing import assert_same_bits

pytest.importorskip("llvmlite")

from topos.backend.native import absorption, placement, recomputing
from topos.backend.native.groups import Lowering
from topos.engine.liveness import schedule

from .kernel_checks import check_kernels, target_named, values_of

Model = Callable[[Value, Value], list[Value]]
SHAPE = (40, 5)


@pytest.fixture(autouse=True)
def _little_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "LARGE", 100)
    monkeypatch.setattr(recomputing, "LEAST", 100)
    monkeypatch.setattr(absorption, "LEAST", 100)


def standard(x: Value, w: Value) -> list[Value]:
    """Columns brought to mean 0 and spread 1, scaled, cut off at 0, by a matrix, and back."""
    count = x.shape[0]
    centred = x - x.mean_along(0).broadcast_along(0, count)
    normal = centred / ((centred * centred).mean_along(0) + 1e-5).sqrt().broadcast_along(0, count)
    y = (normal * 0.75 - 0.125).relu() @ w
    return [(y * y).sum()]


def deep(x: Value, w: Value) -> list[Value]:
    for _ in range(3):
        x = (x @ w @ w.transpose()) * 0.25 + x
        x = x - x.relu() * 0.5
    return [x.sum()]


def normalised(x: Value, w: Value) -> list[Value]:
    """Rows of a product, in three axes, brought to mean 0 and spread 1, scaled and moved, by a matrix."""
    rows, columns = x.shape[0], w.shape[1]
    y = (x @ w).reshape([4, rows // 4, columns])
    centred = y - y.mean_along(2).broadcast_along(2, columns)
    deviation = ((centred * centred).mean_along(2) + 1e-5).sqrt().broadcast_along(2, columns)
    scaled = centred / deviation * (w.sum_along(0) + 2.0).broadcast_along(0, rows // 4).broadcast_along(0, 4)
    z = scaled.reshape([rows, columns]) @ w.transpose()
    return [(z * z).sum()]


def recorded(model: Model, element: Element = f32) -> tuple[Network, list[int]]:
    random = np.random.default_rng(5)
    tape = Tape(element)
    x, w = tape.parameter(random.standard_normal(SHAPE)), tape.parameter(random.standard_normal((SHAPE[1], 7)))
    values = model(x, w)
    gradients = tape.differentiate(values[0], [x, w])
    kept = [value.symbol().index for value in (*values, *(gradient for _, gradient in gradients))]
    return tape.into_network(), kept


def lowering(network: Network, kept: list[int]) -> Lowering:
    return Lowering(network.spec, schedule(network.spec.rows, sorted(kept)), kept)


def stored(found: Lowering) -> set[str]:
    """The instructions of what is stored and not kept, over all of the shape."""
    rows = found.spec.rows
    return {
        rows[row].opcode.name
        for group in found.groups
        for row in group.writes
        if row not in found.kept and rows[row].shape == SHAPE
    }


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
@pytest.mark.parametrize("model", [standard, deep, normalised])
def test_values_worked_out_again_have_the_bits(model: Model, element: Element) -> None:
    network, kept = recorded(model, element)
    assert check_kernels(network.spec, kept, values_of(network, {}), target_named("host")) == []


def test_what_is_made_of_stored_values_is_not_stored() -> None:
    tape = Tape()
    x, w = tape.parameter(np.ones(SHAPE)), tape.parameter(np.ones((SHAPE[1], 7)))
    base = x * x
    y = base * 2.0 + 1.0
    total = (base @ w).sum_along(1)
    kept = [(y.tanh() @ w).symbol().index, (y - total.broadcast_along(1, SHAPE[1])).symbol().index]
    found = lowering(tape.into_network(), kept)
    assert stored(found) == {"Mul", "Tanh"}
    assert [found.spec.rows[row].opcode.name for row in found.groups[-1].rows] == ["Mul", "Add", "Sub"]


def test_one_number_for_each_row_is_stored_for_what_is_worked_out_again() -> None:
    tape = Tape()
    x, w = tape.parameter(np.ones(SHAPE)), tape.parameter(np.ones((SHAPE[1], 7)))
    base = x @ w @ w.transpose()
    mean = base.mean_along(0)
    row = mean.symbol().index
    centred = base - mean.broadcast_along(0, SHAPE[0])
    total = (centred.exp() @ w).sum_along(1)
    kept = [(centred - total.broadcast_along(1, SHAPE[1])).symbol().index]
    found = lowering(tape.into_network(), kept)
    assert stored(found) == {"MatMul", "Exp"}
    assert [found.spec.rows[row].opcode.name for row in found.groups[-1].rows] == ["Sub", "Sub"]
    (averaging,) = [group for group in found.groups if row in group.rows]
    assert row in averaging.writes


def test_what_is_read_elsewhere_or_dear_is_stored() -> None:
    tape = Tape()
    x, w = tape.parameter(np.ones(SHAPE)), tape.parameter(np.ones((SHAPE[1], 7)))
    y, z = x * 2.0, x.exp()
    after = [(y @ w).sum(), (y + 1.0).sum_along(0), (z @ w).sum(), (z - 1.0).sum_along(0)]
    kept = [value.symbol().index for value in after]
    found = lowering(tape.into_network(), kept)
    assert {"Mul", "Exp"} <= stored(found)


def test_what_follows_a_product_is_worked_out_by_loops_of_another_shape() -> None:
    """The gradient of a norm: the product stores its result, loops over rows and columns do the rest, each row once."""
    network, kept = recorded(normalised)
    found = lowering(network, kept)
    rows = found.spec.rows
    large = [row for group in found.groups for row in group.writes if tuple(rows[row].shape) in {(40, 7), (4, 10, 7)}]
    assert [rows[row].opcode.name for row in large] == ["MatMul", "Mul", "MatMul", "Add"]
    for group in found.groups:
        computed = [(found.recorded(row), rows[row].operands) for row in group.rows]
        assert len(set(computed)) == len(computed)
    (columns,) = [group for group in found.groups if tuple(group.shape) == (4, 10, 7)]
    assert [rows[row].opcode.name for row in columns.rows] == ["Sub", "Div", "Mul", "Add", "SumAlong"]


def test_several_rows_of_a_product_are_made_of_its_result() -> None:
    tape = Tape()
    x, w = tape.parameter(np.ones(SHAPE)), tape.parameter(np.ones((SHAPE[1], SHAPE[1])))
    y = x @ w
    first, second = y * 2.0 + x, y * 0.5 - x
    kept = [(first.exp() * second.exp()).sum_along(0).symbol().index]
    found = lowering(tape.into_network(), kept)
    assert stored(found) == {"MatMul"}
    names = [[found.spec.rows[row].opcode.name for row in group.rows] for group in found.groups]
    assert names[0] == ["MatMul"] and sorted(names[1][:4]) == ["Add", "Mul", "Mul", "Sub"]


def test_one_row_of_a_product_is_worked_out_by_the_product() -> None:
    tape = Tape()
    x, w = tape.parameter(np.ones(SHAPE)), tape.parameter(np.ones((SHAPE[1], SHAPE[1])))
    kept = [((x @ w) * 2.0).exp().sum_along(0).symbol().index]
    found = lowering(tape.into_network(), kept)
    assert [found.spec.rows[row].opcode.name for row in found.groups[0].rows] == ["MatMul", "Mul"]


def columns_of(between: bool) -> Lowering:
    """Two sums down columns that read the same value; the second one also the first one's result, or not."""
    tape = Tape()
    x, w = tape.parameter(np.ones(SHAPE)), tape.parameter(np.ones((SHAPE[1], SHAPE[1])))
    y, z = x @ w, w.sum_along(0)
    total = y.sum_along(0)
    z = (total.reshape([1, SHAPE[1]]) @ w).reshape([SHAPE[1]]) if between else z
    other = (y * z.broadcast_along(0, SHAPE[0])).sum_along(0)
    kept = [total.symbol().index, other.symbol().index]
    return lowering(tape.into_network(), kept)


def test_columns_that_two_loops_read_are_walked_once() -> None:
    def walks(found: Lowering) -> list[list[str]]:
        loops = [group for group in found.groups if group.axis == 0 and tuple(group.shape) == SHAPE]
        return [[found.spec.rows[row].opcode.name for row in group.rows] for group in loops]

    assert walks(columns_of(False)) == [["SumAlong", "Mul", "SumAlong"]]
    assert walks(columns_of(True)) == [["SumAlong"], ["Mul", "SumAlong"]]


def test_a_large_row_joins_no_loop_of_long_ago() -> None:
    def record(between: int) -> Lowering:
        tape = Tape()
        x, w = tape.parameter(np.ones(SHAPE)), tape.parameter(np.eye(SHAPE[1]))
        first = x * 2.0
        y = first
        for _ in range(between):
            y = y @ w
        kept = [(y * (first + 1.0)).symbol().index]
        return lowering(tape.into_network(), kept)

    names = [[found.spec.rows[row].opcode.name for row in found.groups[0].rows] for found in map(record, (2, 70))]
    assert names == [["Mul", "Add"], ["Mul"]]


def test_a_step_reads_what_a_source_held_before() -> None:
    random = np.random.default_rng(3)
    tape = Tape()
    x, w = tape.parameter(random.standard_normal(SHAPE)), tape.parameter(random.standard_normal((SHAPE[1], SHAPE[1])))
    scaled = x * 0.5 + 1.0
    product = scaled @ w
    following = product - scaled
    later = (following @ w) * (scaled - 2.0)
    x_symbol = x.symbol()
    carry = {x_symbol: following.symbol()}
    results = [later.symbol(), following.symbol()]
    network = tape.into_network()
    plan = network.entry(results).carry(carry).lower()
    state, table = network.state(), network.parameters()
    for _ in range(3):
        run = plan.advance(state)
        expected = network.entry(results).interpret(table)
        assert_same_bits(run.of(results), expected.of(results))
        table = table.with_payloads({x_symbol: expected.of(results[1])})
