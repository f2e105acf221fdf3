"""What may stand beside a tensor: numbers, arrays of every kind, recorded values; and no warnings."""

import operator
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from topos import Element, ElementError, KinshipError, ShapeError, Tape, Tensor, Value, bf16, f32, f64
from topos.op import MAPS
from topos.testing import assert_same_bits
from topos.testing.strategies import extremes

each_element = pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": operator.pow,
}
each_operator = pytest.mark.parametrize("apply", OPERATORS.values(), ids=OPERATORS)

NUMBERS: list[Any] = [
    3,
    1.5,
    True,
    np.float32(1.5),
    np.float64(1.5),
    np.float16(1.5),
    np.longdouble(1.5),
    np.int8(3),
    np.int64(3),
    np.uint16(3),
    np.bool_(True),
    ml_dtypes.bfloat16(1.5),
]
each_number = pytest.mark.parametrize("number", NUMBERS, ids=lambda number: type(number).__name__)


@each_element
@each_number
@each_operator
def test_a_number_is_rounded_once_to_the_tensors_element_and_spread(
    apply: Callable[[Any, Any], Any], number: Any, element: Element
) -> None:
    tensor = Tensor([[1.0, 2.0, 0.5]], element)
    spread = Tensor(np.full((1, 3), float(number)), element)
    for result, expected in (
        (apply(tensor, number), apply(tensor, spread)),
        (apply(number, tensor), apply(spread, tensor)),
    ):
        assert type(result) is Tensor
        assert result.element is element
        assert_same_bits(result, expected)


def test_a_number_of_more_digits_than_the_element_is_rounded_first() -> None:
    assert_same_bits(Tensor([1.0]) + 0.1, Tensor(np.array([1.0], "f4") + np.float32(0.1)))
    assert_same_bits(Tensor([1.0], bf16) * 0.1, Tensor([0.1], bf16))
    assert_same_bits(np.float64(0.1) + Tensor([1.0]), Tensor(np.array([1.0], "f4") + np.float32(0.1)))
    assert_same_bits(Tensor([0.0], f64) + 0.1, Tensor([0.1], f64))


ARRAYS: list[Any] = [
    np.array([[1.5, 2.0], [0.5, 4.0]]),
    np.array([[1.5, 2.0], [0.5, 4.0]], "f4"),
    np.array([[1.5, 2.0], [0.5, 4.0]], "f2"),
    np.array([[1.5, 2.0], [0.5, 4.0]], ">f8"),
    np.array([[1, 2], [3, 4]]),
    np.array([[1, 2], [3, 4]], "u1"),
    np.array([[True, False], [True, True]]),
    np.array([[1.5, 2.0], [0.5, 4.0]], ml_dtypes.bfloat16),
    np.asfortranarray([[1.5, 2.0], [0.5, 4.0]]),
    np.array([[1.5, 2.0], [0.5, 4.0]])[::-1],
    np.broadcast_to(2.0, (2, 2)),
    [[1.5, 2.0], [0.5, 4.0]],
    ((1, 2), (3, 4.5)),
]


@each_element
@pytest.mark.parametrize("array", ARRAYS, ids=range(len(ARRAYS)))
@each_operator
def test_an_array_on_either_side_is_one_operand(apply: Callable[[Any, Any], Any], array: Any, element: Element) -> None:
    tensor = Tensor([[1.0, 2.0], [3.0, 0.5]], element)
    as_tensor = Tensor(np.array(array), element)
    for result, expected in (
        (apply(tensor, array), apply(tensor, as_tensor)),
        (apply(array, tensor), apply(as_tensor, tensor)),
    ):
        assert type(result) is Tensor
        assert result.element is element
        assert_same_bits(result, expected)


def test_products_with_arrays() -> None:
    tensor, array = Tensor([[1.0, 2.0]]), np.array([[3.0], [4.0]])
    assert (tensor @ array).tolist() == [[11.0]]
    assert (array @ tensor).tolist() == [[3.0, 6.0], [4.0, 8.0]]
    assert ([[3.0], [4.0]] @ tensor).tolist() == [[3.0, 6.0], [4.0, 8.0]]
    assert tensor.matmul([[3], [4]]).tolist() == [[11.0]]


def test_an_array_of_another_shape_is_not_spread() -> None:
    tensor = Tensor([[1.0, 2.0], [3.0, 4.0]])
    for array in (np.array([1.0, 2.0]), np.array(1.0), [1.0, 2.0], np.array([[1.0, 2.0]])):
        for call in (lambda a=array: tensor + a, lambda a=array: a * tensor):
            with pytest.raises(ShapeError):
                call()
    assert (Tensor(2.0) + np.array(1.0)).tolist() == 3.0


def test_a_number_beside_a_tensor_without_elements_or_axes() -> None:
    assert (Tensor([]) + 1).shape == (0,)
    assert (1 / Tensor(2.0)).tolist() == 0.5
    assert (Tensor.filled((2, 0), 1.0) * 2.0).shape == (2, 0)


def test_in_place_operators_make_new_tensors() -> None:
    tensor = kept = Tensor([1.0, 2.0])
    tensor += 1
    tensor *= 2
    assert tensor.tolist() == [4.0, 6.0]
    assert kept.tolist() == [1.0, 2.0]


def test_tensors_of_two_elements_do_not_mix() -> None:
    for other in (f64, bf16):
        with pytest.raises(ElementError):
            Tensor([1.0]) + Tensor([1.0], other)
    assert (Tensor([1.0]).to(f64) + Tensor([1.0], f64)).element is f64


@pytest.mark.parametrize(
    "other", ["text", None, object(), 1j, [None], [[1.0], [1.0, 2.0]], {}, np.array(["a"])], ids=range(8)
)
@each_operator
def test_what_is_no_number_is_refused_on_either_side(apply: Callable[[Any, Any], Any], other: Any) -> None:
    tensor = Tensor([1.0])
    tape = Tape()
    value = tape.input(shape=(1,))
    for operand in (tensor, value):
        for call in (lambda o=operand: apply(o, other), lambda o=operand: apply(other, o)):
            with pytest.raises(ElementError):
                call()
    assert len(tape) == 1


# Beside recorded values
@each_operator
def test_a_tensor_beside_a_value_records(apply: Callable[[Any, Any], Any]) -> None:
    tape = Tape()
    value, tensor = tape.parameter([1.0, 2.0]), Tensor([3.0, 4.0])
    left, right = apply(tensor, value), apply(value, tensor)
    assert isinstance(left, Value)
    assert isinstance(right, Value)
    assert [node.opcode.name for node in tape.nodes()][1::2] == ["Leaf", "Leaf"]
    symbols = left.symbol(), right.symbol()
    network = tape.into_network()
    run = network.forward(network.parameters())
    assert_same_bits(run.of(symbols[0]), apply(tensor, Tensor([1.0, 2.0])))
    assert_same_bits(run.of(symbols[1]), apply(Tensor([1.0, 2.0]), tensor))


def test_a_tensor_beside_a_value_in_every_other_instruction() -> None:
    tape = Tape()
    value, tensor = tape.parameter([[1.0, 2.0]]), Tensor([[3.0, 4.0]])
    mask = Tensor([[1.0, 0.0]])
    results = [
        tensor @ value.transpose(),
        tensor.maximum(value),
        tensor.minimum(value),
        tensor.step(value),
        tensor.powf(value),
        mask.select(value, tensor),
        mask.select(tensor, value),
        mask.select(1.0, value),
        tensor.clip(value, 9.0),
        value.clip(tensor, 9),
        value.minimum(tensor),
        value.minimum(tensor.numpy()),
        value.minimum([[3, 0]]),
    ]
    assert all(isinstance(result, Value) for result in results)
    symbols = [result.symbol() for result in results]
    network = tape.into_network()
    run = network.forward(network.parameters())
    at = Tensor([[1.0, 2.0]])
    expected = [
        tensor @ at.transpose(),
        tensor.maximum(at),
        tensor.minimum(at),
        tensor.step(at),
        tensor.powf(at),
        mask.select(at, tensor),
        mask.select(tensor, at),
        mask.select(1.0, at),
        tensor.clip(at, 9.0),
        at.clip(tensor, 9),
        at.minimum(tensor),
        at.minimum(tensor),
        at.minimum([[3, 0]]),
    ]
    assert_same_bits(run.of(symbols), expected)


def test_a_symbol_stands_for_its_node_wherever_an_operand_may() -> None:
    tape = Tape()
    value = tape.parameter([1.0, 2.0])
    other = tape.parameter([2.0, 1.0]).symbol()
    for result in (value + other, other * value, value.maximum(other), value.minimum(other), value.clip(other, 3.0)):
        assert isinstance(result, Value)
        assert result.shape == (2,)
    foreign = Tape().parameter([1.0, 2.0]).symbol()
    with pytest.raises(KinshipError):
        value + foreign


def test_a_selection_beside_a_value() -> None:
    tape = Tape()
    table = tape.parameter([[1.0], [2.0]])
    picked = table.gather(Tensor.selection([1, 0, 1], 2))
    assert [node.opcode.name for node in tape.nodes()] == ["Parameter", "Leaf", "Gather"]
    symbol = picked.symbol()
    network = tape.into_network()
    assert network.forward(network.parameters()).of(symbol).tolist() == [[2.0], [1.0], [2.0]]


# No warnings: every operation over every corner
@each_element
def test_eager_mathematics_leaves_no_warning(element: Element) -> None:
    corners = [0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 1e30, -750.0, 0.3, *extremes(element)]
    grid = np.array(np.meshgrid(corners, corners)).reshape(2, -1)
    left, right = (Tensor(side, f64).convert(element) for side in grid)
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        for apply in OPERATORS.values():
            apply(left, right)
        for operation in MAPS:
            getattr(left, operation.value)()
        left.maximum(right), left.minimum(right), left.step(right), left.select(right, left), left.clip(-1, 1)
        left.relu(), left.sigmoid(), left.silu(), left.gelu(), left.softplus(), left.abs(), left.mean(), left.sum()
        square = left.reshape((len(corners), len(corners)))
        square @ square, square.softmax(0), square.log_softmax(1), square.logsumexp(1), square.max_along(0)
        square.mean_along(0), square.pad(0, 1, 40, 1e300), square.unfold(0, 3).fold(0, 3, 1, 1, len(corners))
        for other in (f32, f64, bf16):
            left.convert(other)
        left + 1e300, left * 1e-300, Tensor.filled((2,), 1e300, element), left.counted(10**40)
        repr(left), left.tolist()


def test_numpy_functions_do_not_take_a_tensor_apart() -> None:
    tensor = Tensor([1.0, 2.0])
    with pytest.raises(TypeError):
        np.add(tensor, 1.0)
    with pytest.raises(TypeError):
        np.exp(tensor)
    assert np.asarray(tensor).sum() == 3.0
    array = np.ones(2)
    with pytest.raises(TypeError):
        array += tensor


@each_element
def test_a_number_that_was_said_before_is_read_by_its_own_kind_and_sign(element: Element) -> None:
    tensor = Tensor([[1.0, -0.0, 0.5]], element)
    numbers = [0.0, -0.0, 0, False, 1.0, 1, True, float("nan"), 0.1, -0.1, 1e300, 256]
    for _ in range(3):
        for number in numbers:
            spread = Tensor(np.full((1, 3), float(number)), element)
            assert_same_bits([tensor + number, number / tensor], [tensor + spread, spread / tensor])
        with pytest.raises(ElementError):
            tensor * (2**60 + 1)
        with pytest.raises(ElementError):
            tensor * 2**70
