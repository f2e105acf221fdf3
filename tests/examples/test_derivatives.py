"""The examples that read a spec, bring a payload of their own, or a number of their own."""

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from topos import Tape, Tensor, concat, f64
from topos.testing import assert_same_bits

Example = Callable[[str], ModuleType]


def test_the_chain_has_its_slope_by_every_route(example: Example, capsys: pytest.CaptureFixture[str]) -> None:
    readings = example("chain").main(w=0.5, x=2.0, c=-0.5)
    assert readings.value == pytest.approx(math.tanh(0.5), rel=1e-15)
    assert readings.planned == readings.swept
    assert readings.planned == pytest.approx(2 * (1 - math.tanh(0.5) ** 2), rel=1e-15)
    printed = capsys.readouterr().out
    assert "tape: 6 nodes, 1 parameter, 1 input" in printed
    assert "plan: forward; 18 of 23 nodes evaluated, 2 readable" in printed


def test_forward_mode_agrees_with_reverse_mode(example: Example) -> None:
    forward_mode = example("forward_mode")
    compared = forward_mode.main()
    exact, rounded = compared["polynomial"], compared["tanh network"]
    assert exact.eager_is_recorded and exact.slope_is_gradient and exact.products_are_equal
    assert exact.slope == 2.75
    assert rounded.eager_is_recorded
    assert rounded.distance <= forward_mode.BOUND


def everything(tape: Tape, x: Any) -> Any:
    """A function of `[2, 2]` through every kind of instruction that the dual number has a rule for."""
    ids = tape.leaf(Tensor.selection([1, 0, 1], 2))
    rows = x.gather(ids).scatter(ids)
    largest = concat([rows, rows * 0.5], 1).max_along(1).broadcast_along(1, 2)
    windows = rows.reshape([4]).unfold(0, 2).fold(0, 2, 1, 1, 4).reshape([2, 2])
    shaped = rows.transpose().narrow(1, 0, 1).pad(1, 1, 3, fill=2.0).narrow(1, 0, 2)
    smooth = (rows * rows + 1.0).powf(1.5).ln() + rows.exp().log_softmax(0) - rows.sigmoid()
    chosen = rows.relu() + rows.clip(-0.4, 0.6) / 3 - abs(rows)
    return (largest + windows * shaped + smooth @ chosen + rows.erf() * rows.cos()).logsumexp(1).sum()


def test_every_instruction_has_a_tangent(example: Example) -> None:
    """The slope against the contracted gradient, and against central differences, which no rule has a part in."""
    payload, direction = np.array([[0.5, -0.25], [0.75, 0.25]]), np.array([[1.0, 0.5], [-0.25, 2.0]])
    compared = example("forward_mode").compare(everything, payload, direction)
    assert compared.eager_is_recorded
    assert compared.distance < 64

    def value(at: np.ndarray) -> float:
        network, y = Tape.record(lambda tape: everything(tape, tape.leaf(at)), element=f64)
        return float(network.forward(network.parameters()).of(y))

    difference = (value(payload + 1e-6 * direction) - value(payload - 1e-6 * direction)) / 2e-6
    assert compared.slope == pytest.approx(difference, rel=1e-8)


def test_what_does_not_move_has_no_tangent(example: Example) -> None:
    dual = example("forward_mode").Dual
    x, still = dual(Tensor([1.0, 2.0]), Tensor([3.0, 4.0])), dual(Tensor([5.0, 6.0]))
    assert x.stop().tangent is None
    assert x.step(0.0).tangent is None
    assert (still * still + 1.0).tangent is None
    assert_same_bits((x * still).tangent, Tensor([15.0, 24.0]))
    assert_same_bits((2.0 - x).tangent, Tensor([-3.0, -4.0]))


def test_ties_share_a_tangent_as_they_share_a_cotangent(example: Example) -> None:
    dual = example("forward_mode").Dual
    largest = dual(Tensor([[2.0, 2.0, 1.0]]), Tensor([[1.0, 0.5, 8.0]])).max_along(1)
    assert_same_bits(largest.tangent, Tensor([0.75]))


def test_duals_nest(example: Example) -> None:
    """The second derivative of a cube, forward over forward: `6 x`."""
    dual = example("forward_mode").Dual
    x, one = Tensor(1.5), Tensor(1.0)
    cube = (lambda y: y * y * y)(dual(dual(x, one), dual(one)))
    assert float(cube.tangent.tangent) == 9.0


def test_a_dual_element_agrees_with_the_recorded_gradient(example: Example) -> None:
    dual = example("dual")
    derived = dual.main(rows=3)
    assert np.abs(derived.by_slope - derived.recorded).max() <= dual.BOUND
    assert np.abs(derived.second - derived.second_differences).max() < 1e-8
    matrix = derived.second.reshape(4, 4)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-15)


def test_the_values_of_duals_are_those_of_f64(example: Example) -> None:
    dual = example("dual")

    def function(tape: Tape) -> Any:
        x = tape.leaf([[0.5, -0.25], [0.75, 2.0]])
        return ((x @ x).tanh() / (x * x).sum().broadcast([2, 2]) - x).maximum(0.0).log_softmax(1)

    values = []
    for element in (dual.dual, f64):
        network, y = Tape.record(function, element=element)
        values.append(network.entry(y).lower().forward(network.parameters()).of(y).numpy())
    assert_same_bits(values[0]["value"], values[1])


def test_a_fixed_point_element_runs_and_trains(example: Example) -> None:
    seam = example("element_seam").main(steps=40)
    assert seam.message == "tanh: element q8 does not define it\n  node %1 Tanh [2]"
    assert seam.plan_is_interpreter
    assert seam.order_is_free
    assert seam.losses[0] == pytest.approx(seam.reference[0], abs=0.01)
    assert seam.losses[-1] < 0.02


@pytest.mark.parametrize(
    ("left", "right", "product"),
    [(1.5, 2.0, 3.0), (100.0, 2.0, 127.99609375), (-100.0, 2.0, -128.0), (0.00390625, 0.5, 0.00390625)],
)
def test_fixed_point_products_round_and_stay_within_limits(
    example: Example, left: float, right: float, product: float
) -> None:
    seam = example("element_seam")
    assert seam.numbers(Tensor(left, seam.q8) * Tensor(right, seam.q8)) == product


def test_fixed_point_matrix_products_are_exact_before_they_round(example: Example) -> None:
    seam = example("element_seam")
    random = np.random.Generator(np.random.PCG64(2))
    left, right = random.integers(-200, 200, (3, 20)) / 256, random.integers(-200, 200, (20, 2)) / 256
    product = seam.numbers(Tensor(left, seam.q8) @ Tensor(right, seam.q8))
    np.testing.assert_array_equal(product, np.floor(left @ right * 256 + 0.5) / 256)
