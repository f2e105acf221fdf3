"""What is measured, as data: each workload's model, what it starts from, and how much work a step is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks import arrays, models
from benchmarks.arrays import CHARACTERS, GPT2, Arrays

CHAIN_ELEMENTS = 16 * 1024 * 1024
CHAIN_BYTES = 4 * 4 * CHAIN_ELEMENTS  # three operands and the result
GPT2_WEIGHT_BYTES = 4 * (GPT2.layers * 12 * GPT2.width**2 + GPT2.vocab * GPT2.width)


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
    item_bytes: int = 4
    steps_per_call: int = 1


def _products(extents: models.Extents, tokens: int) -> int:
    """Operations of a transformer's products over the tokens of one sequence, without the head."""
    layer = 12 * extents.width**2 + 2 * tokens * extents.width  # causal: half the scores would do, all are counted
    return 2 * tokens * extents.layers * layer


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("w1", "scalar step", models.line, arrays.scalar, "train", "sgd"),
        Workload("w1n", "1000 scalar steps, each", models.line, arrays.scalar, "train", "sgd", steps_per_call=1000),
        Workload("w2", "makemore MLP step", models.makemore, arrays.makemore, "train", "sgd", 6 * 32 * 11400),
        Workload("w3", "MNIST CNN step", models.mnist, arrays.mnist, "train", "sgd", 6 * 64 * (56448 + 225792 + 7840)),
        Workload("w4", "CIFAR CNN step", models.cifar, arrays.cifar, "train", "adam", 6 * 64 * 10_342_400, bound=1e-3),
        Workload(
            "w5",
            "char-GPT step",
            partial(models.characters, CHARACTERS),
            partial(arrays.transformer, CHARACTERS),
            "train",
            "adamw",
            3 * 16 * (_products(CHARACTERS, 64) + 2 * 64 * 65 * 128),
            bound=1e-3,
        ),
        Workload(
            "w6",
            "GPT-2 decode, a token",
            partial(models.decode, GPT2),
            arrays.decode,
            operations=GPT2_WEIGHT_BYTES // 2,
            traffic_bytes=GPT2_WEIGHT_BYTES + 4 * 24 * 12 * 256 * 64,
        ),
        Workload(
            "w6b",
            "GPT-2 prefill, 256 tokens",
            partial(models.prefill, GPT2),
            arrays.prefill,
            operations=_products(GPT2, 256) + 2 * GPT2.vocab * GPT2.width,
        ),
        Workload(
            "w7",
            "attention, projected",
            models.attention,
            arrays.attention,
            operations=2 * 256 * (4 * 768**2 + 2 * 256 * 768),
        ),
        Workload(
            "w7c",
            "attention core",
            models.core,
            partial(arrays.inputs, "qkv", 12, 256, 64),
            operations=4 * 256 * 256 * 768,
        ),
        Workload(
            "w8",
            "elementwise chain, 16M",
            models.chain,
            partial(arrays.inputs, "abc", CHAIN_ELEMENTS),
            traffic_bytes=CHAIN_BYTES,
        ),
        Workload(
            "w8g",
            "its gradients",
            models.chain,
            partial(arrays.inputs, "abc", CHAIN_ELEMENTS),
            "gradient",
            traffic_bytes=2 * 3 * 4 * CHAIN_ELEMENTS,
        ),
        *(
            Workload(
                f"w9-{extent}-{name}",
                f"matmul {extent}, {name}",
                models.product,
                partial(arrays.square, extent, dtype),
                operations=2 * extent**3,
                item_bytes=np.dtype(dtype).itemsize,
            )
            for name, dtype in (("f32", np.float32), ("f64", np.float64))
            for extent in (512, 1024, 2048)
        ),
        Workload(
            "w9v",
            "row by matrix, 768 by 50257",
            models.product,
            partial(arrays.row_and_matrix, 768, 50257),
            traffic_bytes=4 * 768 * 50257,
        ),
        Workload(
            "w9t",
            "row by table, 50257 of 768",
            models.scored,
            partial(arrays.row_and_matrix, 50257, 768),
            traffic_bytes=4 * 768 * 50257,
        ),
        Workload("w10", "MLP step", models.mlp, arrays.mlp, "train", "sgd", 6 * 128 * (784 * 512 + 512 * 512 + 5120)),
    )
}
