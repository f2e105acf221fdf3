"""Spreading is said, not guessed; and a gradient has the shape of its operand, always."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from topos import FeedError, ShapeError, Tape, Tensor, detach
from topos.testing import assert_same_bits

Array = np.ndarray[Any, np.dtype[Any]]


def f(number: Any) -> Array:
    return np.array(number, np.float32)


def test_c35_gradients_of_broadcast_operands(gradients):
    """What was repeated gathers the cotangents of all its copies, back in its own shape."""

    def scaled(v, c):
        return (c * v.broadcast([2])).sum()

    assert_same_bits(gradients(scaled, f(3), f([1, 1])), (f(2), f([3, 3])))

    def shifted(r, m):
        return (r.broadcast_to([3, 4]) + m).sum()

    row, matrix = np.ones((1, 4), np.float32), np.ones((3, 4), np.float32)
    assert_same_bits(gradients(shifted, row, matrix), (np.full((1, 4), 3, np.float32), matrix))

    def outer(a, b):
        return (a.broadcast_to([3, 4]) * b.broadcast_to([3, 4])).sum()

    column = np.ones((3, 1), np.float32)
    expected = np.full((3, 1), 4, np.float32), np.full((1, 4), 3, np.float32)
    assert_same_bits(gradients(outer, column, row), expected)
    assert_same_bits(gradients(lambda v: v.broadcast_along(0, 5).broadcast_along(2, 2), f([1, 2])), f([10, 10]))
    assert_same_bits(gradients(lambda v: v.broadcast([0, 3]), f(1)), f(0))


def test_c35_a_python_number_spreads(gradients):
    """The one spreading that is implied is recorded too: the number beside a value becomes a broadcast leaf."""
    assert_same_bits(gradients(lambda x: x * 3 + 1, np.ones((2, 2), np.float32)), np.full((2, 2), 3, np.float32))
    tape = Tape()
    _ = tape.input(shape=[2, 2]) * 3
    assert [node.opcode.name for node in tape.nodes()] == ["Input", "Leaf", "Broadcast", "Mul"]


def test_c35_shapes_are_static():
    """A shape is part of the spec: another one at run time is refused and named, never spread."""
    tape = Tape()
    row = tape.input(shape=[1, 4], name="row")
    name, total = detach(row, row.broadcast_to([3, 4]).sum())
    network = tape.into_network()
    plan = network.entry([total]).lower()
    for payload, shape in ((np.ones(4), "[4]"), (np.ones((3, 4)), "[3, 4]"), (1.0, "[]"), (np.ones((4, 1)), "[4, 1]")):
        with pytest.raises(FeedError) as refused:
            plan.forward(network.parameters(), {name: payload})
        assert re.fullmatch(
            r"feed: %0 Input \[1, 4\] 'row' \S*test_gradients_of_broadcasts\.py:\d+( \(input\))?: "
            rf"wants shape \[1, 4\], got {re.escape(shape)}",
            str(refused.value),
        )


def mean_squared_error(prediction, target):
    """The loss as a user spells it."""
    difference = prediction - target
    return (difference * difference).mean()


def test_c36_a_vector_against_a_column_in_a_loss():
    """Spread silently, three predictions meet three targets in nine pairs: a loss of 1.33 where it is 0."""
    prediction, target = [[1], [2], [3]], [1, 2, 3]
    told = "sub: shapes must be equal, got [3, 1] and [3]; spread it with right.broadcast_along(1, 1)"
    with pytest.raises(ShapeError) as eager:
        mean_squared_error(Tensor(prediction), Tensor(target))
    assert str(eager.value) == told
    with pytest.raises(ShapeError) as beside_array:
        mean_squared_error(Tensor(prediction), f(target))
    assert str(beside_array.value) == told

    tape = Tape()
    p, t = tape.input(prediction, name="prediction"), tape.input(target)
    length = len(tape)
    with pytest.raises(ShapeError) as recorded:
        mean_squared_error(p, t)
    first, left, right = str(recorded.value).split("\n")
    assert first == told
    assert re.fullmatch(r"  left   %0 Input  \[3, 1\]   \S*test_gradients_of_broadcasts\.py:\d+( \(input\))?", left)
    assert re.fullmatch(r"  right  %1 Input  \[3\]      \S*test_gradients_of_broadcasts\.py:\d+( \(input\))?", right)
    assert len(tape) == length
    with pytest.raises(ShapeError, match=r"^sub: shapes must be equal, got \[3, 1\] and \[3\]"):
        mean_squared_error(p, f(target))
    assert len(tape) == length
    # Said as it is meant, it is zero.
    assert float(mean_squared_error(Tensor(prediction).squeeze(1), Tensor(target))) == 0
