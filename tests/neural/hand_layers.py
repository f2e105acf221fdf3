"""Layers recorded by hand: their parameters, in the order of the facades, and the forms over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import by_hand
import numpy as np
from by_formula import turned

import topos
from topos import Tape, Value

Array = np.ndarray[Any, np.dtype[Any]]


def drawn(shape: Any, element: Any) -> Array:
    """The initial payload of every weight: the same for the same shape."""
    return np.random.default_rng(len(shape)).normal(size=tuple(shape)) * 0.5


def weights(tape: Tape, *shapes: list[int]) -> list[Value]:
    return [tape.parameter(drawn(shape, None)) for shape in shapes]


def ones_and_zeros(tape: Tape, width: int) -> list[Value]:
    return [tape.parameter(np.ones(width)), tape.parameter(np.zeros(width))]


def linear(tape: Tape) -> Callable[[Value], Value]:
    weight, bias = tape.parameter(drawn([4, 3], None)), tape.parameter(np.zeros(3))
    return lambda x: by_hand.dense(x, weight, bias)


def mlp(tape: Tape) -> Callable[[Value], Value]:
    payloads = drawn([4, 8], None), np.zeros(8), drawn([8, 2], None), np.zeros(2)
    w, b, v, c = map(tape.parameter, payloads)
    return lambda x: by_hand.dense(by_hand.gelu_tanh(by_hand.dense(x, w, b)), v, c)


def conv2d(tape: Tape) -> Callable[[Value], Value]:
    kernel, bias = tape.parameter(drawn([4, 3, 3, 2], None)), tape.parameter(np.zeros(4))
    return lambda x: by_hand.convolution(x, kernel, bias, (2, 1), (1, 2), (1, 2))


def grouped(tape: Tape) -> Callable[[Value], Value]:
    kernel, bias = tape.parameter(drawn([6, 2, 3, 3], None)), tape.parameter(np.zeros(6))
    return lambda x: by_hand.grouped_convolution(x, kernel, bias, 2)


def conv1d(tape: Tape) -> Callable[[Value], Value]:
    (kernel,) = weights(tape, [4, 3, 3])
    return lambda x: by_hand.convolution_1d(x, kernel, 2, 1)


def norm(form: Callable[..., Value], width: int) -> Callable[[Tape], Callable[[Value], Value]]:
    def recorded(tape: Tape) -> Callable[[Value], Value]:
        gain, bias = ones_and_zeros(tape, width)
        return lambda x: form(x, gain, bias)

    return recorded


def rms(tape: Tape) -> Callable[[Value], Value]:
    gain = tape.parameter(np.ones(8))
    return lambda x: by_hand.rms_norm(x, gain)


def batch(form: Callable[..., Value]) -> Callable[[Tape], Callable[[Value], Value]]:
    def recorded(tape: Tape) -> Callable[[Value], Value]:
        gain, bias = ones_and_zeros(tape, 3)
        mean, variance = tape.input(np.zeros(3)), tape.input(np.ones(3))
        return lambda x: form(x, gain, bias, mean, variance)

    return recorded


def residual(tape: Tape) -> Callable[[Value], Value]:
    weight, bias = tape.parameter(drawn([4, 4], None)), tape.parameter(np.zeros(4))
    return lambda x: x + by_hand.dense(x, weight, bias).tanh()


def parallel(tape: Tape) -> Callable[[Value], Value]:
    weight, bias = tape.parameter(drawn([4, 3], None)), tape.parameter(np.zeros(3))
    return lambda x: topos.concat([by_hand.dense(x, weight, bias), x.relu()], 1)


def attention(groups: int) -> Callable[[Tape], Callable[[Value], Value]]:
    def recorded(tape: Tape) -> Callable[[Value], Value]:
        cosines, sines = (tape.leaf(table) for table in turned(5, 2))
        width = 8 + 2 * groups * 2
        inward, bias = tape.parameter(drawn([8, width], None)), tape.parameter(np.zeros(width))
        outward, shift = tape.parameter(drawn([8, 8], None)), tape.parameter(np.zeros(8))
        return lambda x: by_hand.attention(x, inward, bias, outward, shift, cosines, sines, 4, groups)

    return recorded


def positions(tape: Tape) -> Callable[[Value], Value]:
    (table,) = weights(tape, [7, 4])
    return lambda x: x + table.narrow(0, 0, 5).broadcast_to(x.shape)


def rotary(tape: Tape) -> Callable[[Value], Value]:
    cosines, sines = (tape.leaf(table) for table in turned(5, 6))
    return lambda x: by_hand.rotary(x, cosines, sines)


def dropped(tape: Tape) -> Callable[[Value], Value]:
    mask = tape.input(np.ones([6, 4]))
    return lambda x: x * mask
