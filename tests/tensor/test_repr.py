"""How a tensor prints."""

from topos import Tensor


def test_the_rows_of_a_matrix_stand_below_one_another() -> None:
    assert repr(Tensor([[1, 2], [3, 4]])) == "Tensor([[1., 2.],\n        [3., 4.]], f32)"


def test_a_selection_prints_its_ids() -> None:
    assert repr(Tensor.selection([2, 0], 3)) == "Tensor.selection([2, 0], 3)"
