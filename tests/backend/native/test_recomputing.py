"""Values that are worked out again where they are read, and large rows that join no loop of long ago."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from topos import Network, Tape, Value, bf16, f32, f64
from topos.element import Element
from topos.testing import assert_same_bits

pytest.importorskip("llvmlite")

from topos.backend.native import placement, recomputing
from topos.backend.native.groups import Lowering
from topos.engine.liveness import schedule

from .kernel_checks import check_kernels, target_named, values_of

Model = Callable[[Value, Value], list[Value]]
SHAPE = (40, 5)


@pytest.fixture(autouse=True)
def _little_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "LARGE", 100)
    monkeypatch.setattr(recomputing, "LARGE", 100)


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
@pytest.mark.parametrize("model", [standard, deep])
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
