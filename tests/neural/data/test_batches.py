"""Batches: every row once, in an order that the seed and the epoch give, of static shapes where that is asked for."""

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topos import SettingError, ShapeError, Tape, cross_entropy
from topos.neural.data import batches
from topos.neural.init import Stream

ROWS = np.arange(10)


def epoch(arrays: Any, size: int, seed: int = 7, **options: Any) -> list[Any]:
    return list(batches(arrays, size, seed, **options))


def test_an_order_is_pinned_and_each_epoch_has_its_own() -> None:
    orders = [np.concatenate(epoch(ROWS, 5, epoch=number)).tolist() for number in range(3)]
    assert orders == GOLDEN
    assert np.concatenate(epoch(ROWS, 5)).tolist() == orders[0]


GOLDEN = [[6, 1, 8, 3, 0, 2, 9, 4, 5, 7], [1, 3, 0, 4, 8, 2, 9, 7, 6, 5], [9, 5, 4, 1, 0, 3, 7, 2, 8, 6]]


def test_an_order_is_that_of_a_stream_whose_seed_is_a_draw() -> None:
    for number, draw in enumerate(Stream(7).integers(3).tolist()):
        assert np.concatenate(epoch(ROWS, 10, epoch=number)).tolist() == Stream(draw).order(10).tolist()


@given(st.integers(0, 30), st.integers(1, 12), st.integers(0, 2**64), st.integers(0, 5))
def test_every_row_comes_once(count: int, size: int, seed: int, number: int) -> None:
    rows = np.arange(count)
    kept = epoch(rows, size, seed, epoch=number, keep=True)
    assert sorted(np.concatenate([*kept, rows[:0]]).tolist()) == rows.tolist()
    assert [len(batch) for batch in kept[:-1]] == [size] * max(0, len(kept) - 1)
    dropped = epoch(rows, size, seed, epoch=number) if count >= size else []
    assert len(dropped) == count // size
    padded = epoch(rows, size, seed, epoch=number, pad=-1)
    assert [len(batch) for batch in padded] == [size] * -(-count // size)
    for others in (dropped, padded):
        for batch, other in zip(kept, others, strict=False):
            assert other[: len(batch)].tolist() == batch.tolist()
    assert np.concatenate([*padded, rows[:0]])[count:].tolist() == [-1] * (len(padded) * size - count)


class Pair(NamedTuple):
    images: Any
    labels: Any


def test_a_nesting_of_arrays_is_a_nesting_of_batches() -> None:
    images, labels = np.arange(20.0).reshape(10, 2), np.arange(10, dtype=np.uint8)
    nestings = [(images, labels), [images, labels], {"x": images, "y": (labels,)}, Pair(images, labels)]
    for nesting in nestings:
        batch = epoch(nesting, 4)[0]
        assert type(batch) is type(nesting)
    named = epoch(nestings[2], 4)[1]
    assert named["x"][:, 0].tolist() == [2 * label for label in named["y"][0].tolist()]
    assert epoch(Pair(images, labels), 4)[0].labels.dtype == np.uint8


def test_pads_are_for_all_or_for_each() -> None:
    arrays = {"x": np.ones((3, 2, 2), np.float32), "y": np.ones(3, np.int64)}
    last = epoch(arrays, 2, pad={"x": 0, "y": -1})[-1]
    assert last["x"].tolist() == [[[1, 1], [1, 1]], [[0, 0], [0, 0]]]
    assert (last["x"].dtype, last["y"].tolist()) == (np.float32, [1, -1])
    assert epoch(arrays, 2, pad=5)[-1]["y"].tolist() == [1, 5]
    assert epoch((ROWS, (ROWS, ROWS)), 7, pad=(1, 2))[-1][1][1][-1] == 2


def test_a_batch_that_is_filled_up_has_the_loss_of_the_rows_that_are_there() -> None:
    def loss(logits: np.ndarray, labels: np.ndarray) -> float:
        tape = Tape()
        x, y = tape.input(logits), tape.selection([len(labels)], 3, absent=-1)
        symbol, given = cross_entropy(x, y).symbol(), y.symbol()
        network = tape.into_network()
        return float(network.forward(network.parameters(), {given: labels}).of(symbol))

    arrays = np.arange(15.0).reshape(5, 3) ** 0.5, np.array([0, 1, 2, 0, 1])
    assert loss(*epoch(arrays, 4, pad=(0, -1))[-1]) == loss(*epoch(arrays, 4, keep=True)[-1])


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: batches(ROWS, 0, 1), SettingError, "batches: size must be a whole number of 1 or more, got 0"),
        (
            lambda: batches((ROWS, ROWS[:3]), 2, 1),
            ShapeError,
            "batches: arrays must have the same number of rows, got [10, 3]",
        ),
        (lambda: batches((ROWS, 3.0), 2, 1), ShapeError, "batches: wants arrays of rank 1 or more, got a number"),
        (lambda: batches((), 2, 1), ShapeError, "batches: arrays must have the same number of rows, got []"),
        (
            lambda: batches((ROWS.astype(np.uint8),), 2, 1, pad=-1),
            SettingError,
            "batches: pad -1 is no number of an array of uint8",
        ),
        (
            lambda: batches((ROWS, ROWS), 2, 1, pad=(0, 1, 2)),
            SettingError,
            "batches: pad is unlike the arrays: 3 beside 2",
        ),
        (
            lambda: batches({"x": ROWS}, 2, 1, pad={"y": 1}),
            SettingError,
            "batches: pad is unlike the arrays: ['y'] beside ['x']",
        ),
        (
            lambda: batches(ROWS, 11, 1),
            SettingError,
            "batches: 10 rows make no batch of 11; keep=True takes fewer, pad fills them up",
        ),
        (
            lambda: batches(ROWS[:0], 1, 1),
            SettingError,
            "batches: 0 rows make no batch of 1; keep=True takes fewer, pad fills them up",
        ),
        (lambda: batches(ROWS, 2, 1.5), SettingError, "seed: wants an integer, got 1.5"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_first_batch(call: Any, kind: type, message: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("array", "number"),
    [
        (np.arange(5), 1.5),
        (np.arange(5) > 2, 5),
        (np.arange(5.0), None),
        (np.arange(5.0), "1"),
        (np.arange(5, dtype=np.float32), 1e300),
        (np.array(["a", "b", "c"]), "xyz"),
        (np.arange(5, dtype=np.uint8), 300.0),
    ],
    ids=str,
)
def test_a_pad_that_would_become_another_is_refused(array: Any, number: Any) -> None:
    with pytest.raises(SettingError) as caught:
        batches((array, array), 2, 0, pad=(array[0], number))
    assert str(caught.value) == f"batches: pad {number!r} is no number of an array of {array.dtype}"


@pytest.mark.parametrize(
    ("array", "number"),
    [
        (np.arange(5, dtype=np.float32), 0.1),
        (np.arange(5.0), float("nan")),
        (np.arange(5, dtype=np.float16), float("-inf")),
        (np.arange(5, dtype=ml_dtypes.bfloat16), 0.1),
        (np.arange(5), 2.0),
        (np.arange(5), True),
        (np.array(["a", "b", "c"]), "x"),
    ],
    ids=str,
)
def test_a_pad_is_rounded_as_any_number_is(array: Any, number: Any) -> None:
    *_, last = batches(array, 2, 0, pad=number)
    assert last[1:].tobytes() == np.array([number]).astype(array.dtype).tobytes()


def test_a_pad_by_names_is_in_any_order() -> None:
    *_, last = batches({"x": np.arange(3.0), "y": np.arange(3)}, 2, 0, pad={"y": -1, "x": 0.5})
    assert (last["x"][1], last["y"][1]) == (0.5, -1)


@pytest.mark.parametrize("wrong", [2.5, "2", True, None, 0])
def test_a_size_is_a_whole_number(wrong: Any) -> None:
    with pytest.raises(SettingError) as caught:
        batches(np.arange(3), wrong, 0)
    assert str(caught.value) == f"batches: size must be a whole number of 1 or more, got {wrong!r}"


@pytest.mark.parametrize("wrong", [1.5, "1", -1])
def test_an_epoch_is_counted_from_zero(wrong: Any) -> None:
    with pytest.raises(SettingError) as caught:
        batches(np.arange(3), 2, 0, epoch=wrong)
    assert str(caught.value) == f"batches: epoch must be a whole number of 0 or more, got {wrong!r}"
