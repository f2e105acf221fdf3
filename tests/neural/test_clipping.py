"""One limit for all gradients together: short ones keep their bits, long ones get the limit's length."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from topos import Adjoints, KinshipError, Parameters, SettingError, Tape, bf16, clip_by_global_norm, f32, f64
from topos.element import Element
from topos.testing import assert_same_bits


def clipped(gradients: Sequence[Any], limit: float, elements: Sequence[Element] = (), turned: bool = False) -> Any:
    """Over a table, and recorded over adjoints, which stand in another order where that is asked for."""
    chosen = list(elements) or [f32] * len(gradients)

    def record(tape: Tape) -> Any:
        weights = [tape.parameter(array, element=element) for array, element in zip(gradients, chosen, strict=True)]
        inputs = [tape.input(array, element=element) for array, element in zip(gradients, chosen, strict=True)]
        pairs = list(zip(weights, inputs, strict=True))
        adjoints = clip_by_global_norm(Adjoints(tape.leaf(0), pairs[::-1] if turned else pairs), limit)
        return weights, [adjoints.of(weight) for weight in weights]

    network, (weights, results) = Tape.record(record)
    parameters = network.parameters()
    table = clip_by_global_norm(parameters, limit).payloads()
    entry = network.entry(results)
    assert_same_bits(entry.interpret(parameters).of(results), table)
    assert_same_bits(entry.lower().forward(parameters).of(results), table)
    return table


def drawn(scale: float = 1.0) -> list[Any]:
    random = np.random.default_rng(0)
    return [random.normal(size=shape) * scale for shape in ((), (5,), (33, 40), (2, 3, 4), (0, 3))]


def norm(tensors: Sequence[Any]) -> float:
    """In long doubles, which neither over- nor underflow here."""
    return float(np.sqrt(sum((t.numpy().astype(np.longdouble) ** 2).sum() for t in tensors)))


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e-8, 1.0, 1e8, 1e30, 1e36])
@pytest.mark.parametrize("share", [0.5, 1e-3])
def test_long_ones_get_the_length_of_the_limit_and_keep_their_direction(scale: float, share: float) -> None:
    gradients = [np.asarray(array, np.float32) for array in drawn(scale)]
    whole = float(np.sqrt(sum((array.astype(np.longdouble) ** 2).sum() for array in gradients)))
    limit = whole * share
    table = clipped(gradients, limit)
    rounding = 1e-44 * 40 / limit if limit < 1e-36 else 0.0  # subnormal results have an absolute error
    assert norm(table) == pytest.approx(limit, rel=1e-6 + rounding)
    for before, after in zip(gradients, table, strict=True):
        expected = before.astype(np.float64) * share
        assert np.allclose(after.numpy(), expected, rtol=1e-6, atol=2e-45)


@pytest.mark.parametrize("limit", [np.inf, 1e30, 38.0])
def test_short_ones_keep_every_bit(limit: float) -> None:
    gradients = [np.asarray(array, np.float32) for array in drawn()]
    assert norm([Array(array) for array in gradients]) < 38
    gradients[1][0] = -0.0
    assert_same_bits(clipped(gradients, limit), gradients)


class Array:
    """An array as `norm` reads one."""

    def __init__(self, array: Any) -> None:
        self.numpy = lambda: array


def test_the_limit_itself_is_not_above_the_limit() -> None:
    gradients = [np.array([4.0, 0.0], np.float32)]
    assert_same_bits(clipped(gradients, 4.0), gradients)
    assert_same_bits(clipped(gradients, 3.0), [np.array([3.0, 0.0], np.float32)])


def test_zeros_stay_zeros() -> None:
    gradients = [np.array([0.0, -0.0], np.float32), np.float32(0)]
    assert_same_bits(clipped(gradients, 1e-30), gradients)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("limit", [1.0, np.inf])
def test_one_that_is_not_finite_makes_all_of_them_nan(bad: float, limit: float) -> None:
    gradients = [np.array([1.0, bad, 0.0], np.float32), np.float32(2)]
    if np.isinf(bad) and np.isinf(limit):
        limit = 1e38
    for tensor in clipped(gradients, limit):
        assert np.isnan(tensor.numpy()).all()


def test_the_order_of_the_adjoints_does_not_matter() -> None:
    assert_same_bits(clipped(drawn(), 1.0, turned=True), clipped(drawn(), 1.0))


def test_elements_may_differ() -> None:
    gradients = [np.array([3.0, 1e-30]), np.array([4.0]), np.array([0.0, 12.0])]
    table = clipped(gradients, 1.0, [f64, bf16, f32])
    assert norm(table) == pytest.approx(1.0, rel=1e-2)
    assert table[0].numpy()[0] == pytest.approx(3 / 13, rel=1e-15)
    assert [tensor.element for tensor in table] == [f64, bf16, f32]
    wide = clipped([np.array([1e-300, 2e-300]), np.array([0.0])], 1e-300, [f64, f32])
    assert_same_bits(wide[1], np.zeros(1, np.float32))
    assert norm(wide) == pytest.approx(1e-300, rel=1e-14)


def test_absent_slots_stay_absent_and_no_slot_is_no_matter() -> None:
    network, (left, right) = Tape.record(lambda tape: [tape.parameter([3.0]), tape.parameter([4.0])])
    held = network.parameters()
    some = Parameters(left.family, {left.index: None, right.index: held.of(right)})
    assert_same_bits(clip_by_global_norm(some, 1.0).payloads(), [None, np.array([1.0], np.float32)])
    nothing = Parameters(left.family, {left.index: None, right.index: None})
    assert clip_by_global_norm(nothing, 1.0).payloads() == [None, None]


@pytest.mark.parametrize("limit", [0, -1.0, np.nan, "1"])
def test_a_limit_is_a_number_above_zero(limit: Any) -> None:
    network, _ = Tape.record(lambda tape: tape.parameter([3.0]))
    with pytest.raises(SettingError) as caught:
        clip_by_global_norm(network.parameters(), limit)
    assert str(caught.value) == f"clip_by_global_norm: limit must be a number above 0, got {limit!r}"


def test_what_it_cannot_clip_is_refused() -> None:
    tape = Tape()
    weight = tape.parameter([3.0])
    adjoints = tape.differentiate(weight.sum(), weight).detach()
    clip: Any = clip_by_global_norm
    with pytest.raises(KinshipError) as caught:
        clip(adjoints, 1.0)
    told = "clip_by_global_norm: wants adjoints with live values; clip them before they are detached"
    assert str(caught.value) == told
    with pytest.raises(KinshipError) as caught:
        clip([1.0], 1.0)
    assert str(caught.value) == "clip_by_global_norm: wants Parameters or Adjoints, got list"


def test_what_is_recorded_is_pinned(golden: Any) -> None:
    def record(tape: Tape) -> Any:
        weights = [tape.parameter([[1.0, 2.0]], name="weight"), tape.parameter(3.0, name="bias")]
        gradients = [tape.input(shape=weight.shape, name=f"gradient{at}") for at, weight in enumerate(weights)]
        return clip_by_global_norm(Adjoints(tape.leaf(0), list(zip(weights, gradients, strict=True))), 1.0)

    network, _ = Tape.record(record)
    golden(network.describe(names=True), "neural_clipping.txt")
