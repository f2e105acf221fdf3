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


class Short(Half):
    """Whose sums forget their operands' shape."""

    name = "short"

    def add(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.zeros(7, np.float16)


short = Short()


def test_another_shape_is_refused_where_it_appears() -> None:
    text = r"element short: an operation answered shape \[7\], wants \[2\]"
    with pytest.raises(ElementError, match=f"^{text}$"):
        Tensor([1.0, 2.0], short) + 1.0
    network, y = Tape.record(lambda tape: tape.input([1.0, 2.0]) + 1.0, element=short)
    for run in (network.entry(y).interpret, network.entry(y).lower().forward):
        with pytest.raises(ElementError, match=rf"^{text}\n  node %3 Add \[2\]$"):
            run(network.parameters())
