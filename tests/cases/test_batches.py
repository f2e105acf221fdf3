"""A row alone, in a batch, again, and in several threads at once: one set of bits."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topos import Tape, Tensor, bf16, detach, f64
from topos.testing import assert_same_bits

Array = np.ndarray[Any, np.dtype[Any]]

SIZES = (1, 2, 3, 7, 8, 33, 64)


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def digest(*tensors: Any) -> str:
    hashed = hashlib.sha256()
    for tensor in tensors:
        hashed.update(np.ascontiguousarray(tensor.numpy()).tobytes())
    return hashed.hexdigest()


def test_c62_a_row_of_a_product_alone_and_in_a_batch(values):
    """The order of the inner sum belongs to the row and the column: other rows beside it change nothing."""
    x, w = normal(0, 64, 512), normal(1, 512, 256)
    whole = values(lambda x, w: x @ w, x, w)
    for size in SIZES:
        assert_same_bits(values(lambda x, w: x @ w, x[:size], w), whole[:size])
    assert_same_bits(values(lambda x, w: x @ w, x[63:], w), whole[63:])
    assert_same_bits(values(lambda x, w: x @ w, x, w[:, 17:18]), whole[:, 17:18])
    stacked = values(lambda x, w: x @ w, x.reshape(4, 16, 512), np.broadcast_to(w, (4, 512, 256)))
    assert_same_bits(stacked.reshape(64, 256), whole)


@pytest.mark.parametrize("element", [f64, bf16], ids=str)
def test_c62_a_row_of_a_product_in_other_elements(values, element):
    """Past one block of 512 terms, and below it."""
    x, w = (np.array(Tensor(n, element).numpy()) for n in (normal(0, 8, 530), normal(1, 530, 6)))
    whole = values(lambda x, w: x @ w, x, w)
    for row in range(8):
        assert_same_bits(values(lambda x, w: x @ w, x[row : row + 1], w), whole[row : row + 1])


def layer_norm(x):
    """Over the last axis, as the facade is spelled: centred, then divided by the deviation."""
    axis, extent = x.shape.rank - 1, x.shape[-1]
    centred = x - x.mean_along(axis).broadcast_along(axis, extent)
    deviation = ((centred * centred).mean_along(axis) + 1e-5).sqrt()
    return centred / deviation.broadcast_along(axis, extent)


def convolution(images, kernels):
    """`[batch, channels, height, width]` by `[filters, channels, size, size]`, padded by one."""
    batch, channels, height, width = images.shape
    filters, _, size, _ = kernels.shape
    padded = images.pad(2, 1, height + 2).pad(3, 1, width + 2)
    windows = padded.unfold(2, size).unfold(4, size)  # [batch, channels, rows, size, columns, size]
    rows, columns = windows.shape[2], windows.shape[4]
    patches = windows.permute([0, 2, 4, 1, 3, 5]).reshape([batch * rows * columns, channels * size * size])
    product = patches @ kernels.reshape([filters, channels * size * size]).transpose()
    return product.reshape([batch, rows, columns, filters]).permute([0, 3, 1, 2])


def perceptron(x):
    """Two layers with their weights as constants of the spec."""
    hidden = (x @ Tensor(normal(2, 32, 48)) + Tensor(normal(3, 48)).broadcast_along(0, x.shape[0])).gelu()
    return layer_norm(hidden) @ Tensor(normal(4, 48, 10))


def attention(x):
    """One head over tokens `[batch, tokens, width]`."""
    scores = x @ x.transpose() * 32**-0.5
    return scores.softmax(2) @ x


def classifier(images):
    """A convolution, a pool by the largest of two columns, and a linear layer."""
    maps = convolution(images, Tensor(normal(5, 6, 3, 3, 3))).relu()
    pooled = maps.unfold(3, 2, 2).max_along(4)
    features = pooled.reshape([images.shape[0], pooled.shape.volume // images.shape[0]])
    return (features @ Tensor(normal(6, features.shape[1], 10))).log_softmax(1)


MODELS = {
    "softmax": (lambda x: x.softmax(1), (300,)),
    "log_softmax": (lambda x: x.log_softmax(1), (300,)),
    "logsumexp": (lambda x: x.logsumexp(1), (300,)),
    "mean_along": (lambda x: x.mean_along(1), (700,)),
    "max_along": (lambda x: x.max_along(1), (33,)),
    "layer norm": (layer_norm, (200,)),
    "perceptron": (perceptron, (32,)),
    "attention": (attention, (5, 32)),
    "classifier": (classifier, (3, 6, 6)),
}


@pytest.mark.parametrize("name", MODELS)
def test_c62_models_in_evaluation(values, name):
    """What a model says of a row does not depend on the company it came in."""
    model, shape = MODELS[name]
    rows = normal(8, 64, *shape)
    whole = values(model, rows)
    for size in SIZES:
        assert_same_bits(values(model, rows[:size]), whole[:size])
    assert_same_bits(values(model, rows[40:47]), whole[40:47])


def linear() -> tuple[Any, Any, Any, Any]:
    """A layer 57 -> 443 for one row: its plan, parameters, feeds and results."""
    tape = Tape()
    x = tape.input(shape=[1, 57], name="x")
    w, b = tape.parameter(normal(0, 57, 443)), tape.parameter(normal(1, 443))
    y = (x @ w + b.broadcast_along(0, 1)).tanh()
    adjoints = detach(tape.differentiate((y * y).sum(), [w, b, x]))
    network = tape.into_network()
    return network.entry(adjoints).lower(), network.parameters(), {"x": normal(2, 1, 57)}, adjoints.roots()


def convolution_step() -> tuple[Any, Any, Any, Any, Any]:
    """One training step of a small convolution net: plan, network, feeds, results, weights; weights are carried."""
    tape = Tape()
    images, labels = tape.input(shape=[4, 2, 6, 6], name="images"), tape.selection([4], 5, name="labels")
    kernels, head = tape.parameter(normal(3, 4, 2, 3, 3)), tape.parameter(normal(4, 144, 5))
    logits = convolution(images, kernels).relu().reshape([4, 144]) @ head
    scores = logits.log_softmax(1)
    loss = -labels.select(scores, scores.zero_like()).sum() / 4
    adjoints = tape.differentiate(loss, [kernels, head])
    carry = {weight.symbol(): (weight - gradient * 0.01).symbol() for weight, gradient in adjoints}
    results, weights = adjoints.roots(), [kernels.symbol(), head.symbol()]
    network = tape.into_network()
    plan = network.entry(results).carry(carry).lower()
    return plan, network, {"images": normal(5, 4, 2, 6, 6), "labels": [0, 4, 2, 2]}, results, weights


def trained() -> str:
    """The hash of outputs, gradients and updated weights of two steps."""
    plan, network, feeds, results, weights = convolution_step()
    state = network.state()
    parts = [tensor for _ in range(2) for tensor in plan.advance(state, feeds).of(results)]
    return digest(*parts, *[state.of(weight) for weight in weights])


def test_c63_five_hundred_repeats():
    """A race, or a buffer that is written twice, shows in repeats: one hash for all of them."""
    plan, parameters, feeds, results = linear()
    hashes = {digest(*plan.forward(parameters, feeds).of(results)) for _ in range(500)}
    assert len(hashes) == 1
    assert feeds["x"].tobytes() == normal(2, 1, 57).tobytes()


def test_c63_results_outlive_later_calls():
    """A result is the caller's: the next call of the same plan does not write to it."""
    plan, parameters, feeds, results = linear()
    first = plan.forward(parameters, feeds).of(results)
    before = digest(*first)
    for scale in (2, 3):
        plan.forward(parameters, {"x": feeds["x"] * np.float32(scale)})
    assert digest(*first) == before


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 6])
def test_c63_python_threads_at_once(threads):
    """One plan called from several threads together gives each the bits of a call alone."""
    plan, parameters, feeds, results = linear()
    expected = digest(*plan.forward(parameters, feeds).of(results))
    stepped = trained()
    barrier = threading.Barrier(threads)

    def work(_: int) -> tuple[set[str], str]:
        barrier.wait()
        return {digest(*plan.forward(parameters, feeds).of(results)) for _ in range(20)}, trained()

    with ThreadPoolExecutor(threads) as pool:
        answers = list(pool.map(work, range(threads)))
    assert answers == [({expected}, stepped)] * threads


def test_c63_steps_together_and_one_by_one():
    """`steps=n` is n calls: the same results, the same weights."""
    plan, network, feeds, results, weights = convolution_step()
    alone, together = network.state(), network.state()
    one_by_one = [plan.advance(alone, feeds).of(results) for _ in range(5)]
    at_once = plan.advance(together, feeds, steps=5).of(results)
    for position, stacked in enumerate(at_once):
        assert_same_bits(stacked, np.stack([step[position].numpy() for step in one_by_one]))
    assert_same_bits([together.of(w) for w in weights], [alone.of(w) for w in weights])


def test_c63_another_process():
    """The order of a set, an address or a seed of the process reaches no number."""
    program = f"import runpy; print(runpy.run_path({str(Path(__file__))!r})['trained']())"
    hashes = {trained()}
    for seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        ran = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60
        )
        assert ran.returncode == 0, ran.stderr
        hashes.add(ran.stdout.strip())
    assert len(hashes) == 1
