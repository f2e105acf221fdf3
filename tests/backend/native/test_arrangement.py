"""How movements arrange a buffer, and the rows that are computed in its order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topos import Network, Tape, Value, f32
from topos.op.movement import Narrow, Permute, Reshape
from topos.shape import Shape
from topos.testing import assert_same_bits

pytest.importorskip("llvmlite")

from topos.backend.native.arrangement import Arrangement, arrangement
from topos.backend.native.groups import Lowering
from topos.backend.native.views import View, dense, moved
from topos.engine.liveness import schedule

from .kernel_checks import check_kernels, target_named, values_of


def viewed(shape: Shape, *movements: Any) -> View:
    view: View | None = dense(0, shape)
    for movement in movements:
        view = None if view is None else moved(view, movement, shape.volume)
    assert view is not None
    return view


def applied(array: np.ndarray, movements: Any) -> np.ndarray:
    for movement in movements:
        array = movement.view(array)
    return array


@st.composite
def arranged_buffers(draw: Any) -> tuple[Shape, View]:
    """A shape, and a view of all of it through splits, permutations and merges."""
    parts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    order = draw(st.permutations(range(len(parts))))
    cut = draw(st.integers(0, len(parts)))
    buffer = Shape([*parts[:cut], math.prod(parts[cut:])])
    permuted = [parts[axis] for axis in order]
    split = draw(st.integers(0, len(parts)))
    view = viewed(buffer, Reshape(parts), Permute(order))
    merged = moved(view, Reshape([math.prod(permuted[:split]), *permuted[split:]]), buffer.volume)
    return buffer, view if merged is None else merged


@given(arranged_buffers())
def test_there_and_back_are_the_value_and_the_buffer(drawn: tuple[Shape, View]) -> None:
    buffer, view = drawn
    found = arrangement(view, buffer)
    if found is None:
        assert view.shape.volume < 2 or (view.shape == buffer and view.is_dense())
        return
    array = np.arange(buffer.volume).reshape(buffer)
    value = np.lib.stride_tricks.as_strided(array, view.shape, [8 * stride for stride in view.strides])
    assert_same_bits(applied(array, found.there(buffer)), value)
    assert_same_bits(applied(value, found.back(buffer)), array)


def test_what_is_not_the_whole_buffer_is_no_arrangement() -> None:
    buffer = Shape([4, 6])
    assert arrangement(viewed(buffer, Narrow(1, 0, 3)), buffer) is None
    assert arrangement(View(0, 0, Shape([4, 6]), (0, 1)), buffer) is None
    assert arrangement(viewed(buffer), buffer) is None
    assert arrangement(viewed(buffer, Permute([1, 0])), buffer) == Arrangement((4, 6), (1, 0), Shape([6, 4]))


def test_an_axis_is_a_part_or_several() -> None:
    buffer = Shape([8, 3])
    found = arrangement(viewed(buffer, Reshape([2, 4, 3]), Permute([2, 0, 1])), buffer)
    assert found == Arrangement((2, 4, 3), (2, 0, 1), Shape([3, 2, 4]))
    assert [found.part(axis) for axis in range(3)] == [2, 0, 1]
    assert found.without(1, 0) == Arrangement((4, 3), (1, 0), Shape([3, 4]))
    assert found.extended(2, 1, 9) == Arrangement((2, 9, 3), (2, 0, 1), Shape([3, 2, 9]))
    merged = arrangement(viewed(buffer, Permute([1, 0])), buffer)
    assert merged is not None
    assert [merged.part(axis) for axis in range(2)] == [1, 0]
    assert merged._replace(parts=(2, 4, 3), order=(2, 0, 1)).part(1) is None


Model = Callable[[Value, Value], list[Value]]


def channels_last(x: Value, kernel: Value) -> Value:
    """A product over channels, as images of channels first."""
    images, height, width, channels = x.shape
    rows = x.reshape([images * height * width, channels]) @ kernel
    return rows.reshape([images, height, width, kernel.shape[1]]).permute([0, 3, 1, 2])


def relu(x: Value, kernel: Value) -> list[Value]:
    y = channels_last(x, kernel).relu()
    return [y.sum_along(1), y.max_along(3)]


def pool(x: Value, kernel: Value) -> list[Value]:
    y = channels_last(x, kernel).relu().unfold(3, 2, 2).unfold(2, 2, 2).max_along(5).max_along(3)
    return [(y * y).sum(), y.log_softmax(1).sum(), y.pad(2, 1, y.shape[2] + 2, -1.0).sum_along(1)]


def spread(x: Value, kernel: Value) -> list[Value]:
    y = channels_last(x, kernel)
    mean = y.mean_along(3).broadcast_along(3, y.shape[3])
    return [((y - mean) * y.exp()).sum(), (y - mean).to(f32).softmax(1).max_along(0)]


def recorded(model: Model, images: int = 3) -> tuple[Network, list[int]]:
    """A model of an image with its gradients, and what is kept of it."""
    random = np.random.default_rng(11)
    numbers = random.standard_normal((images, 4, 6, 7)).round(1)
    numbers[0, 0, 0] = [np.inf, -np.inf, np.nan, -0.0, 0.0, 1e-40, -3e38]
    tape = Tape()
    with np.errstate(all="ignore"):
        x, kernel = tape.parameter(numbers), tape.parameter(np.linspace(-1, 1, 35).reshape(7, 5))
        values = model(x, kernel)
        target = values[0].sum() if values[0].shape.rank else values[0]
        gradients = tape.differentiate(target, [x, kernel])
        kept = [value.symbol().index for value in (*values, *(gradient for _, gradient in gradients))]
        return tape.into_network(), kept


@pytest.mark.parametrize("target", ["host", "x86-64-v3"])
@pytest.mark.parametrize("model", [relu, pool, spread])
def test_arranged_rows_have_the_bits(model: Model, target: str) -> None:
    network, kept = recorded(model)
    assert check_kernels(network.spec, kept, values_of(network, {}), target_named(target)) == []


def groups(network: Network, kept: list[int]) -> list[list[str]]:
    lowering = Lowering(network.spec, schedule(network.spec.rows, sorted(kept)), kept)
    return [[lowering.spec.rows[row].opcode.name for row in group.rows] for group in lowering.groups]


def test_what_follows_a_product_over_channels_is_worked_out_with_it() -> None:
    network, kept = recorded(relu)
    assert groups(network, kept[:2]) == [["MatMul", "Maximum"], ["SumAlong"], ["MaxAlong"]]


def test_a_pool_walks_the_order_of_memory() -> None:
    network, kept = recorded(pool)
    lowering = Lowering(network.spec, schedule(network.spec.rows, kept[:1]), kept[:1])
    assert [(group.shape, group.axis) for group in lowering.groups[1:3]] == [
        (Shape([3, 2, 2, 3, 2, 5]), 4),
        (Shape([3, 2, 2, 3, 5]), 2),
    ]


def test_a_fold_of_windows_that_stand_apart_is_part_of_a_loop() -> None:
    network, kept = recorded(pool)
    assert "Fold" not in {name for names in groups(network, kept) for name in names}


def test_what_is_kept_and_what_only_leads_there_stays_as_it_was_recorded() -> None:
    tape = Tape()
    x, w = tape.parameter(np.ones((6, 4))), tape.parameter(np.ones((4, 5)))
    y = (x @ w).permute([1, 0])
    moment = tape.parameter(np.zeros((5, 6)))
    following = moment * 0.5 + y * y * 0.5
    kept = [following.symbol().index]
    network = tape.into_network()
    lowering = Lowering(network.spec, schedule(network.spec.rows, kept), kept)
    assert len(lowering.spec.rows) == len(network.spec.rows)
    assert groups(network, kept) == [["MatMul"], ["Mul", "Mul", "Mul", "Add"]]
