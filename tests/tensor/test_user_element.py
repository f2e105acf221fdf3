"""What an element's operations may answer."""

import numpy as np
import pytest

from topos import Element, ElementError, Tape, Tensor


class Half(Element):
    """NumPy's binary16, written carelessly: operators answer scalars for rank 0."""

    name = "half"
    dtype = np.dtype(np.float16)

    def round(self, numbers: np.ndarray) -> np.ndarray:
        return numbers.astype(np.float16)

    def add(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return left + right

    def mul(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return left.astype(np.float32) * right


half = Half()


def test_a_scalar_stands_for_rank_0() -> None:
    total = Tensor(1.5, half) + Tensor(2.0, half)
    assert type(total.numpy()) is np.ndarray
    assert (total.shape, total.element, float(total)) == ((), half, 3.5)


def test_a_scalar_stands_for_rank_0_in_a_run() -> None:
    network, y = Tape.record(lambda tape: tape.leaf(1.5) + tape.leaf(2.0), element=half)
    assert float(network.entry(y).lower().forward(network.parameters()).of(y)) == 3.5


def test_another_dtype_is_refused_where_it_appears() -> None:
    with pytest.raises(ElementError, match="^element half: an operation answered float32, wants float16$"):
        Tensor([1.5], half) * Tensor([2.0], half)


def test_a_run_names_the_node_of_a_missing_operation() -> None:
    network, y = Tape.record(lambda tape: (tape.leaf([1.5]) + tape.leaf([2.0])).exp(), element=half)
    with pytest.raises(ElementError) as caught:
        network.forward(network.parameters()).of(y)
    assert str(caught.value) == "exp: element half does not define it\n  node %3 Exp [1]"
