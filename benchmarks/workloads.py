"""What is measured, as data: each workload's model, its seeded arrays, and how much work a step is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks import models

Array = np.ndarray[Any, np.dtype[Any]]


class Ids(NamedTuple):
    """Integer ids below `classes`."""

    array: Array
    classes: int


class Arrays(NamedTuple):
    """What a model starts from: trained numbers, and what it is given."""

    parameters: dict[str, Array]
    inputs: dict[str, Array | Ids]


class Workload(NamedTuple):
    """One kind of step, the same for every system.

    `kind` is "train" (loss, gradients, update by `rule`), "infer" (the model), or "gradient" (of the model's sum, by
    its inputs). `operations` are the floating-point operations of the products, thrice the model's in a training step;
    `traffic_bytes` what a step has to read and write at least. What two systems answer may differ by `bound`, relative
    to the largest answer.
    """

    name: str
    title: str
    model: Callable[..., Any]
    arrays: Callable[[], Arrays]
    kind: str = "infer"
    rule: str = ""
    operations: int = 0
    traffic_bytes: int = 0
    bound: float = 1e-4
    steps_per_call: int = 1


CHAIN_ELEMENTS = 16 * 1024 * 1024
CHARACTERS = models.Extents(vocab=65, context=64, width=128, heads=4, layers=4)
GPT2 = models.Extents(vocab=50257, context=256, width=768, heads=12, layers=12)


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

    def transformer(self, extents: models.Extents) -> None:
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


def _scalar() -> Arrays:
    return Arrays({"w": np.array(0.5, np.float32)}, {"x": np.array(1.5, np.float32), "y": np.array(2.0, np.float32)})


def _makemore() -> Arrays:
    drawn = _Drawn()
    drawn.parameters["emb"] = drawn.normal(27, 10)
    drawn.linear("hidden", 30, 200)
    drawn.linear("out", 200, 27)
    return Arrays(drawn.parameters, {"x": drawn.ids(27, 32, 3), "y": drawn.ids(27, 32)})


def _mnist() -> Arrays:
    drawn = _Drawn()
    drawn.kernel("conv1", 1, 8)
    drawn.kernel("conv2", 8, 16)
    drawn.linear("out", 784, 10)
    return Arrays(drawn.parameters, {"x": drawn.normal(64, 1, 28, 28), "y": drawn.ids(10, 64)})


def _cifar() -> Arrays:
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


def _mlp() -> Arrays:
    drawn = _Drawn()
    for name, inputs, outputs in (("fc1", 784, 512), ("fc2", 512, 512), ("fc3", 512, 10)):
        drawn.linear(name, inputs, outputs)
    return Arrays(drawn.parameters, {"x": drawn.normal(128, 784), "y": drawn.ids(10, 128)})


def transformer(extents: models.Extents) -> Arrays:
    """A batch of sixteen sequences."""
    drawn = _Drawn()
    drawn.transformer(extents)
    shape = 16, extents.context
    return Arrays(drawn.parameters, {"x": drawn.ids(extents.vocab, *shape), "y": drawn.ids(extents.vocab, *shape)})


def _decode() -> Arrays:
    """One token at the last position; the caches of keys and values hold the positions before it."""
    drawn = _Drawn()
    drawn.transformer(GPT2)
    cache = drawn.normal(12, 2, 12, 256, 64)
    inputs: dict[str, Array | Ids] = {"token": drawn.ids(50257, 1), "position": Ids(np.array([255], np.int32), 256)}
    for layer, (keys, values) in enumerate(cache):
        inputs |= {f"h{layer}.keys": keys, f"h{layer}.values": values}
    return Arrays(drawn.parameters, inputs)


def _prefill() -> Arrays:
    drawn = _Drawn()
    drawn.transformer(GPT2)
    return Arrays(drawn.parameters, {"x": drawn.ids(50257, 256)})


def _attention() -> Arrays:
    drawn = _Drawn()
    drawn.linear("qkv", 768, 2304)
    drawn.linear("proj", 768, 768)
    return Arrays(drawn.parameters, {"x": drawn.normal(256, 768)})


def _inputs(names: str, *shape: int) -> Arrays:
    drawn = _Drawn()
    return Arrays({}, {name: drawn.normal(*shape) for name in names})


def _square(extent: int, dtype: type[np.floating[Any]]) -> Arrays:
    random = np.random.default_rng(0)
    return Arrays({}, {name: random.standard_normal((extent, extent), dtype=dtype) for name in "ab"})


def _products(extents: models.Extents, tokens: int) -> int:
    """Operations of a transformer's products over the tokens of one sequence, without the head."""
    layer = 12 * extents.width**2 + 2 * tokens * extents.width  # causal: half the scores would do, all are counted
    return 2 * tokens * extents.layers * layer


CHAIN_BYTES = 4 * 4 * CHAIN_ELEMENTS  # three operands and the result
GPT2_WEIGHT_BYTES = 4 * (GPT2.layers * 12 * GPT2.width**2 + GPT2.vocab * GPT2.width)

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("w1", "scalar step", models.line, _scalar, "train", "sgd"),
        Workload("w1n", "1000 scalar steps, each", models.line, _scalar, "train", "sgd", steps_per_call=1000),
        Workload("w2", "makemore MLP step", models.makemore, _makemore, "train", "sgd", 6 * 32 * 11400),
        Workload("w3", "MNIST CNN step", models.mnist, _mnist, "train", "sgd", 6 * 64 * (56448 + 225792 + 7840)),
        Workload("w4", "CIFAR CNN step", models.cifar, _cifar, "train", "adam", 6 * 64 * 10_342_400, bound=1e-3),
        Workload(
            "w5",
            "char-GPT step",
            partial(models.characters, CHARACTERS),
            partial(transformer, CHARACTERS),
            "train",
            "adamw",
            3 * 16 * (_products(CHARACTERS, 64) + 2 * 64 * 65 * 128),
            bound=1e-3,
        ),
        Workload(
            "w6",
            "GPT-2 decode, a token",
            partial(models.decode, GPT2),
            _decode,
            operations=GPT2_WEIGHT_BYTES // 2,
            traffic_bytes=GPT2_WEIGHT_BYTES + 4 * 24 * 12 * 256 * 64,
        ),
        Workload(
            "w6b",
            "GPT-2 prefill, 256 tokens",
            partial(models.prefill, GPT2),
            _prefill,
            operations=_products(GPT2, 256) + 2 * GPT2.vocab * GPT2.width,
        ),
        Workload(
            "w7",
            "attention, projected",
            models.attention,
            _attention,
            operations=2 * 256 * (4 * 768**2 + 2 * 256 * 768),
        ),
        Workload(
            "w7c", "attention core", models.core, partial(_inputs, "qkv", 12, 256, 64), operations=4 * 256 * 256 * 768
        ),
        Workload(
            "w8",
            "elementwise chain, 16M",
            models.chain,
            partial(_inputs, "abc", CHAIN_ELEMENTS),
            traffic_bytes=CHAIN_BYTES,
        ),
        Workload(
            "w8g",
            "its gradients",
            models.chain,
            partial(_inputs, "abc", CHAIN_ELEMENTS),
            "gradient",
            traffic_bytes=2 * 3 * 4 * CHAIN_ELEMENTS,
        ),
        *(
            Workload(
                f"w9-{extent}-{name}",
                f"matmul {extent}, {name}",
                models.product,
                partial(_square, extent, dtype),
                operations=2 * extent**3,
            )
            for name, dtype in (("f32", np.float32), ("f64", np.float64))
            for extent in (512, 1024, 2048)
        ),
        Workload("w10", "MLP step", models.mlp, _mlp, "train", "sgd", 6 * 128 * (784 * 512 + 512 * 512 + 5120)),
    )
}

TITLES = {workload.name: workload.title for workload in WORKLOADS.values()}
