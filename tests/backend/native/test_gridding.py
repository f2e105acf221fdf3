"""Windows that products read where they lie: forward, and in both gradients."""

from __future__ import annotations

import numpy as np
import pytest

from topos import Network, Tape, Value, bf16, f32, f64
from topos.element import Element
from topos.shape import Shape

pytest.importorskip("llvmlite")

from topos.backend.native.gridding import gridded
from topos.backend.native.groups import Lowering
from topos.backend.native.views import View, dense
from topos.engine.liveness import schedule

from .kernel_checks import check_kernels, target_named, values_of


def convolution(x: Value, kernel: Value, step: int = 1, dilation: int = 1, pad: int = 0) -> Value:
    """Rows of windows, [images * height * width, channels * size * size], by the kernel's columns."""
    channels, size = kernel.shape[1], kernel.shape[2]
    if pad:
        x = x.pad(2, pad, x.shape[2] + 2 * pad).pad(3, pad, x.shape[3] + 2 * pad)
    windows = x.unfold(3, size, step, dilation).unfold(2, size, step, dilation).permute([0, 2, 4, 1, 3, 5])
    images, height, width = windows.shape[:3]
    rows = windows.reshape([images * height * width, channels * size * size])
    return rows @ kernel.reshape([kernel.shape[0], channels * size * size]).transpose()


def recorded(
    element: Element, image: tuple[int, ...], kernel: tuple[int, ...], **window: int
) -> tuple[Network, list[int]]:
    """A convolution and both its gradients, and what is kept of them."""
    random = np.random.default_rng(sum(image))
    numbers = random.standard_normal(image)
    numbers.flat[:: image[-1] * 3 + 1] = 0.0
    numbers.flat[5] = -np.inf
    numbers.flat[7] = -0.0
    with np.errstate(all="ignore"):
        tape = Tape(element)
        x, weights = tape.parameter(numbers), tape.parameter(random.standard_normal(kernel))
        y = convolution(x, weights, **window)
        loss = (y * tape.parameter(random.standard_normal(y.shape))).sum()
        gradients = tape.differentiate(loss, [x, weights])
        kept = [value.symbol().index for value in (y, *(gradient for _, gradient in gradients))]
        return tape.into_network(), kept


CASES = [
    ((2, 3, 7, 9), (9, 3, 3, 3), {"pad": 1}),
    ((1, 1, 12, 11), (16, 1, 5, 5), {}),
    ((2, 4, 13, 12), (33, 4, 3, 3), {"step": 2, "pad": 1}),
    ((2, 2, 11, 17), (8, 2, 3, 3), {"dilation": 2}),
    ((1, 60, 5, 6), (20, 60, 3, 3), {"pad": 2}),
]


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
@pytest.mark.parametrize(("image", "kernel", "window"), CASES)
def test_windows_have_the_bits(
    element: Element, image: tuple[int, ...], kernel: tuple[int, ...], window: dict[str, int]
) -> None:
    network, kept = recorded(element, image, kernel, **window)
    assert check_kernels(network.spec, kept, values_of(network, {}), target_named("host")) == []


@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3"])
def test_windows_have_the_bits_on_other_processors(target: str) -> None:
    for image, kernel, window in CASES[:3]:
        network, kept = recorded(f32, image, kernel, **window)
        assert check_kernels(network.spec, kept, values_of(network, {}), target_named(target)) == []


def test_blocks_of_many_windows_are_shared_out() -> None:
    network, kept = recorded(f32, (4, 3, 34, 35), (8, 3, 3, 3), pad=1)
    assert check_kernels(network.spec, kept, values_of(network, {}), target_named("host")) == []


def opcodes(network: Network, kept: list[int]) -> set[str]:
    lowering = Lowering(network.spec, schedule(network.spec.rows, sorted(kept)), kept)
    return {lowering.spec.rows[row].opcode.name for group in lowering.groups for row in group.rows}


def test_windows_are_not_written() -> None:
    network, kept = recorded(f32, *CASES[0][:2], pad=1)
    assert "Reshape" not in opcodes(network, kept)


def test_windows_that_something_else_reads_are_written() -> None:
    tape = Tape()
    x, w = tape.parameter(np.ones((1, 2, 6, 6))), tape.parameter(np.ones((18, 9)))
    rows = x.unfold(3, 3).unfold(2, 3).permute([0, 2, 4, 1, 3, 5]).reshape([16, 18])
    kept = [(rows @ w).symbol().index, (w.transpose()[:, :18] @ rows.transpose()).symbol().index]
    network = tape.into_network()
    assert "Reshape" not in opcodes(network, kept[:1])
    assert "Reshape" in opcodes(network, kept)


def test_a_matrix_on_a_grid() -> None:
    image = dense(0, Shape([4, 6]))
    windows = View(0, 0, Shape([2, 5, 3, 2]), (6, 1, 6, 1))
    found = gridded(windows, Shape([10, 6]), 24)
    assert found is not None
    assert found.grid == (((2, 6), (5, 1)), ((3, 6), (2, 1)))
    assert gridded(windows, Shape([15, 4]), 24) is None
    assert gridded(image, Shape([4, 6]), 24) is None
