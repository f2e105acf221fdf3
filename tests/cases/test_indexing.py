"""Rows by their ids, and ids that name no row."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from topos import ElementError, FeedError, ShapeError, Tape, Tensor, detach
from topos.testing import assert_same_bits

Array = np.ndarray[Any, np.dtype[Any]]


def f(number: Any) -> Array:
    return np.array(number, np.float32)


def first_line(error: Any) -> str:
    return str(error.value).split("\n")[0]


def test_c52_repeated_indices(values, gradients, hexed):
    """Rows that name the same place add up there, in the order of the selection; a row never named stays +0.0."""
    picked = Tensor.selection([0, 0, 2], 3)
    upstream = f([0.25, 0.5, 2])

    def loss(table, ids, weights):
        return (table.gather(ids) * weights).sum()

    by_table, by_weights = gradients(loss, f([1, 2, 3]), picked, upstream)
    assert_same_bits(by_table, f([0.75, 0, 2]))
    assert hexed(by_table[1]) == "0x00000000"
    assert_same_bits(by_weights, f([1, 1, 3]))
    assert_same_bits(values(lambda rows, ids: rows.scatter(ids), upstream, picked), f([0.75, 0, 2]))


def test_c52_ten_thousand_rows_on_one_place(values, gradients):
    """f32 addition does not associate: only the selection's own order gives these bits, from one thread or several."""
    count = 10000
    upstream = (np.random.default_rng(3).standard_normal((count, 3)) * 100).astype(np.float32)
    total = np.add.accumulate(upstream, axis=0, dtype=np.float32)[-1]
    expected = np.stack([total, np.zeros(3, np.float32)])
    ids = Tensor.selection(np.zeros(count, np.int64), 2)
    assert_same_bits(values(lambda rows, ids: rows.scatter(ids), upstream, ids), expected)
    by_table, _ = gradients(lambda table, ids, g: table.gather(ids) * g, np.ones((2, 3), np.float32), ids, upstream)
    assert_same_bits(by_table, expected)

    tape = Tape()
    rows, selection = tape.input(shape=[count, 3]), tape.selection([count], 2)
    names, result = detach([rows, selection], rows.scatter(selection))
    network = tape.into_network()
    plan, parameters = network.entry([result]).lower(), network.parameters()
    feeds = dict(zip(names, (upstream, np.zeros(count, np.int64)), strict=True))
    for threads in (1, 2, 4):
        with ThreadPoolExecutor(threads) as pool:
            for answer in pool.map(lambda _: plan.forward(parameters, feeds).of(result), range(threads)):
                assert_same_bits(answer, expected)


@pytest.mark.parametrize("index", [3, -4, 2**40])
def test_c53_an_index_out_of_range(index):
    """A bad index raises where it is written, with index, axis and extent; the clamping of other systems hides it."""
    told = f"index: {index} is out of range for axis 0 of extent 3 in [3]"
    for taken in (Tensor([10, 20, 30]), Tape().input([10, 20, 30])):
        with pytest.raises(ShapeError) as refused:
            taken[index]
        assert first_line(refused) == told
    with pytest.raises(ShapeError) as refused:
        Tensor([[1, 2, 3]])[0, index]
    assert first_line(refused) == f"index: {index} is out of range for axis 1 of extent 3 in [1, 3]"


def test_c53_a_negative_index_counts_from_the_end(values, gradients):
    """Convention: -1 is the last element where an axis is indexed, as everywhere in Python."""
    table = f([10, 20, 30])
    assert_same_bits(values(lambda x: (x[-1], x[2], x[-3]), table), (f(30), f(30), f(10)))
    assert_same_bits(gradients(lambda x: x[-1], table), f([0, 0, 1]))
    assert_same_bits(values(lambda x: x[1:99], table), f([20, 30]))  # a slice is cut to what is there, as in Python


def test_c53_narrow_stays_inside():
    """No reading past the end, whatever the length asked for."""
    told = "narrow: 2 to 4 is not inside axis 0 of extent 3 in [3]"
    for taken in (Tensor([10, 20, 30]), Tape().input([10, 20, 30])):
        with pytest.raises(ShapeError) as refused:
            taken.narrow(0, 2, 2)
        assert first_line(refused) == told


@pytest.mark.parametrize("label", [-4, 10, -1])
def test_c53_a_class_label_out_of_range(label):
    """Convention: ids do not count from the end. -1 is refused as any other, unless it was declared as `absent`."""
    told = f"id {label} at [1] is not one of the vocab's 0 .. 9"
    with pytest.raises(FeedError) as refused:
        Tensor.selection([3, label], 10)
    assert first_line(refused) == f"selection: {told}"

    tape = Tape()
    logits = tape.input(shape=[2, 10])
    labels = tape.selection([2], 10, name="label")
    names, loss = detach([logits, labels], -labels.select(logits.log_softmax(1), logits.zero_like()).sum())
    network = tape.into_network()
    entry, parameters = network.entry([loss]), network.parameters()
    feeds = {names[1]: np.array([3, label])}
    for run in (entry.interpret, entry.lower().forward, network.forward):
        with pytest.raises(FeedError) as refused:
            run(parameters, feeds)
        assert re.fullmatch(
            rf"feed: %1 Input \[2, 10\] 'label' \S*test_indexing\.py:\d+( \(selection\))?: ids: {re.escape(told)}",
            first_line(refused),
        )
    state = network.state()
    with pytest.raises(FeedError):
        entry.lower().advance(state, feeds)
    assert_same_bits(entry.interpret(parameters, {"label": [3, 9]}).of(loss), f(2 * np.log(10)))


def test_c53_an_absent_label_selects_nothing(values, gradients):
    """The declared id of ignored labels: a zero row, no loss and no cotangent, exactly."""
    labels = Tensor.selection([1, -1], 3, absent=-1)

    def loss(logits, labels):
        return -labels.select(logits.log_softmax(1), logits.zero_like()).sum()

    logits = f([[0, 0, 0], [5, np.nan, -np.inf]])
    assert_same_bits(values(loss, logits, labels), f(np.log(3)))
    assert_same_bits(values(lambda x, ids: x.gather(ids), f([1, 2, 3]), labels), f([2, 0]))


def test_c53_an_embedding_id_equal_to_the_vocabulary(gradients):
    """One past the end: refused before a row is read, and where the gradient would be written."""
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    tape = Tape()
    weights, ids = tape.parameter(table), tape.selection([2, 2], 4)
    names, rows = detach([weights, ids], weights.gather(ids))
    network = tape.into_network()
    for run in (network.entry([rows]).interpret, network.entry([rows]).lower().forward, network.forward):
        with pytest.raises(FeedError, match=r"ids: id 4 at \[1, 0\] is not one of the vocab's 0 \.\. 3$"):
            run(network.parameters(), {names[1]: [[0, 1], [4, 2]]})
        with pytest.raises(FeedError, match=r"is a selection and must be fed$"):
            run(network.parameters())
    with pytest.raises(FeedError, match=r"^selection: id 4 at \[0\] is not one of the vocab's 0 \.\. 3$"):
        Tensor(table).gather(Tensor.selection([4], 4))
    with pytest.raises(ShapeError, match=r"^gather: wants a table \[vocab, \.\.\.\] and a selection \[count, vocab\]"):
        Tensor(table).gather(Tensor.selection([4], 5))
    with pytest.raises(ElementError, match=r"^gather: wants a selection \(Tensor\.selection\), got a dense tensor$"):
        Tensor(table).gather(Tensor(np.eye(4, dtype=np.float32)))
    with pytest.raises(FeedError, match=r"ids must be integers, got float64$"):
        Tensor.selection(np.array([0.0, 1.0]), 4)
