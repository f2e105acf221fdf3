"""The tools that the cases are graded with: each must fail where it should."""

from __future__ import annotations

import numpy as np
import pytest

from topos import Tensor
from topos.op import Add


def test_one_bit_between_the_routes_is_seen(values):
    """A recording that computes the next number is refused, and the route is named."""
    values(lambda x: x * 1, np.float32(3))
    with pytest.raises(AssertionError, match=r"^route interpret over inputs differs from eager\n(.|\n)*1 ulp"):
        values(lambda x: x * (1 if isinstance(x, Tensor) else 1 + 2**-23), np.float32(1))


def test_one_bit_between_the_gradients_is_seen(gradients, monkeypatch):
    """A rule that computes over tensors what it does not record is refused."""
    gradients(lambda x: x + 1, np.float32(3))
    monkeypatch.setattr(
        Add, "derivative", lambda self, seed, *_: (seed * 2, seed) if isinstance(seed, Tensor) else (seed, seed)
    )
    with pytest.raises(AssertionError, match=r"^route backward of interpret differs from interpret"):
        gradients(lambda x: x + 1, np.float32(3))


def test_distances_and_patterns(ulps, hexed, of_bits):
    """Steps are counted across zero, and a number of patterns keeps its rank."""
    assert ulps(np.float32(1), np.nextafter(np.float32(1), np.float32(2))) == 1
    assert ulps(of_bits(0x80000001), of_bits(1)) == 2
    assert ulps(np.float32(-0.0), np.float32(0)) == 0
    assert of_bits(0x3F800000).shape == ()
    assert hexed(of_bits(0x3F800000, 0)) == ["0x3f800000", "0x00000000"]
    with pytest.raises(AssertionError):
        ulps(np.float32(np.nan), np.float32(1))
    with pytest.raises(AssertionError):
        ulps(np.float32(1), np.float64(1))
