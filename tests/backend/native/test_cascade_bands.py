"""Folds that follow a product, band by band of the rows of an image: no bit of the interpreter's changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import topos
from topos import Element, Tape, bf16, f32, f64
from topos.backend.native import cascade_bands, cascade_folds
from topos.backend.native.cascade_bands import Bands, bands_of
from topos.backend.native.grouping import grouped

from .test_cascade_folds import Windows, agrees_with_loops, checked, gradient, numbers, patches, split

pytest.importorskip("llvmlite")


@pytest.fixture(autouse=True)
def low(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every image is cut."""
    monkeypatch.setattr(cascade_bands, "LARGE_BYTES", 0)
    monkeypatch.setattr(cascade_bands, "SHARED_BYTES", 0)
    monkeypatch.setattr(cascade_bands, "BAND_BYTES", 0)


@pytest.fixture(params=[1, 9, 40])
def rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cascade_bands, "BAND_ROWS", request.param)


SQUARE = Windows(8, 3, cut=(1, 1))
CASES = {
    "three by three": (1, 20, 16, SQUARE, SQUARE),
    "a tall image": (1, 6, 8, Windows(31, 3, cut=(1, 1)), Windows(4, 3, cut=(1, 1))),
    "a wide image": (2, 6, 8, Windows(5, 3, cut=(1, 1)), Windows(31, 3, cut=(1, 1))),
    "several images": (7, 5, 8, Windows(14, 2), Windows(3, 2)),
    "more images than threads": (19, 5, 8, Windows(7, 2), Windows(3, 2)),
    "steps": (3, 7, 17, Windows(19, 3, 2), Windows(8, 3, 2, cut=(1, 0))),
    "long windows": (1, 7, 9, Windows(20, 7), Windows(9, 5)),
    "windows longer than the rest": (1, 7, 9, Windows(9, 7), Windows(9, 5)),
    "steps as long as windows": (1, 7, 9, Windows(22, 2, 2), Windows(9, 3, 3)),
    "steps beyond the window": (2, 7, 9, Windows(22, 2, 3), Windows(9, 1, 2)),
    "steps, and rest": (1, 7, 9, Windows(24, 3, 4), Windows(9, 2, 4)),
    "dilated": (1, 7, 12, Windows(19, 3, 1, 2, (2, 2)), Windows(11, 2, 2, 3, (0, 1))),
    "places after the last windows": (1, 14, 16, Windows(31, 4, 2, 3, (2, 2)), Windows(6, 2)),
    "rows of one place": (2, 15, 15, Windows(1, 1), Windows(15, 4, 4, 2)),
    "dilated and stepped": (2, 7, 12, Windows(25, 3, 2, 3, (2, 2)), Windows(11, 3, 2, 2)),
    "one row of windows": (2, 4, 8, Windows(3, 3), Windows(5, 3)),
    "two rows of windows": (2, 4, 8, Windows(4, 3), Windows(5, 3)),
    "one column of windows": (2, 4, 8, Windows(9, 3), Windows(3, 3)),
    "two channels": (2, 6, 2, SQUARE, Windows(7, 3, 2)),
    "one channel": (3, 6, 1, Windows(13, 3, cut=(1, 1)), Windows(7, 3, 2)),
    "many terms": (2, 1030, 8, Windows(6, 2), Windows(4, 2)),
    "many columns": (1, 12, 130, Windows(6, 2), Windows(4, 3)),
    "points apart": (2, 6, 16, Windows(13, 1, 2), Windows(4, 2)),
    "a point": (2, 6, 16, Windows(5, 1), Windows(4, 1)),
    "a row": (2, 6, 16, Windows(5, 1), Windows(9, 3)),
    "a column": (2, 6, 16, Windows(9, 3), Windows(5, 1)),
}


@pytest.mark.parametrize(("rows", "element"), [(1, f32), (9, f64), (9, bf16), (40, f32)], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_gradients_of_convolutions(case: str, rows: int, element: Element, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cascade_bands, "BAND_ROWS", rows)
    told = checked(lambda tape: [gradient(tape, *CASES[case])], element)
    high, wide = CASES[case][3:]
    if high.count > 1 and high.size > 1 and (high.step, wide.step) != (high.size, wide.size):
        assert "MatMul | " in told and "cascade" in told


@pytest.mark.parametrize("channels", [1, 11, 14])
@pytest.mark.parametrize(
    ("high", "wide"),
    [
        (Windows(1, 1, 2), Windows(77, 3, 4, 3)),
        (Windows(36, 1, 3), Windows(16, 4, 1, 3)),
        (Windows(13, 1, 2, 3), SQUARE),
    ],
    ids=["one place", "points apart", "dilated points"],
)
def test_axes_of_one_place(channels: int, high: Windows, wide: Windows) -> None:
    """They may stand before the images in what a fold reads, and not in what the next one does."""
    for images in (2, 9):
        checked(lambda tape: [gradient(tape, images, 7, channels, high, wide)])  # noqa: B023
        checked(lambda tape: [columns_first(tape, images, 7, channels, high, wide)])  # noqa: B023


def columns_first(tape: Tape, images: int, depth: int, channels: int, high: Windows, wide: Windows) -> Any:
    """The fold along the columns comes first."""
    windows = split(patches(tape, images, depth, channels, high, wide), images, channels, high, wide)
    return high.narrow(high.fold(wide.narrow(wide.fold(windows, 4), 4), 2), 2)


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("channels", [1, 8, 24])
@pytest.mark.parametrize("images", [1, 3])
def test_columns_first(images: int, channels: int) -> None:
    high, wide = Windows(13, 3, 1, 2, (1, 2)), Windows(9, 3, 2, cut=(1, 0))
    checked(lambda tape: [columns_first(tape, images, 7, channels, high, wide) * 3.0])


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("element", [f32, bf16], ids=lambda element: element.name)
@pytest.mark.parametrize("channels", [1, 24])
@pytest.mark.parametrize(
    ("images", "axis"),
    [
        (1, Windows(61, 5, 2, cut=(3, 1))),
        (9, Windows(61, 5, 2)),
        (1, Windows(170, 4, 1, 2, (2, 1))),
        (2, Windows(99, 30)),
    ],
    ids=["steps", "images", "dilated", "long windows"],
)
def test_one_axis(images: int, axis: Windows, channels: int, element: Element) -> None:
    def record(tape: Tape) -> Any:
        product = patches(tape, images, 9, channels, axis).reshape([images, axis.count, channels, axis.size])
        return [axis.narrow(axis.fold(product.permute([0, 2, 1, 3]), 2), 2) * 3.0]

    assert "5:MatMul | 8:Fold " in checked(record, element)


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("channels", [1, 8])
def test_windows_along_the_columns_alone(channels: int) -> None:
    """Rows of windows have nothing in common, and the last band is moved back."""
    wide = Windows(9, 3, cut=(1, 1))

    def record(tape: Tape) -> Any:
        product = patches(tape, 2, 9, channels, Windows(11, 1), wide).reshape([2, 11, wide.count, channels, 3])
        return [wide.fold(product.permute([0, 3, 1, 2, 4]), 3)]

    assert "MatMul | " in checked(record)


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("threads", range(1, 9))
def test_any_number_of_threads(threads: int) -> None:
    before = topos.threads()
    topos.threads(threads)
    try:
        for images in (1, 3):
            tall = Windows(41, 3, cut=(1, 1))
            assert "MatMul | " in checked(lambda tape: [gradient(tape, images, 20, 16, tall, SQUARE)])  # noqa: B023
    finally:
        topos.threads(before)


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, -0.0, 1e-45], ids=str)
def test_any_number(value: float) -> None:
    def record(tape: Tape) -> Any:
        gradients, weights = numbers(8 * 8, 6), numbers(6, 144)
        gradients[11, 2], weights[1, 7] = value, value
        product = tape.input(gradients) @ tape.parameter(weights)
        return [SQUARE.fold(SQUARE.fold(split(product, 1, 16, SQUARE, SQUARE), 2), 3)]

    assert "cascade" in checked(record)


@pytest.mark.usefixtures("rows")
def test_values_by_loops() -> None:
    agrees_with_loops(2, Windows(17, 3, 2, cut=(1, 0)), lambda folded: folded)


def drawn(random: np.random.Generator) -> Windows:
    """Windows along an axis."""
    count, size, step, dilation = (int(random.integers(1, most)) for most in (24, 6, 5, 4))
    whole = (count - 1) * step + (size - 1) * dilation + 1 + int(random.integers(step))
    before = int(random.integers(min(3, whole)))
    after = int(random.integers(min(3, whole - before)))
    return Windows(whole - before - after, size, step, dilation, (before, after))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(120))
def test_drawn_gradients(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng([seed, 7])
    for name, most in (("BAND_ROWS", 60), ("FEWEST_IMAGES", 9), ("MOST_BANDS_AGAIN", 5)):
        monkeypatch.setattr(cascade_bands, name, int(random.integers(1, most)))
    monkeypatch.setattr(cascade_folds, "FEWEST_IMAGES", cascade_bands.FEWEST_IMAGES)
    images, depth, channels = int(random.integers(1, 10)), int(random.integers(1, 30)), int(random.integers(1, 20))
    high, wide, element = drawn(random), drawn(random), (f32, f64, bf16)[seed % 3]
    compose = (gradient, columns_first)[int(random.integers(2))]
    before = topos.threads()
    topos.threads(1 + seed % 8)
    try:
        checked(lambda tape: [compose(tape, images, depth, channels, high, wide)], element)
    finally:
        topos.threads(before)


def bands(images: int, channels: int, high: Windows, wide: Windows) -> Bands | None:
    """How the images of a gradient are cut."""
    network, result = Tape.record(lambda tape: gradient(tape, images, 4, channels, high, wide))
    lowering = grouped(network.spec, range(len(network)), frozenset({result.index}), ())
    return next((bands_of(lowering, group.stages) for group in lowering.groups if group.stages), None)


@pytest.mark.parametrize("images", [1, 2, 7])
def test_few_small_images_are_one_block(images: int, monkeypatch: pytest.MonkeyPatch) -> None:
    windows = images * 64 * 9 * 16 * 4
    monkeypatch.setattr(cascade_bands, "SHARED_BYTES", windows)
    assert bands(images, 16, SQUARE, SQUARE) is None
    told = checked(lambda tape: [gradient(tape, images, 12, 16, SQUARE, SQUARE)])
    assert "MatMul | " not in told
    monkeypatch.setattr(cascade_bands, "SHARED_BYTES", windows - 1)
    told = checked(lambda tape: [gradient(tape, images, 12, 16, SQUARE, SQUARE)])
    assert "MatMul | " in told


@pytest.mark.usefixtures("rows")
def test_a_ring_holds_a_band_and_what_is_read_before_it() -> None:
    for images, _, channels, high, wide in CASES.values():
        cut = bands(images, channels, high, wide)
        if cut is not None and cut.bands > 1:
            assert cut.ring % cut.rows == 0
            assert cut.ring >= cut.rows + max(cut.halo, cut.ahead)
            assert cut.bands * cut.rows == cut.windows + cut.ahead


def test_a_block_is_small_however_tall_an_image_is() -> None:
    found = [bands(1, 16, Windows(tall, 3, cut=(1, 1)), Windows(32, 3, cut=(1, 1))) for tall in (16, 64, 1024)]
    kept = [cut.ring for cut in found if cut is not None]
    assert len(kept) == 3
    assert max(kept) <= 8


@pytest.mark.parametrize(("images", "parts"), [(1, 8), (2, 4), (3, 2), (4, 2), (5, 1), (16, 1)])
def test_few_images_are_work_for_threads(images: int, parts: int) -> None:
    cut = bands(images, 16, Windows(256, 3, cut=(1, 1)), Windows(32, 3, cut=(1, 1)))
    assert cut is not None
    assert (cut.bands, cut.parts) == (64, parts)


@pytest.mark.parametrize(("tall", "parts"), [(4, 1), (8, 2), (32, 2), (64, 2), (96, 4), (160, 4), (256, 8)])
def test_little_is_computed_twice(tall: int, parts: int) -> None:
    cut = bands(1, 16, Windows(tall, 3, cut=(1, 1)), Windows(32, 3, cut=(1, 1)))
    assert cut is not None
    assert cut.parts == parts


@pytest.mark.parametrize("high", [Windows(37, 3, cut=(1, 1)), Windows(44, 2, 3)], ids=["moved", "steps"])
def test_no_two_threads_compute_the_same_place(high: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
    """A band that stands for rows of its neighbour too is in the same part."""
    monkeypatch.setattr(cascade_bands, "BAND_ROWS", 32 * 2)
    monkeypatch.setattr(cascade_bands, "MOST_BANDS_AGAIN", 1)
    cut = bands(1, 16, high, Windows(32, 3, cut=(1, 1)))
    assert cut is not None
    assert cut.ahead or cut.all_results < cut.windows * cut.step
    assert 1 < cut.parts <= cut.bands // 2


def test_the_rows_are_not_outermost() -> None:
    """Few channels stand before the rows once columns are folded: then the second fold reads what is stored."""
    told = checked(lambda tape: [columns_first(tape, 1, 7, 2, SQUARE, SQUARE)])
    assert told.count("Fold | ") == 0
