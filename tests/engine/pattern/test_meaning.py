"""What a pattern says is enough to compute it: loops and NumPy over its operands and parameters, and nothing else."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import Formula, Pattern, Tape

from .compositions import FORMS, Compose, Sources, convolution, recorded

Array = np.ndarray[Any, np.dtype[Any]]
Operands = dict[str, Array]


def patches(array: Array, parameters: dict[str, Any], outside: float) -> tuple[Array, dict[Any, int]]:
    """The array padded and taken apart into windows, and which part of which axis each of its axes is."""
    names: list[Any] = [(axis, "whole") for axis in range(array.ndim)]
    for axis, *_, before, after in parameters["windows"]:
        width = [(before, after) if at == axis else (0, 0) for at in range(array.ndim)]
        array = np.pad(array, width, constant_values=outside)
    for axis, size, step, dilation, *_ in reversed(parameters["windows"]):
        count = (array.shape[axis] - dilation * (size - 1) - 1) // step + 1
        places = step * np.arange(count)[:, None] + dilation * np.arange(size)
        array = np.take(array, places, axis)
        names[axis : axis + 1] = [(axis, "count"), (axis, "offset")]
    return array, {name: at for at, name in enumerate(names)}


def matrix(array: Array, parameters: dict[str, Any], outside: float = 0.0) -> Array:
    """The windows as the operand of the product has them."""
    taken, names = patches(array, parameters, outside)
    order = [names[part] for axis in parameters["axes"] for part in axis]
    left = [at for at in range(taken.ndim) if at not in order]
    assert all(taken.shape[at] == 1 for at in left)
    taken = taken.transpose([*order, *left])
    shape, at = [], 0
    for axis in parameters["axes"]:
        shape.append(int(np.prod(taken.shape[at : at + len(axis)], dtype=int)))
        at += len(axis)
    return taken.reshape(shape)


def product(pattern: Pattern, operands: Operands) -> Array:
    windows = matrix(operands["operand"], dict(pattern.parameters))
    other = operands["kernel" if "kernel" in operands else "cotangent"]
    return windows @ other if pattern.parameters["side"] == "left" else other @ windows


def input_gradient(pattern: Pattern, operands: Operands, shape: tuple[int, ...]) -> Array:
    """Each place of the product is added to the place of the input that it was read from; the padding gets none."""
    pair = operands["cotangent"], operands["kernel"]
    terms = np.matmul(*(pair if pattern.parameters["side"] == "left" else pair[::-1]))
    places = matrix(np.arange(np.prod(shape)).reshape(shape), dict(pattern.parameters), -1)
    result = np.zeros(int(np.prod(shape)) + 1)
    np.add.at(result, places, terms)
    return result[:-1].reshape(shape)


def pool(pattern: Pattern, operands: Operands) -> Array:
    is_largest = pattern.kind == "max pool"
    taken, names = patches(operands["operand"], dict(pattern.parameters), -np.inf if is_largest else 0.0)
    axes = tuple(at for name, at in names.items() if name[1] == "offset")
    return taken.max(axes) if is_largest else taken.mean(axes)


def normalised(pattern: Pattern, operands: Operands) -> Array:
    x, axes, epsilon = operands["operand"], pattern.parameters["axes"], pattern.parameters["epsilon"]
    others = tuple(axis for axis in range(x.ndim) if axis not in axes)

    def placed(values: Array, along: tuple[int, ...]) -> Array:
        return np.expand_dims(values, tuple(axis for axis in range(x.ndim) if axis not in along))

    mean, variance = x.mean(axes), x.var(axes)
    if pattern.kind == "RMS norm":
        mean, variance = np.zeros_like(mean), (x * x).mean(axes)
    mean, variance = operands.get("mean", mean), operands.get("variance", variance)
    result = (x - placed(mean, others)) / np.sqrt(placed(variance, others) + epsilon)
    features = others if pattern.kind.startswith("batch") else axes
    result = result * placed(operands["gain"], features) if "gain" in operands else result
    return result + placed(operands["bias"], features) if "bias" in operands else result


def entropy(pattern: Pattern, operands: Operands) -> Array:
    scores, axis = operands["scores"], pattern.parameters["axis"]
    chances = np.exp(scores) / np.exp(scores).sum(axis, keepdims=True)
    losses = -(np.log(chances) * operands["labels"]).sum(axis)
    return losses / pattern.parameters["divisor"]


def attended(pattern: Pattern, operands: Operands) -> Array:
    parameters = pattern.parameters
    key = operands["transposed key"] if "transposed key" in operands else operands["key"].swapaxes(-1, -2)
    scores = operands["query"] @ key * parameters.get("scale", 1.0) / parameters.get("divisor", 1.0)
    shape = scores.shape
    scores = scores.reshape([*parameters["rows"], -1])
    if "mask" in parameters:
        mask = np.broadcast_to(np.expand_dims(operands["mask"], parameters["mask_axes"]), scores.shape)
        scores = scores + mask if parameters["mask"] == "added" else np.where(mask, scores, parameters["fill"])
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return (powers / powers.sum(-1, keepdims=True)).reshape(shape) @ operands["value"]


MEANINGS: dict[str, Callable[[Pattern, Operands], Array]] = {
    "WINDOW_PRODUCT": product,
    "WINDOW_PRODUCT_KERNEL_GRADIENT": product,
    "REDUCE_WINDOW": pool,
    "LAYER_NORM": normalised,
    "RMS_NORM": normalised,
    "BATCH_NORM_TRAINING": normalised,
    "BATCH_NORM_INFERENCE": normalised,
    "CROSS_ENTROPY": entropy,
    "ATTENTION": attended,
    "CONCATENATION": lambda pattern, operands: np.concatenate(
        [operands[f"part {at}"] for at in range(len(operands))], pattern.parameters["axis"]
    ),
    "EMBEDDING": lambda pattern, operands: operands["ids"] @ operands["table"],
    "EMBEDDING_GRADIENT": lambda pattern, operands: operands["ids"].T @ operands["cotangent"],
}


def assert_means(network: Any, patterns: list[Pattern]) -> None:
    run = network.forward(network.parameters())
    for pattern in patterns:
        operands = {name: run.of(symbol).numpy().astype(float) for name, symbol in pattern.operands.items()}
        expected = run.of(pattern.root).numpy()
        if pattern.formula == "WINDOW_PRODUCT_INPUT_GRADIENT":
            actual = input_gradient(pattern, operands, expected.shape)
        elif pattern.formula in MEANINGS:
            actual = MEANINGS[pattern.formula](pattern, operands)
            actual = actual.sum() if pattern.kind == "cross entropy" and not expected.shape else actual
        else:
            continue
        assert actual.shape == expected.shape
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5, err_msg=pattern.kind)


@pytest.mark.parametrize("compose", [compose for compose, _ in FORMS.values()], ids=FORMS.keys())
def test_operands_and_parameters_say_it_all(compose: Compose) -> None:
    network, (result, loss, gradients) = recorded(compose, gradients=True)
    for plan in (network.entry(result).lower(), network.entry([loss, gradients]).lower()):
        patterns = plan.patterns(Formula)
        assert patterns
        assert_means(network, patterns)


@pytest.mark.parametrize("stride", [(1, 1), (2, 3), (4, 4)])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 1), (3, 2)])
@pytest.mark.parametrize("padding", [(0, 0), (1, 2)])
@pytest.mark.parametrize("kernel", [(1, 1), (2, 3), (3, 1)])
def test_windows_of_every_kind(
    stride: tuple[int, int], dilation: tuple[int, int], padding: tuple[int, int], kernel: tuple[int, int]
) -> None:
    compose = convolution(stride, dilation, padding, kernel, (1, 2, 7, 6))
    network, (_, loss, gradients) = recorded(compose, gradients=True)
    patterns = network.entry([loss, gradients]).lower().patterns(Formula)
    assert sorted(pattern.kind for pattern in patterns) == [
        "window product",
        "window product input gradient",
        "window product kernel gradient",
    ]
    assert_means(network, patterns)


def by_hand(source: Sources) -> list[Any]:
    """The three products of a convolution along one axis as somebody may write them without any derivative."""
    x, kernel, cotangent = source(2, 3, 8), source(12, 5), source(10, 5)
    windows = x.unfold(2, 4).permute([0, 2, 1, 3]).reshape([10, 12])
    spread = (kernel @ cotangent.transpose()).reshape([3, 4, 2, 5]).permute([2, 0, 3, 1]).fold(2, 4, 1, 1, 8)
    return [windows @ kernel, cotangent.transpose() @ windows, spread]


def test_gradients_by_hand_are_found() -> None:
    network, results = Tape.record(lambda tape: by_hand(Sources(tape)))
    patterns = network.entry(results).lower().patterns(Formula)
    assert sorted(pattern.kind for pattern in patterns) == [
        "window product",
        "window product input gradient",
        "window product kernel gradient",
    ]
    assert_means(network, patterns)
