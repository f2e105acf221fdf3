"""Narrowing to bf16: once, to nearest even, by every door, and kept where the user wrote it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from topos import Tape, Tensor, bf16, detach, f32
from topos.testing import assert_same_bits

Array = np.ndarray[Any, np.dtype[Any]]


def f(number: Any) -> Array:
    return np.array(number, np.float32)


def by_every_door(numbers: Array) -> list[Tensor]:
    """The numbers as bf16: converted, handed in, fed to an input and to a parameter."""
    tape = Tape(bf16)
    x, w = tape.input(shape=numbers.shape), tape.parameter(numbers)
    leaf = tape.leaf(numbers)
    names = detach(x, w, leaf)
    network = tape.into_network()
    run = network.forward(network.parameters(), {names[0]: numbers})
    return [Tensor(numbers).convert(bf16), Tensor(numbers, bf16), *run.of(names)]


@pytest.mark.parametrize(
    ("pattern", "right"),
    [
        (0x3EAAAAAB, 0x3EAB),  # 1/3
        (0x3F808000, 0x3F80),  # 1 + 2**-8, a tie, down to even
        (0x3F818000, 0x3F82),  # 1 + 3*2**-8, a tie, up to even
        (0x3F808008, 0x3F81),  # 1 + 2**-8 + 2**-20, above the tie
        (0x7F7F8000, 0x7F80),  # the tie past the largest: infinity
        (0x7F7F0906, 0x7F7F),  # 3.39e38
        (0x000116C2, 0x0001),  # 1e-40, subnormal
        (0x00000001, 0x0000),
        (0x80000000, 0x8000),
        (0x80000001, 0x8000),
        (0x7F800000, 0x7F80),
        (0xFF800000, 0xFF80),
    ],
)
def test_c46_f32_to_bf16(values, hexed, of_bits, pattern, right):
    """Truncation is biased, hardware conversions flush subnormals, and the tie past the largest number is infinity."""
    number = of_bits(pattern)
    assert hexed(values(lambda x: x.to(bf16), number)) == f"0x{right:04x}"
    for tensor in by_every_door(number):
        assert hexed(tensor.numpy()) == f"0x{right:04x}"
    if np.isfinite(number):
        assert hexed(Tensor(float(number), bf16).numpy()) == f"0x{right:04x}"


def test_c46_the_numbers_are_those_of_the_case(hexed):
    """The patterns above are what f32 makes of the decimal numbers."""
    numbers = [1 / 3, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, 3.39e38, 1e-40]
    patterns = ["0x3eaaaaab", "0x3f808000", "0x3f818000", "0x3f808008", "0x7f7f0906", "0x000116c2"]
    assert hexed(f(numbers)) == patterns


@pytest.mark.parametrize("pattern", [0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF, 0x7F80FFFF])
def test_c46_a_nan_stays_one(values, of_bits, pattern):
    """A payload in the lower half must not be cut off (that is infinity) nor carried out (that is minus zero)."""
    number = of_bits(pattern)
    assert np.isnan(values(lambda x: x.to(bf16), number).astype(np.float32))
    for tensor in by_every_door(number):
        assert np.isnan(tensor.numpy().astype(np.float32))


def test_c46_f64_rounds_once(values, hexed):
    """Through f32 the first rounding makes a tie, and the second goes the wrong way."""
    twice = np.array(1 + 2**-8 + 2**-40)
    assert hexed(values(lambda x: x.to(bf16), twice)) == "0x3f81"
    assert hexed(values(lambda x: x.to(f32).to(bf16), twice)) == "0x3f80"
    assert hexed(Tensor(float(twice), bf16).numpy()) == "0x3f81"
    for tensor in by_every_door(twice)[1:]:
        assert hexed(tensor.numpy()) == "0x3f81"


def test_c47_a_cast_down_and_back_is_kept(values, gradients):
    """What the user narrowed stays narrow, whatever is computed around it."""

    def narrow(x):
        return x.to(bf16).to(f32)

    seventh, kept = f(1 / 7), f(0.142578125)
    assert_same_bits(values(narrow, seventh), kept)
    assert seventh != kept
    many = np.full(1000, 1 / 7, np.float32)
    assert_same_bits(values(lambda x: narrow(x).sum(), many), values(lambda x: x.sum(), np.full(1000, kept)))
    surrounded = values(lambda x: (narrow(x * 1 + 0) * 2 - x).relu().sum_along(0), many)
    assert_same_bits(surrounded, values(lambda x, k: (k * 2 - x).relu().sum_along(0), many, np.full(1000, kept)))
    assert_same_bits(values(lambda x: narrow(x) @ narrow(x).transpose(), many.reshape(1, -1)),
                     values(lambda k: k @ k.transpose(), np.full((1, 1000), kept)))  # fmt: skip
    # The cotangent is narrowed on its way back too.
    assert_same_bits(gradients(lambda x: narrow(x) * seventh, f(5)), kept)


def test_c47_a_sum_in_bf16_rounds_at_its_end(values, hexed):
    """Sums and products of bf16 accumulate in f32 and round once: 1000 ones of bf16 are 1000, not 256."""
    ones = np.array(Tensor.filled([1000], 1, bf16).numpy())
    assert values(lambda x: x.sum(), ones).astype(np.float32) == 1000
    assert values(lambda x: x.reshape([1, 1000]) @ x.reshape([1000, 1]), ones).astype(np.float32) == 1000
