"""Convolutions, pools and norms as one operation each, and the same numbers as their compositions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import Element, Formula, SettingError, Tape, bf16, f32, f64

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


def normal(gain: bool = True, bias: bool = True, axis: int = 1, epsilon: float = 1e-5) -> Callable[[Tape], Any]:
    """A norm over a batch, by channels along an axis."""
    shape = (4, 3, 5)

    def record(tape: Tape) -> Any:
        x = tape.input(RNG.normal(size=shape))
        scale, shift = tape.parameter(RNG.normal(size=shape[axis])), tape.parameter(RNG.normal(size=shape[axis]))
        centred = x - over(mean(x, axis), shape, axis)
        deviation = (mean(centred * centred, axis) + epsilon).sqrt()
        result = centred / over(deviation, shape, axis)
        result = result * over(scale, shape, axis) if gain else result
        return result + over(shift, shape, axis) if bias else result

    return record


def given(tape: Tape) -> Any:
    """A norm over a batch by statistics that are given."""
    shape, axis = (4, 3, 5), 1
    x, centre = tape.input(RNG.normal(size=shape)), tape.parameter(RNG.normal(size=3))
    variance, scale = tape.parameter(RNG.uniform(0.5, 2, size=3)), tape.parameter(RNG.normal(size=3))
    return (x - over(centre, shape, axis)) / over((variance + 1e-5).sqrt(), shape, axis) * over(scale, shape, axis)


def over(x: Any, shape: tuple[int, ...], axis: int) -> Any:
    """A value for each channel, at each place of it."""
    for at in (at for at in range(len(shape)) if at != axis):
        x = x.broadcast_along(at, shape[at])
    return x


def mean(x: Any, axis: int) -> Any:
    count = x.shape.volume // x.shape[axis]
    for at in reversed([at for at in x.shape.axes if at != axis]):
        x = x.sum_along(at)
    return x / count


def graded(record: Callable[[Tape], Any]) -> Callable[[Tape], Any]:
    """The gradients of all that a program reads, of a sum that is no sum of equal terms."""

    def sloped(tape: Tape) -> Any:
        sources: list[Any] = []
        y = record(Sourced(tape, sources))
        return [slope for _, slope in tape.differentiate((y * y.tanh()).sum(), sources)]

    return sloped


class Sourced:
    """A tape whose inputs are parameters, and which keeps its sources."""

    def __init__(self, tape: Tape, sources: list[Any]) -> None:
        self._tape, self._sources = tape, sources

    def parameter(self, payload: Any) -> Any:
        self._sources.append(self._tape.parameter(payload))
        return self._sources[-1]

    input = parameter


CASES: dict[str, tuple[dict[str, int], Callable[[Tape], Any]]] = {
    "kernel left": ({"convolution": 1}, picture()),
    "kernel right": ({"convolution": 1}, picture(last=True)),
    "steps and dilation": ({"convolution": 1}, picture(step=2, dilation=2, before=2, last=True)),
    "one axis": ({"convolution": 1}, series),
    "max pool": ({"reduce_window": 1}, largest),
    "average pool": ({"reduce_window": 1}, average),
    "kernel left, gradients": ({"convolution": 3}, graded(picture())),
    "kernel right, gradients": ({"convolution": 3}, graded(picture(last=True))),
    "steps, gradients": ({"convolution": 3}, graded(picture(step=2, dilation=2, before=2))),
    "wide padding, gradients": ({"convolution": 3}, graded(picture(before=4, last=True))),
    "one axis, gradients": ({"convolution": 3}, graded(series)),
    "average pool, gradient": ({"reduce_window": 2}, graded(average)),
}
NORMS: dict[str, tuple[dict[str, int], Callable[[Tape], Any]]] = {
    "norm": ({"batch_norm_training": 1}, normal()),
    "norm, channels last": ({"batch_norm_training": 1}, normal(axis=2)),
    "norm without gain": ({"batch_norm_training": 1}, normal(gain=False)),
    "norm without bias": ({"batch_norm_training": 1}, normal(bias=False)),
    "norm, gradients": ({"batch_norm_training": 1, "batch_norm_grad": 1}, graded(normal())),
    "norm without gain, gradients": ({"batch_norm_training": 1, "batch_norm_grad": 1}, graded(normal(gain=False))),
    "norm by what is given": ({"batch_norm_inference": 1}, given),
}
OPERATIONS = ("convolution", "reduce_window", "batch_norm_training", "batch_norm_grad", "batch_norm_inference")
BOUNDS = {f32: 4e-6, f64: 1e-14, bf16: 2.5e-2}
"""Of the largest number: f64 and f32 sum in other orders, bf16 is rounded between the steps of the composition."""


def counted(text: str) -> dict[str, int]:
    """How often the operations stand in a module that compositions are raised to."""
    counts = {operation: text.count(f"stablehlo.{operation}") for operation in OPERATIONS}
    return {operation: count for operation, count in counts.items() if count}


def answers_alike(engines: Any, engine: str, record: Callable[[Tape], Any], element: Element, *texts: Any) -> None:
    """Modules of a program, each with or without raises, answer what the plan does."""
    network, roots = Tape.record(record, element)
    plan = network.entry(roots).lower()
    sources = [node for node in plan.nodes() if node.opcode.name in ("Parameter", "Input")]
    ordered = sorted(sources, key=lambda node: (node.opcode.name == "Input", node.symbol.index))
    arguments = [np.asarray(network.payload(node.symbol).numpy()) for node in ordered]
    run = plan.forward(network.parameters())
    for raises in texts:
        answers = engines.run(engine, plan.emit_stablehlo(raises=raises), arguments)
        for symbol, found in zip(plan.results, answers, strict=True):
            expected = run.of(symbol).numpy()
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            left, right = found.astype(np.float64), expected.astype(np.float64)
            np.testing.assert_allclose(left, right, rtol=0, atol=BOUNDS[element] * (1 + np.abs(right).max()))


@pytest.mark.parametrize("element", [f32, pytest.param(f64, marks=pytest.mark.slow), bf16], ids=str)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("engine", ["interpret", pytest.param("compile", marks=pytest.mark.slow)])
def test_a_raise_answers_what_the_composition_does(engines: Any, engine: str, case: str, element: Element) -> None:
    answers_alike(engines, engine, CASES[case][1], element, True, False)


@pytest.mark.parametrize("case", [case for case in CASES if "gradients" in case or "pool" in case])
def test_a_raise_is_compiled(engines: Any, case: str) -> None:
    answers_alike(engines, "compile", CASES[case][1], f32, True)


@pytest.mark.parametrize("element", [f32, pytest.param(f64, marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("case", NORMS)
def test_norms_are_compiled(engines: Any, case: str, element: Element) -> None:
    """The epsilon of the operation is a binary32, and of `f64` none is one unless it says so."""
    expected, record = NORMS[case]
    network, roots = Tape.record(record, element)
    assert counted(network.entry(roots).lower().emit_stablehlo()) == (expected if element is f32 else {})
    answers_alike(engines, "compile", record, element, True, False)


def test_an_epsilon_that_is_a_binary32_is_one_of_f64() -> None:
    network, root = Tape.record(normal(epsilon=2.0**-16), f64)
    assert counted(network.entry(root).lower().emit_stablehlo()) == {"batch_norm_training": 1}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
def test_a_raise_replaces_its_nodes(case: str, element: Element) -> None:
    expected, record = CASES[case]
    network, root = Tape.record(record, element)
    plan = network.entry(root).lower()
    text = plan.emit_stablehlo()
    assert counted(text) == expected
    assert "unfold" not in text and "gather" not in text and "scatter" not in text
    assert counted(plan.emit_stablehlo(raises=False)) == {}


def test_what_is_named_is_raised() -> None:
    network, root = Tape.record(lambda tape: [picture()(tape), average(tape)])
    plan = network.entry(root).lower()
    assert counted(plan.emit_stablehlo(raises=["REDUCE_WINDOW"])) == {"reduce_window": 1}
    assert counted(plan.emit_stablehlo(raises=Formula.WINDOW_PRODUCT)) == {"convolution": 1}
    assert counted(plan.emit_stablehlo(raises=[])) == {}
    with pytest.raises(SettingError) as caught:
        plan.emit_stablehlo(raises=["ATTENTION"])
    assert str(caught.value) == (
        "emit_stablehlo: no operation is raised from 'ATTENTION'; there are WINDOW_PRODUCT, "
        "WINDOW_PRODUCT_KERNEL_GRADIENT, WINDOW_PRODUCT_INPUT_GRADIENT, REDUCE_WINDOW, REDUCE_WINDOW_GRADIENT, "
        "BATCH_NORM_TRAINING, BATCH_NORM_TRAINING_GRADIENT, BATCH_NORM_INFERENCE"
    )


def test_bf16_says_where_it_accumulates() -> None:
    network, root = Tape.record(picture(last=True), bf16)
    text = network.entry(root).lower().emit_stablehlo()
    assert "(tensor<2x3x6x7xbf16>, tensor<3x3x3x4xbf16>) -> tensor<2x6x7x4xf32>" in text
    network, root = Tape.record(average, bf16)
    lines = network.entry(root).lower().emit_stablehlo().splitlines()
    assert lines[2] == "    %v7_convert = stablehlo.convert %arg0 : (tensor<2x3x6x7xbf16>) -> tensor<2x3x6x7xf32>"


def test_a_largest_that_ties_share_is_no_scatter() -> None:
    """StableHLO would give all of a cotangent to one of them."""
    network, roots = Tape.record(graded(largest))
    text = network.entry(roots).lower().emit_stablehlo()
    assert counted(text) == {} and "select_and_scatter" not in text


def test_statistics_are_handed_out(engines: Any) -> None:
    """Of a norm whose mean moves one that is kept; the norm stands where its mean is read first."""

    def record(tape: Tape) -> Any:
        x, kept = tape.parameter(RNG.normal(size=(20, 3))), tape.parameter(RNG.normal(size=3))
        centre = x.mean_along(0)
        moved = kept * 0.9 + centre * 0.1
        centred = x - centre.broadcast_along(0, 20)
        variance = (centred * centred).mean_along(0)
        deviation = (variance + 1e-5).sqrt()
        return centred / deviation.broadcast_along(0, 20), moved, deviation * 2.0, variance - 1.0

    network, roots = Tape.record(record)
    text = network.entry(roots).lower().emit_stablehlo()
    assert counted(text) == {"batch_norm_training": 1}
    answers_alike(engines, "compile", record, f32, True, False)


def test_what_is_declared_inside_is_a_barrier() -> None:
    def record(tape: Tape) -> Any:
        x = tape.input(RNG.normal(size=(1, 1, 4, 4)))
        windows = x.unfold(3, 2, 2).unfold(2, 2, 2).max_along(5)
        return windows, windows.max_along(3)

    network, (inside, root) = Tape.record(record)
    assert "reduce_window" in network.entry(root).lower().emit_stablehlo()
    assert "reduce_window" not in network.entry(root).observe(inside).lower().emit_stablehlo()
