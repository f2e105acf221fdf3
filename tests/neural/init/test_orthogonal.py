"""Orthogonal weights: orthonormal, evenly distributed, and the Gram-Schmidt process of the stream's normals."""

import math

import numpy as np
import pytest

from topos import bf16, f32, f64, init, reference
from topos.testing import assert_same_bits


@pytest.mark.parametrize("shape", [[1, 1], [3, 5], [5, 3], [4, 2, 2], [2, 3, 3, 3], [64, 64], [1, 40], [40, 1]])
def test_rows_or_columns_are_orthonormal(shape: list[int]) -> None:
    weight = init.orthogonal(7)(shape, f64).numpy().reshape(shape[0], -1)
    product = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
    assert np.abs(product - np.eye(len(product))).max() < 1e-13


@pytest.mark.parametrize(("element", "bound"), [(f32, 3e-7), (bf16, 2e-2)])
def test_narrow_ones_are_so_within_their_rounding(element, bound: float) -> None:
    weight = init.orthogonal(7)([32, 48], element).convert(f64).numpy()
    assert np.abs(weight @ weight.T - np.eye(32)).max() < bound


def test_the_gain_is_the_length_of_a_row() -> None:
    lengths = np.linalg.norm(init.orthogonal(7, 2.5)([5, 9], f64).numpy(), axis=1)
    np.testing.assert_allclose(lengths, 2.5, rtol=1e-14)


def test_it_is_the_process_row_by_row() -> None:
    rows = list(init.Stream(7).normals(3 * 40).reshape(3, 40))
    for at, row in enumerate(rows):
        rows[at] = row / math.sqrt(reference.sum(f64, row * row))
        for later in range(at + 1, 3):
            rows[later] = rows[later] - reference.sum(f64, rows[later] * rows[at]) * rows[at]
    assert_same_bits(init.orthogonal(7)([3, 40], f64), np.array(rows))
    assert_same_bits(init.orthogonal(7)([40, 3], f64), np.array(rows).T)


def test_rotations_and_reflections_are_as_likely() -> None:
    """An even distribution has no diagonal of one sign, as that of a plain decomposition has."""
    initialiser = init.orthogonal(7)
    drawn = np.array([initialiser([2, 2], f64).numpy() for _ in range(1000)])
    bound = 4 * math.sqrt(1000)
    assert abs(np.sign(np.linalg.det(drawn)).sum()) < bound
    assert abs(np.sign(drawn[:, 0, 0]).sum()) < bound
    assert abs(np.sign(drawn[:, 1, 1]).sum()) < bound
    assert abs((drawn[:, 0, 0] ** 2).mean() - 0.5) < 4 * math.sqrt(0.125 / 1000)
