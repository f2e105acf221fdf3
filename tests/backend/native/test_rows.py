"""Row groups: normalisers and losses with their gradients, over lengths around the lanes and blocks of a sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from topos import Tape, Tensor, bf16, f32, f64
from topos.element import Element
from topos.graph.spec import Spec
from topos.testing import assert_same_bits

pytest.importorskip("llvmlite")

from topos.backend.native.groups import Lowering
from topos.engine.liveness import schedule

from .kernel_checks import check_kernels, target_named, values_of

Model = Callable[[Tape, Any, int], Any]
SPECIAL = np.array([np.inf, -np.inf, np.nan, -0.0, 0.0, 1e-40, 3e38, -3e38])


def softmax(tape: Tape, x: Any, axis: int) -> Any:
    return x.softmax(axis)


def log_softmax(tape: Tape, x: Any, axis: int) -> Any:
    return (x + x).log_softmax(axis) * x


def logsumexp(tape: Tape, x: Any, axis: int) -> Any:
    return (x * x).logsumexp(axis).tanh()


def layer_norm(tape: Tape, x: Any, axis: int) -> Any:
    extent = x.shape[axis]
    centred = x - x.mean_along(axis).broadcast_along(axis, extent)
    scale = ((centred * centred).mean_along(axis) + 1e-5).sqrt().broadcast_along(axis, extent)
    return centred / scale * spread(tape, x, axis, 0.5) + spread(tape, x, axis, -0.25)


def rms_norm(tape: Tape, x: Any, axis: int) -> Any:
    mean = (x * x).mean_along(axis) + 1e-5
    return x / mean.sqrt().broadcast_along(axis, x.shape[axis]) * spread(tape, x, axis, 0.75)


def spread(tape: Tape, x: Any, axis: int, start: float) -> Any:
    """A learned number per place of the axis, at every row."""
    numbers = tape.parameter(np.linspace(start, 2.0, x.shape[axis]), element=x.element)
    for other, extent in enumerate(x.shape):
        if other != axis:
            numbers = numbers.broadcast_along(other, extent)
    return numbers


def cross_entropy(tape: Tape, x: Any, axis: int) -> Any:
    if axis != 1 or x.shape.rank != 2:
        return x.log_softmax(axis)
    chosen = tape.leaf(Tensor.selection(np.arange(x.shape[0]) % x.shape[1], x.shape[1]))
    y = x.log_softmax(1)
    return -chosen.select(y, y.zero_like()).sum() / y.sum().counted(x.shape[0])


def spread_of_a_sum(tape: Tape, x: Any, axis: int) -> Any:
    return x / x.sum().broadcast(x.shape) + x.max_along(axis).broadcast_along(axis, x.shape[axis])


MODELS = [softmax, log_softmax, logsumexp, layer_norm, rms_norm, cross_entropy, spread_of_a_sum]
LENGTHS = [*range(1, 71), *range(511, 515), 1025]
SOME = [1, 2, 3, 8, 17, 31, 32, 33, 64, 511, 513, 1025]


def recorded(model: Model, element: Element, shape: Sequence[int], axis: int) -> tuple[Spec, list[int], Any]:
    """A model of an input, its gradient under a drawn cotangent, what is kept, and the network."""
    random = np.random.default_rng(7)
    tape = Tape(element)
    numbers = random.standard_normal(shape)
    numbers[:1] = -np.inf
    if shape[0] > 2:
        numbers[1:3] = random.choice(SPECIAL, numbers[1:3].shape)
    with np.errstate(all="ignore"):
        x = tape.parameter(numbers.astype(np.float32), element=element)
        y = model(tape, x, axis)
        loss = (y * tape.parameter(random.standard_normal(y.shape), element=element)).sum()
        gradient = tape.differentiate(loss, [x]).of(x)
        kept = [y.symbol().index, gradient.symbol().index, loss.symbol().index]
        network = tape.into_network()
    return network.spec, kept, network


def check(model: Model, element: Element, shape: Sequence[int], axis: int, target: str = "host") -> None:
    spec, kept, network = recorded(model, element, shape, axis)
    assert check_kernels(spec, kept, values_of(network, {}), target_named(target)) == []


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_rows_of_some_lengths(model: Model, element: Element) -> None:
    for extent in SOME if element is f32 else SOME[::3]:
        check(model, element, (5, extent), 1)


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_columns(model: Model, element: Element) -> None:
    for shape, axis in [((3, 5, 7), 1), ((40, 19), 0), ((4, 2, 33), 0), ((513, 3), 0)]:
        check(model, element, shape, axis)


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", ["host", "x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_rows_of_every_length(model: Model, element: Element, target: str) -> None:
    for extent in LENGTHS:
        check(model, element, (4, extent), 1, target)
    for shape, axis in [((3, 5, 7), 1), ((70, 19), 0), ((4, 2, 33), 0), ((1025, 3), 0)]:
        check(model, element, shape, axis, target)


@pytest.mark.parametrize("element", [f32, bf16], ids=str)
@pytest.mark.parametrize("shape", [(20_000,), (41, 513), (3, 5000), (513 * 32,), (64, 2, 129)])
def test_sums_of_all_elements_in_blocks(shape: tuple[int, ...], element: Element) -> None:
    tape = Tape(element)
    x = tape.parameter(np.random.default_rng(3).standard_normal(shape), element=element)
    y = (x * x).tanh()
    mean = y.mean()
    turned = x.permute([*reversed(range(len(shape)))]).sum()
    values = [y, mean, mean * turned, tape.differentiate(mean, [x]).of(x)]
    kept = [value.symbol().index for value in values]
    network = tape.into_network()
    assert check_kernels(network.spec, kept, values_of(network, {}), target_named("host")) == []


@pytest.mark.parametrize("model", [softmax, layer_norm, log_softmax])
def test_a_row_alone_is_the_row_in_a_batch(model: Model) -> None:
    rows = np.random.default_rng(5).standard_normal((9, 77)).astype(np.float32)

    def run(numbers: np.ndarray) -> np.ndarray:
        tape = Tape()
        y = model(tape, tape.parameter(numbers), 1).symbol()
        network = tape.into_network()
        return network.entry([y]).lower().forward(network.parameters()).of(y).numpy()

    together = run(rows)
    for index in range(len(rows)):
        assert_same_bits(run(rows[index : index + 1]), together[index : index + 1])


def groups(model: Model, *kept: str) -> list[list[str]]:
    """The instructions of each group of a model and its gradient."""
    spec, keep, _ = recorded(model, f32, (8, 40), 1)
    lowering = Lowering(spec, schedule(spec.rows, keep[: len(kept)]), keep[: len(kept)])
    return [[spec.rows[row].opcode.name for row in group.rows] for group in lowering.groups]


def test_a_softmax_is_one_group() -> None:
    assert groups(softmax, "value") == [["MaxAlong", "Sub", "Exp", "SumAlong", "Div"]]


@pytest.mark.parametrize("model", [softmax, log_softmax, logsumexp, layer_norm, rms_norm])
def test_a_normaliser_and_its_gradient_are_one_group(model: Model) -> None:
    assert len(groups(model, "value", "gradient")) == 1


def test_a_group_says_why_it_is_not_part_of_another() -> None:
    tape = Tape()
    x = tape.parameter(np.ones((4, 5)))
    y = x.exp()
    values = [y.permute([1, 0]).tanh(), y.sum_along(1).exp(), y.sum_along(0)]
    kept = [value.symbol().index for value in values]
    spec = tape.into_network().spec
    lowering = Lowering(spec, schedule(spec.rows, kept), kept)
    assert [group.why for group in lowering.groups] == [
        "nothing before it has its shape",
        "%1 has another shape",
        "the loop of %1 walks another axis",
    ]
