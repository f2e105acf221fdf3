"""Arrays of any strides: an operand's layout is not part of its value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from topos import ElementError, Tape, Tensor, bf16, detach, f32, f64
from topos.testing import assert_same_bits

Array = np.ndarray[Any, np.dtype[Any]]


def f(number: Any) -> Array:
    return np.array(number, np.float32)


def product(left, right):
    return left @ right


A = f([[1, 2, 3], [4, 5, 6]])


def test_c54_a_transposed_operand(values, gradients):
    """The transpose is a view both here and in the operand that is fed."""
    expected = f([[1, 4], [2, 5], [3, 6]])
    assert_same_bits(values(lambda a, b: a.transpose() @ b, A, np.eye(2, dtype=np.float32)), expected)
    assert_same_bits(values(product, A.T, np.eye(2, dtype=np.float32)), expected)
    left, right = gradients(lambda a, b: a.transpose() @ b, A, f([[1, 2], [3, 4]]))
    assert_same_bits(left, f([[3, 3, 3], [7, 7, 7]]))
    assert_same_bits(right, f([[6, 6], [15, 15]]))


def test_c54_every_second_column(values, gradients):
    """A strided slice is fed as it is; `x[:, ::2]` itself is refused, and says what is there instead."""
    ones = f([[1], [1]])
    assert_same_bits(values(product, A[:, ::2], ones), f([[4], [10]]))
    assert_same_bits(gradients(product, A[:, ::2], ones), (np.ones((2, 2), np.float32), f([[5], [9]])))
    with pytest.raises(ValueError, match=r"^index: a slice takes no step, got 2; see unfold$"):
        Tensor(A)[:, ::2]
    # Spelled in the instructions: windows of one place, two apart.
    strided = values(lambda a, b: a.unfold(1, 1, 2).squeeze(2) @ b, A, ones)
    assert_same_bits(strided, f([[4], [10]]))


def test_c54_fortran_order(values, gradients):
    """Column-major storage changes no value."""
    fortran = np.asfortranarray(A)
    identity = np.eye(3, dtype=np.float32)
    assert_same_bits(values(product, fortran, identity), A)
    assert_same_bits(values(lambda a: a, fortran), A)
    assert_same_bits(gradients(product, fortran, identity), gradients(product, A, identity))


def test_c54_a_batch_with_its_last_axes_swapped(values, gradients):
    """Each batch's own transpose: column sums, repeated."""
    batch = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    ones = np.ones((2, 2, 2), np.float32)
    sums = batch.sum(axis=1)
    expected = np.stack([sums, sums], axis=2)
    assert_same_bits(values(lambda a, b: a.swap(1, 2) @ b, batch, ones), expected)
    assert_same_bits(values(product, batch.swapaxes(1, 2), ones), expected)
    left, right = gradients(lambda a, b: a.swap(1, 2) @ b, batch, ones)
    assert_same_bits(left, np.full((2, 2, 3), 2, np.float32))
    rows = batch.sum(axis=2)
    assert_same_bits(right, np.stack([rows, rows], axis=2))


def layouts(dense: Array) -> dict[str, Array]:
    """The same matrix under other strides."""
    rows, columns = dense.shape
    roomy = np.zeros((2 * rows, 3 * columns), dense.dtype)
    roomy[::2, ::3] = dense
    return {
        "dense": dense,
        "fortran": np.asfortranarray(dense),
        "spaced": roomy[::2, ::3],
        "rows backwards": dense[::-1].copy()[::-1],
        "columns backwards": dense[:, ::-1].copy()[:, ::-1],
        "offset": np.concatenate([np.zeros(1, dense.dtype), dense.reshape(-1)])[1:].reshape(dense.shape),
    }


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
def test_c54_layouts_give_the_bits_of_dense_copies(values, gradients, element):
    """Random numbers, where every other order of summation would show."""
    numbers = np.random.default_rng(11)
    left, right = (np.array(Tensor(numbers.standard_normal(s), element).numpy()) for s in ((5, 600), (600, 4)))
    expected, slopes = values(product, left, right), gradients(product, left, right)
    for name, other in layouts(left).items():
        for again in (right, layouts(right)[name]):
            assert_same_bits(values(product, other, again), expected)
            assert_same_bits(gradients(product, other, again), slopes)
    turned = values(lambda a, b: (b.transpose() @ a.transpose()).transpose(), left, right)
    assert_same_bits(turned, expected)  # the order of k is the same; fma(a, b, c) is fma(b, a, c)


def odd_arrays() -> dict[str, tuple[Array, Any]]:
    """Arrays as augmentation code leaves them, and what they say."""
    length_one = np.lib.stride_tricks.as_strided(np.arange(6, dtype=np.float32), (1, 2, 3), (-64, 12, 4))
    read_only = np.arange(3, dtype=np.float32)
    read_only.flags.writeable = False
    unaligned = np.frombuffer(b"\0" + f([1, 2, 3]).tobytes(), np.uint8)[1:].view(np.float32)
    return {
        "backwards": (np.arange(6, dtype=np.float32)[::-1], [5, 4, 3, 2, 1, 0]),
        "columns backwards": (np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::-1], [[2, 1, 0], [5, 4, 3]]),
        "negative stride on an axis of length 1": (length_one, [[[0, 1, 2], [3, 4, 5]]]),
        "read-only": (read_only, [0, 1, 2]),
        "big-endian": (np.array([1, 2.5, -0.0], ">f4"), [1, 2.5, -0.0]),
        "big-endian f64": (np.array([1, 2.5, 1e300], ">f8"), [1, 2.5, 1e300]),
        "big-endian int16": (np.array([1, 258], ">i2"), [1, 258]),
        "broadcast": (np.broadcast_to(f([1, 2]), (3, 2)), [[1, 2], [1, 2], [1, 2]]),
        "unaligned": (unaligned, [1, 2, 3]),
        "a field of a record": (np.array([(1, 2.5), (3, 4.5)], "u1,<f4")["f1"], [2.5, 4.5]),
        "empty backwards": (np.zeros((0, 3), np.float32)[::-1], np.zeros((0, 3))),
        "rank 0": (np.array(2.5, ">f4"), 2.5),
    }


@pytest.mark.parametrize("name", odd_arrays())
def test_c55_odd_strides(values, gradients, name):
    """Accepted with the right values by every door, and the caller's array stays as it was."""
    array, listed = odd_arrays()[name]
    element = f64 if array.dtype.itemsize == 8 else f32
    expected = np.array(listed, element.dtype)
    kept = array.copy()
    assert Tensor(array).element is element
    assert_same_bits(Tensor(array), expected)
    assert_same_bits(values(lambda x: x, array), expected)
    assert_same_bits(values(lambda x: x * 2 + 1, array), expected * 2 + 1)
    assert_same_bits(gradients(lambda x: x * x, array), expected * 2 + 0)  # onto a zero leaf
    assert_same_bits(values(lambda x: x.sum(), array), values(lambda x: x.sum(), expected))
    tape = Tape(element)
    default = detach(tape.input(array))
    network = tape.into_network()
    assert_same_bits(network.forward(network.parameters()).of(default), expected)
    assert array.tobytes() == kept.tobytes()
    assert array.dtype == kept.dtype


@pytest.mark.parametrize("name", odd_arrays())
def test_c55_frozen_arrays(name):
    """`Tensor.frozen` keeps any read-only array as it lies, or says in one sentence why it cannot."""
    array, listed = odd_arrays()[name]
    array = array.view()
    array.flags.writeable = False
    if array.dtype in (np.dtype("<f4"), np.dtype("<f8")):
        tensor = Tensor.frozen(array)
        assert_same_bits(tensor, np.array(listed, array.dtype))
        assert_same_bits(tensor.sum(), Tensor(array).sum())
    else:
        with pytest.raises(ElementError, match=r"^frozen: wants an array of f(32|64), got \S+; Tensor\(array\) conv"):
            Tensor.frozen(array)


def test_c55_a_result_does_not_follow_the_callers_array(values):
    """An array is read during the call alone: what is written to it later shows nowhere."""
    array = np.arange(6, dtype=np.float32)[::-1]
    tape = Tape()
    x = tape.input(shape=[6])
    name, kept, doubled = detach(x, x.reshape([2, 3]), x * 2)
    network = tape.into_network()
    runs = [
        network.entry([name, kept, doubled]).interpret(network.parameters(), {name: array}),
        network.entry([name, kept, doubled]).lower().forward(network.parameters(), {name: array}),
        network.entry([name, kept, doubled]).backward().lower().forward(network.parameters(), {name: array}),
        network.forward(network.parameters(), {name: array}),
    ]
    tensor = Tensor(array)
    array[...] = 9
    before = f([5, 4, 3, 2, 1, 0])
    assert_same_bits(tensor, before)
    for run in runs:
        assert_same_bits(run.of([name, kept, doubled]), [before, before.reshape(2, 3), before * 2])
        with pytest.raises(ValueError, match="read-only"):
            run.of(kept).numpy()[0, 0] = 1
