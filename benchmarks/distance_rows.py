"""The programs whose numbers are compared between engines, each with what it is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from tests.element.accuracy import operands

from benchmarks.arrays import Array
from topos import (
    BatchNorm,
    Element,
    Embedding,
    LayerNorm,
    Linear,
    Mlp,
    Module,
    Tape,
    Value,
    bf16,
    causal_mask,
    conv2d,
    cross_entropy,
    f32,
    f64,
    init,
    parameters,
    scaled_dot_product,
)
from topos.op import MAPS, POWF

ELEMENTS = (f32, f64, bf16)
SAMPLE = 16_000
"""Operands of a function, beside every number of `bf16`."""
BATCH, PLACES, WIDTH, HEADS, CLASSES, CONTEXT = 4, 16, 32, 4, 27, 3
SEED = 5


class Row(NamedTuple):
    """A program: `record` answers its results: the first has the first title, all that follow the last.

    `is_own` says that each number is compared by its own ulp; otherwise by that of the largest number of its result.
    """

    titles: Sequence[str]
    record: Callable[[Tape], Sequence[Value]]
    feeds: dict[str, Array] = {}
    raises: bool = True
    is_own: bool = False


def rows(element: Element) -> list[Row]:
    """Every program over an element: the functions, what adds up, and in `f32` models."""
    norms = [HOW[1]] if element is bf16 else HOW  # those of bf16 are composed
    return [
        *(Row([f"`{name}`"], partial(function, name), is_own=True) for name in FUNCTIONS),
        *(Row([f"sum of {terms:,} terms"], partial(sums, terms)) for terms in (512, 100_000)),
        *(Row([f"product, K = {terms:,}"], partial(product, terms)) for terms in (64, 4096)),
        Row(["softmax"], lambda tape: [drawn(tape, 32, 100, scale=3).softmax(1)]),
        Row(["log softmax"], lambda tape: [drawn(tape, 32, 100, scale=3).log_softmax(1)]),
        Row(["layer norm"], lambda tape: [LayerNorm(tape, 96)(drawn(tape, 32, 96))]),
        *(Row([f"convolution, {how}"], convolution, raises=raises) for how, raises in HOW),
        *(Row([f"batch norm in training, {how}"], batch_norm, raises=raises) for how, raises in norms),
        Row(["attention"], attention),
        *(models() if element is f32 else []),
    ]


def models() -> list[Row]:
    ids = np.random.default_rng(SEED).integers(0, CLASSES, (BATCH, PLACES))
    contexts, following = ids[:, : 2 * CONTEXT].reshape(-1, CONTEXT), ids[:, -2:].reshape(-1)
    name = Row(_trained("name model"), names, {"context": contexts, "target": following})
    feeds = {"letters": ids, "target": np.roll(ids, -1, 1)}
    return [name, Row(_trained("transformer block"), transformer, feeds)]


def _trained(model: str) -> list[str]:
    return [f"{model}, loss", f"{model}, gradients"]


HOW = (("raised", True), ("composed", False))
FUNCTIONS = (*(operation.value for operation in MAPS), "powf")


def points(name: str, element: Element) -> list[Array]:
    """Operands over the whole range of a function, and near its hard places; no subnormal numbers."""
    if element is bf16 and name != "powf":
        chosen = [np.arange(1 << 16, dtype=np.uint16).view(bf16.dtype)]
    else:
        chosen = [part.astype(element.dtype) for part in operands(name, (f64 if element is f64 else f32).name, SAMPLE)]
    with np.errstate(invalid="ignore"):  # NaN that signal
        wide = [part.astype(np.float64) for part in chosen]
    least = 2.0**-1022 if element is f64 else 2.0**-126
    keep = np.logical_and.reduce([np.isfinite(part) & ((part == 0) | (np.abs(part) >= least)) for part in wide])
    return [part[keep] for part in chosen]


def function(name: str, tape: Tape) -> list[Value]:
    given = [tape.input(part) for part in points(name, tape.element)]
    operations = {operation.value: opcode for operation, opcode in MAPS.items()} | {"powf": POWF}
    return [operations[name].express(given)]


def drawn(tape: Tape, *shape: int, scale: float = 1.0, seed: int = SEED) -> Value:
    return tape.input(scale * np.random.default_rng(seed).standard_normal(shape))


def sums(terms: int, tape: Tape) -> list[Value]:
    return [drawn(tape, 2, terms).sum_along(1)]


def product(terms: int, tape: Tape) -> list[Value]:
    return [drawn(tape, 8, terms) @ drawn(tape, terms, 8, seed=SEED + 1)]


def convolution(tape: Tape) -> list[Value]:
    kernel = drawn(tape, 8, 4, 3, 3, scale=36**-0.5, seed=SEED + 1)
    return [conv2d(drawn(tape, 2, 4, 10, 10), kernel, padding=1)]


def batch_norm(tape: Tape) -> list[Value]:
    return [BatchNorm(tape, 8, epsilon=2.0**-17).train(drawn(tape, 64, 8))[0]]


def attention(tape: Tape) -> list[Value]:
    query, key, value = (drawn(tape, 2, 4, PLACES, 16, seed=SEED + at) for at in range(3))
    return [scaled_dot_product(query, key, value, where=causal_mask(PLACES))]


def trained(tape: Tape, model: Module, score: Value, target: Value) -> list[Value]:
    """A loss, and its gradients by every weight."""
    loss = cross_entropy(score, target)
    return [loss, *(slope for _, slope in tape.differentiate(loss, parameters(model)))]


class Names(Module):
    """Scores for the next letter of a name from three: an embedding and a tanh layer."""

    def __init__(self, tape: Tape) -> None:
        self.embedding = Embedding(tape, CLASSES, 10, init.normal(1, 1.0))
        self.layers = Mlp(tape, [10 * CONTEXT, 64, CLASSES], "tanh", init.kaiming(2))

    def express(self, context: Value) -> Value:
        letters = self.embedding(context)
        return self.layers(letters.reshape([letters.shape[0] // CONTEXT, 10 * CONTEXT]))


def names(tape: Tape) -> list[Value]:
    model = Names(tape)
    context = tape.selection([2 * BATCH, CONTEXT], CLASSES, name="context")
    return trained(tape, model, model(context), tape.selection([2 * BATCH], CLASSES, name="target"))


class Block(Module):
    """Causal attention over the places before, then a layer for each place; each added to what it read."""

    def __init__(self, tape: Tape) -> None:
        self.first_norm, self.second_norm = LayerNorm(tape, WIDTH), LayerNorm(tape, WIDTH)
        self.attention = Linear(tape, WIDTH, 3 * WIDTH, init.kaiming(2))
        self.projection = Linear(tape, WIDTH, WIDTH, init.kaiming(3))
        self.layers = Mlp(tape, [WIDTH, 4 * WIDTH, WIDTH], "gelu", init.kaiming(4))

    def express(self, x: Value) -> Value:
        parts = self.attention(self.first_norm(x)).reshape([BATCH, PLACES, 3, HEADS, WIDTH // HEADS])
        query, key, value = (parts[:, :, at].swap(1, 2) for at in range(3))
        attended = scaled_dot_product(query, key, value, where=causal_mask(PLACES)).swap(1, 2)
        x = x + self.projection(attended.reshape([BATCH, PLACES, WIDTH]))
        return x + self.layers(self.second_norm(x))


class Transformer(Module):
    """Scores for the next letter at every place, by one block."""

    def __init__(self, tape: Tape) -> None:
        self.letters = Embedding(tape, CLASSES, WIDTH, init.normal(1, 1.0))
        self.block = Block(tape)
        self.scores = Linear(tape, WIDTH, CLASSES, init.kaiming(6))

    def express(self, ids: Value) -> Value:
        x = self.block(self.letters(ids).reshape([BATCH, PLACES, WIDTH]))
        return self.scores(x.reshape([BATCH * PLACES, WIDTH]))


def transformer(tape: Tape) -> list[Value]:
    model = Transformer(tape)
    letters, target = (tape.selection([BATCH, PLACES], CLASSES, name=name) for name in ("letters", "target"))
    return trained(tape, model, model(letters), target)
