"""The contract of a user's element: operations written once, in the scalar vocabulary, and read by NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from topos import Element, MapOperation, Native, Tensor, bf16, f32, f64
from topos.element.native import OPERATIONS
from topos.testing import assert_same_bits

SPECIAL = [0.0, -0.0, 1.0, -1.5, 2.0**-140, -(2.0**-133), 1e-40, 3e38, -3e38, float("inf"), float("-inf"), float("nan")]


def opened(m: Any, pattern: Any) -> Any:
    return m.real(pattern << 16)


def closed(m: Any, x: Any) -> Any:
    return (m.bits(x) >> 16) & 0xFFFF


def rounded(m: Any, x: Any) -> Any:
    pattern = m.bits(x)
    nearest = m.real((pattern + (((pattern >> 16) & 1) + 0x7FFF)) & -0x10000)
    return m.select(x != x, float("nan"), nearest)


class Brain(Element):
    """bf16 by the contract: 16 bits in memory, binary32 in registers."""

    name = "brain"
    dtype = bf16.dtype
    accumulator = f32
    native = Native("float", rounded=rounded, stored="i16", opened=opened, closed=closed)

    def round(self, numbers: Any) -> Any:
        return bf16.round(numbers)


brain = Brain()


class Plain(Element):
    """f64 by the contract, which then says nothing but its registers."""

    name = "plain"
    dtype = f64.dtype
    native = Native("double")

    def round(self, numbers: Any) -> Any:
        return f64.round(numbers)


plain = Plain()


def operands(built_in: Element, size: int) -> list[Any]:
    random = np.random.default_rng(size)
    return [
        built_in.round(np.concatenate([random.permutation(SPECIAL), random.normal(size=size) * 4.0])) for _ in range(3)
    ]


ARITY = {"select": 3, **dict.fromkeys(["add", "sub", "mul", "div", "maximum", "step", "powf"], 2)}


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
@pytest.mark.parametrize(("own", "built_in"), [(brain, bf16), (plain, f64)], ids=["brain", "plain"])
def test_a_built_in_spelled_by_the_contract_has_its_bits(own: Element, built_in: Element, operation: str) -> None:
    for size in (1, 9000):  # beyond one block of the evaluator
        arrays = operands(built_in, size)[: ARITY.get(operation, 1)]
        with np.errstate(all="ignore"):
            assert_same_bits(getattr(own, operation)(*arrays), getattr(built_in, operation)(*arrays))


def test_the_contract_names_every_operation() -> None:
    named = {"add", "sub", "mul", "div", "neg", "maximum", "step", "select", "powf"}
    assert named | {operation.value for operation in MapOperation} == OPERATIONS


def test_operands_of_any_layout() -> None:
    array = operands(bf16, 12)[0].reshape(4, 6)
    with np.errstate(all="ignore"):
        for view in (array.T, array[::-1, ::2], np.broadcast_to(array[0], (3, 6)), array[0, 0, ...], array[:0]):
            assert_same_bits(brain.add(view, view), bf16.add(view, view))


def test_it_accumulates_as_the_built_in_one_does() -> None:
    random = np.random.default_rng(1)
    left, right = (random.normal(size=shape) for shape in ((7, 600), (600, 5)))
    mine, theirs = ((Tensor(left, element), Tensor(right, element)) for element in (brain, bf16))
    assert_same_bits(mine[0] @ mine[1], theirs[0] @ theirs[1])
    assert_same_bits(mine[0].sum_along(1), theirs[0].sum_along(1))
    assert_same_bits(mine[0].log_softmax(0), theirs[0].log_softmax(0))
    assert_same_bits(brain.demote(brain.promote(bf16.round(left))), bf16.round(left))


def test_a_body_stands_instead_of_the_operation_and_its_rounding() -> None:
    class Odd(Brain):
        native = Native("float", rounded=lambda m, x: x * 0.0, bodies={"mul": lambda m, left, right: left - right})

        dtype = np.dtype(np.float32)

    odd = Odd()
    array = np.array([3.0, 5.0], np.float32)
    assert odd.add(array, array).tolist() == [0.0, 0.0]
    assert odd.mul(array, array[::-1]).tolist() == [-2.0, 2.0]
    assert odd.maximum(array, array[::-1]).tolist() == [5.0, 5.0]


def test_an_own_method_comes_first() -> None:
    class Own(Plain):
        def exp(self, x: Any) -> Any:
            return x * 2

    assert Own().exp(np.array([3.0])).tolist() == [6.0]


def test_an_element_without_the_contract_names_what_it_lacks() -> None:
    class Bare(Element):
        name = "bare"
        dtype = np.dtype(ml_dtypes.bfloat16)

    with pytest.raises(Exception, match="^exp: element bare does not define it$"):
        Bare().exp(np.zeros(2, Bare.dtype))


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"registers": "half"}, "native: registers are 'float' or 'double', got 'half'"),
        ({"registers": "float", "stored": "double"}, "native: float numbers cannot be stored as 'double'"),
        ({"registers": "float", "stored": "i64"}, "native: float numbers cannot be stored as 'i64'"),
        ({"registers": "float", "stored": "i4"}, "native: float numbers cannot be stored as 'i4'"),
        (
            {"registers": "float", "stored": "i16", "opened": opened},
            "native: numbers stored as integers want opened and closed, others neither",
        ),
        (
            {"registers": "float", "opened": opened, "closed": closed},
            "native: numbers stored as integers want opened and closed, others neither",
        ),
        ({"registers": "float", "bodies": {"multiply": opened}}, "native: no operation is called 'multiply'"),
    ],
)
def test_a_contract_that_does_not_fit_is_refused(facts: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        Native(**facts)
    assert str(caught.value) == message
