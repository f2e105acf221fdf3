"""What the workloads start from: seeded arrays, the same for every system."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from benchmarks.models import Extents

Array = np.ndarray[Any, np.dtype[Any]]
CHARACTERS = Extents(vocab=65, context=64, width=128, heads=4, layers=4)
GPT2 = Extents(vocab=50257, context=256, width=768, heads=12, layers=12)


class Ids(NamedTuple):
    """Integer ids below `classes`."""

    array: Array
    classes: int


class Arrays(NamedTuple):
    """What a model starts from: trained numbers, and what it is given."""

    parameters: dict[str, Array]
    inputs: dict[str, Array | Ids]


class _Drawn:
    """Draws of one seed, in the order asked for: weights [in, out], kernels [out, in, 3, 3], ids of 32 bits."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.parameters: dict[str, Array] = {}

    def normal(self, *shape: int, scale: float = 1.0) -> Array:
        numbers = self.random.standard_normal(shape, dtype=np.float32)
        numbers *= np.float32(scale)
        return numbers

    def ids(self, classes: int, *shape: int) -> Ids:
        return Ids(self.random.integers(0, classes, shape).astype(np.int32), classes)

    def linear(self, name: str, inputs: int, outputs: int, scale: float | None = None) -> None:
        self.parameters[f"{name}.w"] = self.normal(inputs, outputs, scale=scale or inputs**-0.5)
        self.parameters[f"{name}.b"] = np.zeros(outputs, np.float32)

    def kernel(self, name: str, inputs: int, outputs: int, bias: bool = True) -> None:
        self.parameters[f"{name}.w"] = self.normal(outputs, inputs, 3, 3, scale=(9 * inputs) ** -0.5)
        if bias:
            self.parameters[f"{name}.b"] = np.zeros(outputs, np.float32)

    def norm(self, name: str, width: int) -> None:
        self.parameters[f"{name}.g"] = np.ones(width, np.float32)
        self.parameters[f"{name}.b"] = np.zeros(width, np.float32)

    def transformer(self, extents: Extents) -> None:
        width = extents.width
        self.parameters["wte"] = self.normal(extents.vocab, width, scale=0.02)
        self.parameters["wpe"] = self.normal(extents.context, width, scale=0.02)
        for layer in range(extents.layers):
            self.norm(f"h{layer}.ln1", width)
            self.linear(f"h{layer}.qkv", width, 3 * width, 0.02)
            self.linear(f"h{layer}.proj", width, width, 0.02)
            self.norm(f"h{layer}.ln2", width)
            self.linear(f"h{layer}.fc", width, 4 * width, 0.02)
            self.linear(f"h{layer}.out", 4 * width, width, 0.02)
        self.norm("ln_f", width)


def scalar() -> Arrays:
    return Arrays({"w": np.array(0.5, np.float32)}, {"x": np.array(1.5, np.float32), "y": np.array(2.0, np.float32)})


def makemore() -> Arrays:
    drawn = _Drawn()
    drawn.parameters["emb"] = drawn.normal(27, 10)
    drawn.linear("hidden", 30, 200)
    drawn.linear("out", 200, 27)
    return Arrays(drawn.parameters, {"x": drawn.ids(27, 32, 3), "y": drawn.ids(27, 32)})


def mnist() -> Arrays:
    drawn = _Drawn()
    drawn.kernel("conv1", 1, 8)
    drawn.kernel("conv2", 8, 16)
    drawn.linear("out", 784, 10)
    return Arrays(drawn.parameters, {"x": drawn.normal(64, 1, 28, 28), "y": drawn.ids(10, 64)})


def cifar() -> Arrays:
    drawn = _Drawn()
    running: dict[str, Array | Ids] = {}
    for at, (inputs, outputs) in enumerate(((3, 32), (32, 64)), 1):
        drawn.kernel(f"conv{at}", inputs, outputs, bias=False)
        drawn.norm(f"bn{at}", outputs)
        running[f"bn{at}.mean"] = np.zeros(outputs, np.float32)
        running[f"bn{at}.variance"] = np.ones(outputs, np.float32)
    drawn.kernel("conv3", 64, 128)
    drawn.linear("out", 2048, 10)
    return Arrays(drawn.parameters, {"x": drawn.normal(64, 3, 32, 32), "y": drawn.ids(10, 64), **running})


def mlp() -> Arrays:
    drawn = _Drawn()
    for name, inputs, outputs in (("fc1", 784, 512), ("fc2", 512, 512), ("fc3", 512, 10)):
        drawn.linear(name, inputs, outputs)
    return Arrays(drawn.parameters, {"x": drawn.normal(128, 784), "y": drawn.ids(10, 128)})


def transformer(extents: Extents) -> Arrays:
    """A batch of sixteen sequences."""
    drawn = _Drawn()
    drawn.transformer(extents)
    shape = 16, extents.context
    return Arrays(drawn.parameters, {"x": drawn.ids(extents.vocab, *shape), "y": drawn.ids(extents.vocab, *shape)})


def decode() -> Arrays:
    """One token at the last position; the caches of keys and values hold the positions before it."""
    drawn = _Drawn()
    drawn.transformer(GPT2)
    cache = drawn.normal(12, 2, 12, 256, 64)
    inputs: dict[str, Array | Ids] = {"token": drawn.ids(50257, 1), "position": Ids(np.array([255], np.int32), 256)}
    for layer, (keys, values) in enumerate(cache):
        inputs |= {f"h{layer}.keys": keys, f"h{layer}.values": values}
    return Arrays(drawn.parameters, inputs)


def prefill() -> Arrays:
    drawn = _Drawn()
    drawn.transformer(GPT2)
    return Arrays(drawn.parameters, {"x": drawn.ids(50257, 256)})


def attention() -> Arrays:
    drawn = _Drawn()
    drawn.linear("qkv", 768, 2304)
    drawn.linear("proj", 768, 768)
    return Arrays(drawn.parameters, {"x": drawn.normal(256, 768)})


def inputs(names: str, *shape: int) -> Arrays:
    drawn = _Drawn()
    return Arrays({}, {name: drawn.normal(*shape) for name in names})


def row_and_matrix(*shape: int) -> Arrays:
    """One row of 768 numbers, and a matrix that is read once."""
    drawn = _Drawn()
    return Arrays({}, {"a": drawn.normal(1, 768), "b": drawn.normal(*shape)})


def square(extent: int, dtype: type[np.floating[Any]]) -> Arrays:
    random = np.random.default_rng(0)
    return Arrays({}, {name: random.standard_normal((extent, extent), dtype=dtype) for name in "ab"})
