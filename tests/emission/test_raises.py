"""Convolutions and pools as one operation each, and the same numbers as their compositions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import Tape, bf16, f32

RNG = np.random.default_rng(0)


def convolved(x: Any, kernel: Any, step: int = 1, dilation: int = 1, before: int = 1, last: bool = False) -> Any:
    """`[batch, channels, height, width]` with `[outputs, channels, 3, 3]`; `last`, the kernel on the right."""
    outputs = kernel.shape[0]
    padded = x.pad(2, before, x.shape[2] + before + 1).pad(3, before, x.shape[3] + before + 1)
    windows = padded.unfold(3, 3, step, dilation).unfold(2, 3, step, dilation)
    batch, channels, high, _, wide, _ = windows.shape
    if last:
        terms = windows.permute([0, 2, 4, 3, 5, 1]).reshape([batch * high * wide, 9 * channels])
        rows = terms @ kernel.permute([2, 3, 1, 0]).reshape([9 * channels, outputs])
        return rows.reshape([batch, high, wide, outputs])
    terms = windows.permute([1, 3, 5, 0, 2, 4]).reshape([9 * channels, batch * high * wide])
    return kernel.reshape([outputs, 9 * channels]) @ terms


def series(tape: Tape) -> Any:
    """Windows along one axis, of an array that has no other."""
    return tape.input(RNG.normal(size=9)).unfold(0, 4, 2) @ tape.parameter(RNG.normal(size=(4, 3)))


def picture(**facts: Any) -> Callable[[Tape], Any]:
    def record(tape: Tape) -> Any:
        x = tape.input(RNG.normal(size=(2, 3, 6, 7)))
        return convolved(x, tape.parameter(RNG.normal(size=(4, 3, 3, 3))), **facts)

    return record


def largest(tape: Tape) -> Any:
    x = tape.input(RNG.normal(size=(2, 3, 6, 7)))
    padded = x.pad(2, 1, 8, float("-inf"))
    return padded.unfold(3, 2, 2).unfold(2, 3, 1, 2).max_along(5).max_along(3)


def average(tape: Tape) -> Any:
    x = tape.input(RNG.normal(size=(2, 3, 6, 7)))
    return x.unfold(3, 2, 2).unfold(2, 3, 3).sum_along(5).sum_along(3) / 6


CASES: dict[str, tuple[str, Callable[[Tape], Any]]] = {
    "kernel left": ("convolution", picture()),
    "kernel right": ("convolution", picture(last=True)),
    "steps and dilation": ("convolution", picture(step=2, dilation=2, before=2, last=True)),
    "one axis": ("convolution", series),
    "max pool": ("reduce_window", largest),
    "average pool": ("reduce_window", average),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("engine", ["interpret", "compile"])
def test_a_raise_answers_what_the_composition_does(engines: Any, engine: str, case: str) -> None:
    operation, record = CASES[case]
    network, root = Tape.record(record, f32)
    plan = network.entry(root).lower()
    text, composed = plan.emit_stablehlo(), plan.emit_stablehlo(raises=False)
    assert text.count(f"stablehlo.{operation}") == 1
    assert f"stablehlo.{operation}" not in composed and "stablehlo.gather" not in text
    parameters = network.parameters()
    sources = [node for node in plan.nodes() if node.opcode.name in ("Parameter", "Input")]
    ordered = sorted(sources, key=lambda node: (node.opcode.name == "Input", node.symbol.index))
    arguments = [np.asarray(network.payload(node.symbol).numpy()) for node in ordered]
    expected = plan.forward(parameters).of(root).numpy()
    for module in (text, composed):
        (found,) = engines.run(engine, module, arguments)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("case", CASES)
def test_a_raise_replaces_its_nodes(case: str) -> None:
    operation, record = CASES[case]
    network, root = Tape.record(record, f32)
    text = network.entry(root).lower().emit_stablehlo()
    assert text.count(f"stablehlo.{operation}") == 1
    assert "unfold" not in text and "gather" not in text


def test_what_accumulates_elsewhere_is_composed() -> None:
    network, root = Tape.record(picture(last=True), bf16)
    assert "stablehlo.convolution" not in network.entry(root).lower().emit_stablehlo()


def test_what_is_declared_inside_is_a_barrier() -> None:
    def record(tape: Tape) -> Any:
        x = tape.input(RNG.normal(size=(1, 1, 4, 4)))
        windows = x.unfold(3, 2, 2).unfold(2, 2, 2).max_along(5)
        return windows, windows.max_along(3)

    network, (inside, root) = Tape.record(record)
    assert "reduce_window" in network.entry(root).lower().emit_stablehlo()
    assert "reduce_window" not in network.entry(root).observe(inside).lower().emit_stablehlo()
