"""The one number behind a tensor that stores one."""

import pytest

from topos import Element, Tensor, bf16, f32, f64
from topos.testing import assert_same_bits


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
@pytest.mark.parametrize("shape", [[], [1], [3], [2, 2]], ids=str)
def test_a_fill_is_one_number_of_rank_0(element: Element, shape: list[int]) -> None:
    constant = Tensor.filled(shape, 0.5, element).as_constant()
    assert constant is not None
    assert_same_bits(constant, Tensor(0.5, element))


def test_what_is_not_stored_as_one_number_is_none() -> None:
    assert Tensor([1, 1]).as_constant() is None
    assert Tensor.filled([0, 2], 0.5).as_constant() is None
    assert Tensor.selection([1], 2).as_constant() is None
