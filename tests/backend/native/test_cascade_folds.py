"""Folds that follow a product: image by image, nothing between them stored, with the interpreter's bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import topos
from topos import Element, Tape, bf16, f32, f64
from topos.backend.native import cascade_folds
from topos.testing import assert_same_bits

pytest.importorskip("llvmlite")

JOINED = "5:MatMul | 8:Fold | 9:Fold"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of several images, where there are some."""
    monkeypatch.setattr(cascade_folds, "MOST_BLOCKS", 3)


def numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def checked(record: Callable[[Tape], Any], element: Element = f32) -> str:
    """A program's results, natively and by the interpreter; answers how the plan explains itself."""
    network, results = Tape.record(record, element=element)
    entry, parameters = network.entry(results), network.parameters()
    plan = entry.lower()
    found, expected = plan.forward(parameters), entry.interpret(parameters)
    for result in results:
        assert_same_bits(found.of(result), expected.of(result))
    return plan.explain()


class Windows:
    """The windows of an axis: how many places, the size, step and dilation, and what is cut off on either side."""

    def __init__(self, extent: int, size: int, step: int = 1, dilation: int = 1, cut: tuple[int, int] = (0, 0)) -> None:
        self.whole, self.size, self.step, self.dilation, self.cut = extent + sum(cut), size, step, dilation, cut
        self.extent = extent
        self.count = (self.whole - dilation * (size - 1) - 1) // step + 1

    def fold(self, value: Any, axis: int) -> Any:
        return value.fold(axis, self.size, self.step, self.dilation, self.whole)

    def narrow(self, value: Any, axis: int) -> Any:
        return value.narrow(axis, self.cut[0], self.extent) if any(self.cut) else value


def patches(tape: Tape, images: int, depth: int, channels: int, *axes: Windows) -> Any:
    """The product of a gradient and the weights."""
    rows, columns = images, channels
    for axis in axes:
        rows, columns = rows * axis.count, columns * axis.size
    gradient, weights = tape.input(numbers(rows, depth)), tape.parameter(numbers(depth, columns))
    return (gradient * 2.0) @ weights


def split(product: Any, images: int, channels: int, high: Windows, wide: Windows) -> Any:
    shape = [images, high.count, wide.count, channels, high.size, wide.size]
    return product.reshape(shape).permute([0, 3, 1, 4, 2, 5])


def gradient(tape: Tape, images: int, depth: int, channels: int, high: Windows, wide: Windows) -> Any:
    """The input gradient of a convolution."""
    folded = split(patches(tape, images, depth, channels, high, wide), images, channels, high, wide)
    folded = wide.fold(high.fold(folded, 2), 3)
    return high.narrow(wide.narrow(folded, 3), 2)


SQUARE = Windows(8, 3, cut=(1, 1))
CASES = {
    "three by three": (8, 20, 16, SQUARE, SQUARE),
    "many images": (36, 5, 8, Windows(4, 2), Windows(3, 2)),
    "steps": (9, 7, 17, Windows(9, 3, 2), Windows(8, 3, 2, cut=(1, 0))),
    "steps beyond the window": (8, 7, 9, Windows(11, 2, 3), Windows(9, 1, 2)),
    "dilated": (10, 7, 12, Windows(9, 3, 1, 2, (2, 2)), Windows(11, 2, 2, 3, (0, 1))),
    "one window": (8, 4, 8, Windows(3, 3), Windows(5, 3)),
    "one window either way": (11, 4, 8, Windows(3, 3), Windows(2, 2)),
    "two channels": (8, 6, 2, SQUARE, SQUARE),
    "one channel": (8, 6, 1, SQUARE, Windows(7, 3, 2)),
    "many terms": (8, 1030, 8, Windows(3, 2), Windows(4, 2)),
    "many columns": (8, 12, 130, Windows(4, 2), Windows(4, 3)),
    "much weight": (8, 260, 64, Windows(4, 3), Windows(4, 3)),
    "one term": (8, 1, 19, SQUARE, Windows(4, 4)),
    "a point": (8, 6, 16, Windows(5, 1), Windows(4, 1)),
}


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=lambda element: element.name)
@pytest.mark.parametrize("case", CASES)
def test_gradients_of_convolutions(case: str, element: Element) -> None:
    told = checked(lambda tape: [gradient(tape, *CASES[case]) * 3.0], element)
    folds = sum(windows.step != windows.size or windows.dilation > 1 for windows in CASES[case][3:])
    if folds == 2:
        assert JOINED in told and "cascade" in told


@pytest.mark.parametrize("images", [1, 2, 7])
@pytest.mark.parametrize("channels", [1, 16, 48])
def test_few_images(images: int, channels: int) -> None:
    checked(lambda tape: [gradient(tape, images, 12, channels, SQUARE, SQUARE) * 3.0])


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=lambda element: element.name)
@pytest.mark.parametrize("channels", [1, 5, 24])
def test_one_axis(channels: int, element: Element) -> None:
    axis = Windows(21, 5, 2, cut=(3, 1))

    def record(tape: Tape) -> Any:
        product = patches(tape, 8, 9, channels, axis).reshape([8, axis.count, channels, axis.size])
        return [axis.narrow(axis.fold(product.permute([0, 2, 1, 3]), 2), 2) * 3.0]

    assert "5:MatMul | 8:Fold " in checked(record, element)


@pytest.mark.parametrize("threads", range(1, 9))
def test_any_number_of_threads(threads: int) -> None:
    before = topos.threads()
    topos.threads(threads)
    try:
        assert JOINED in checked(lambda tape: [gradient(tape, 24, 20, 16, SQUARE, SQUARE) * 3.0])
    finally:
        topos.threads(before)


def test_the_result_itself() -> None:
    assert JOINED in checked(lambda tape: [gradient(tape, 9, 20, 16, Windows(8, 3), Windows(7, 3))])


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, -0.0, 1e-45], ids=str)
def test_any_number(value: float) -> None:
    def record(tape: Tape) -> Any:
        gradients, weights = numbers(8 * 64, 6), numbers(6, 144)
        gradients[3, 2], weights[1, 7] = value, value
        product = tape.input(gradients) @ tape.parameter(weights)
        folded = split(product, 8, 16, SQUARE, SQUARE)
        return [SQUARE.fold(SQUARE.fold(folded, 2), 3) * 3.0]

    assert "cascade" in checked(record)


def test_a_recorded_gradient() -> None:
    def record(tape: Tape) -> Any:
        image = tape.input(numbers(8, 16, 8, 8), name="x")
        windows = image.pad(2, 1, 10).pad(3, 1, 10).unfold(2, 3).unfold(3 + 1, 3)
        product = windows.permute([0, 2, 4, 1, 3, 5]).reshape([512, 144]) @ tape.parameter(numbers(144, 12))
        loss = (product * product).sum()
        return [loss, *(slope for _, slope in tape.differentiate(loss, [image]))]

    assert "MatMul | " in checked(record)


def both(value: Any) -> Any:
    """Folded along both axes, as it should be."""
    return SQUARE.fold(SQUARE.fold(value, 2), 3)


def other_images(product: Any) -> Any:
    """Images out of rows of several, folded."""
    turned = product.reshape([8, 64, 144]).permute([1, 0, 2]).reshape([8, 8, 8, 16, 3, 3])
    return both(turned.permute([0, 3, 1, 4, 2, 5]))


def along_images(product: Any) -> Any:
    windows = product.reshape([8, 64, 16, 9]).narrow(3, 0, 3).permute([0, 3, 1, 2])
    return SQUARE.fold(windows, 0)


NEAR: dict[str, Callable[[Any, Any, Any], list[Any]]] = {  # of the product, its windows, and those folded once
    "an observed product": lambda product, windows, first: [product, both(windows) * 3.0],
    "an observed fold": lambda product, windows, first: [first, SQUARE.fold(first, 3) * 3.0],
    "a product read twice": lambda product, windows, first: [product.sum_along(0), both(windows) * 3.0],
    "a fold read twice": lambda product, windows, first: [first.sum_along(0), SQUARE.fold(first, 3) * 3.0],
    "windows read twice": lambda product, windows, first: [
        SQUARE.fold(first, 3) * SQUARE.fold(SQUARE.fold(windows, 4), 2)
    ],
    "scaled between": lambda product, windows, first: [SQUARE.fold(first * 0.5, 3) * 3.0],
    "scaled before": lambda product, windows, first: [both(windows * 0.5) * 3.0],
    "columns first": lambda product, windows, first: [SQUARE.fold(SQUARE.fold(windows, 4), 2) * 3.0],
    "images last": lambda product, windows, first: [
        SQUARE.fold(SQUARE.fold(windows.permute([1, 2, 3, 4, 5, 0]), 1), 2) * 3.0
    ],
    "images of several": lambda product, windows, first: [other_images(product) * 3.0],
    "images along the fold": lambda product, windows, first: [along_images(product) * 3.0],
    "part of the channels": lambda product, windows, first: [both(windows.narrow(1, 3, 8)) * 3.0],
    "turned between": lambda product, windows, first: [SQUARE.fold(first.permute([0, 2, 1, 3, 4]), 3) * 3.0],
}
STORED = {"an observed product", "a product read twice", "scaled before", "windows read twice"}
STORED |= {"images along the fold", "part of the channels"}
HALF = {"an observed fold", "a fold read twice", "scaled between", "images of several"}


@pytest.mark.parametrize("name", NEAR)
def test_what_is_nearly_one_is_right(name: str) -> None:
    def record(tape: Tape) -> Any:
        product = patches(tape, 8, 20, 16, SQUARE, SQUARE)
        windows = split(product, 8, 16, SQUARE, SQUARE)
        return NEAR[name](product, windows, SQUARE.fold(windows, 2))

    told = checked(record)
    assert ("MatMul | " in told) == (name not in STORED)
    assert (told.count("Fold | ") > 0) == (name not in STORED | HALF)


def test_values_by_loops() -> None:
    agrees_with_loops(8, Windows(6, 3, 2, cut=(1, 0)), lambda folded: folded * 1.0)


def agrees_with_loops(images: int, high: Windows, after: Callable[[Any], Any]) -> None:
    """Windows of 3 by 2, two rows on and two columns apart, of which a row and a column are cut off."""
    depth, channels, wide = 4, 9, Windows(5, 2, 1, 2, (0, 1))
    network, result = Tape.record(lambda tape: after(gradient(tape, images, depth, channels, high, wide)), element=f64)
    found = np.array(network.entry(result).lower().forward(network.parameters()).of(result))
    product = 2 * numbers(images * high.count * wide.count, depth) @ numbers(depth, channels * 6)
    product = product.reshape(images, high.count, wide.count, channels, 3, 2)
    expected = np.zeros((images, channels, high.whole, wide.whole))
    for y, x, i, j in np.ndindex(high.count, wide.count, 3, 2):
        expected[:, :, 2 * y + i, x + 2 * j] += product[:, y, x, :, i, j]
    np.testing.assert_allclose(found, expected[:, :, 1:, :5], rtol=1e-12, atol=1e-12)
