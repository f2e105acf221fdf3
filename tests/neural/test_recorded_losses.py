"""What losses record: what a hand writes, found by plans, and computed at once with the same bits."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import (
    Formula,
    Numerics,
    Tape,
    Tensor,
    bf16,
    binary_cross_entropy,
    cross_entropy,
    f32,
    f64,
    huber,
    mean_absolute_error,
    mean_squared_error,
)
from topos.testing import assert_same_bits

Golden = Callable[[str, str], None]

RNG = np.random.default_rng(5)
LOGITS = RNG.normal(size=(2, 3, 5)) * 3


def record(function: Callable[[Tape], Any]) -> str:
    tape = Tape()
    function(tape)
    return tape.describe()


def given(tape: Tape, absent: int | None = None) -> tuple[Any, Any]:
    return tape.input(shape=[6, 5]), tape.selection([6], 5, absent=absent)


def facade_plain(tape: Tape) -> Any:
    return cross_entropy(*given(tape))


def by_hand_plain(tape: Tape) -> Any:
    logits, labels = given(tape)
    return -labels.select(logits.log_softmax(1), 0.0).sum_along(1).sum() / 6


def facade_absent(tape: Tape) -> Any:
    return cross_entropy(*given(tape, absent=-1))


def by_hand_absent(tape: Tape) -> Any:
    logits, labels = given(tape, absent=-1)
    count = tape.leaf([1] * 5).gather(labels).sum()
    return -labels.select(logits.log_softmax(1), 0.0).sum_along(1).sum() / count


def facade_weights(tape: Tape) -> Any:
    return cross_entropy(*given(tape), weights=[1, 2, 3, 4, 5], smoothing=0.1)


def by_hand_weights(tape: Tape) -> Any:
    logits, labels = given(tape)
    weights = tape.leaf([1, 2, 3, 4, 5])
    count = weights.gather(labels).sum()
    chances = logits.log_softmax(1)
    spread = weights.broadcast_along(0, 6)
    chances = spread.select(spread * chances, 0.0)
    picked = labels.select(chances, 0.0).sum_along(1).sum()
    every = chances.sum_along(1)
    return -(picked * 0.9 + every.sum() * 0.02) / count


def facade_absent_smoothed(tape: Tape) -> Any:
    return cross_entropy(*given(tape, absent=-1), smoothing=0.1)


def by_hand_absent_smoothed(tape: Tape) -> Any:
    logits, labels = given(tape, absent=-1)
    present = tape.leaf([1] * 5).gather(labels)
    count = present.sum()
    chances = logits.log_softmax(1)
    picked = labels.select(chances, 0.0).sum_along(1).sum()
    every = present.select(chances.sum_along(1), 0.0)
    return -(picked * 0.9 + every.sum() * 0.02) / count


def facade_probabilities(tape: Tape) -> Any:
    return cross_entropy(tape.input(shape=[2, 3, 5]), tape.input(shape=[2, 3, 5]))


def by_hand_probabilities(tape: Tape) -> Any:
    logits, target = tape.input(shape=[2, 3, 5]), tape.input(shape=[2, 3, 5])
    return -target.select(target * logits.log_softmax(2), 0.0).sum_along(2).sum() / 6


def test_numbers_that_are_given_are_recorded_once() -> None:
    tape = Tape()
    cross_entropy(tape.input(shape=[2, 5]), [[0.5, 0.5, 0, 0, 0], [0, 0, 0.25, 0.25, 0.5]], weights=[1, 2, 3, 4, 5])
    binary_cross_entropy(tape.input(shape=[5]), [1] * 5)
    assert [node.shape for node in tape.nodes() if node.opcode.name == "Leaf" and node.shape.rank] == [
        *([2, 5], [5], [5], [5], [5])
    ]


def two(tape: Tape) -> tuple[Any, Any]:
    return tape.input(shape=[4]), tape.input(shape=[4])


def facade_binary(tape: Tape) -> Any:
    return binary_cross_entropy(*two(tape))


def by_hand_binary(tape: Tape) -> Any:
    x, t = two(tape)
    positive = x.step(x.zero_like())
    distance = positive.select(x, -x)
    wrong = positive.select(x.one_like() - t, t)
    return (wrong.select(wrong * distance, 0.0) + (-distance).exp().log1p()).mean()


def facade_squared(tape: Tape) -> Any:
    return mean_squared_error(*two(tape))


def by_hand_squared(tape: Tape) -> Any:
    x, t = two(tape)
    return ((x - t) ** 2).mean()


def facade_absolute(tape: Tape) -> Any:
    return mean_absolute_error(*two(tape))


def by_hand_absolute(tape: Tape) -> Any:
    x, t = two(tape)
    return abs(x - t).mean()


def facade_huber(tape: Tape) -> Any:
    return huber(*two(tape), 2.0)


def by_hand_huber(tape: Tape) -> Any:
    x, t = two(tape)
    distance = abs(x - t)
    held = distance.minimum(2.0)
    return (held * (distance - held / 2)).mean()


PAIRS = {
    "cross entropy": (facade_plain, by_hand_plain),
    "cross entropy, absent ids": (facade_absent, by_hand_absent),
    "cross entropy, weights and smoothing": (facade_weights, by_hand_weights),
    "cross entropy, absent ids and smoothing": (facade_absent_smoothed, by_hand_absent_smoothed),
    "cross entropy, probabilities": (facade_probabilities, by_hand_probabilities),
    "binary cross entropy": (facade_binary, by_hand_binary),
    "mean squared error": (facade_squared, by_hand_squared),
    "mean absolute error": (facade_absolute, by_hand_absolute),
    "huber": (facade_huber, by_hand_huber),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_loss_records_what_a_hand_writes(name: str) -> None:
    facade, by_hand = PAIRS[name]
    assert record(facade) == record(by_hand)


def test_what_losses_record_is_golden(golden: Golden) -> None:
    golden("\n\n".join(f"{name}\n{record(facade)}" for name, (facade, _) in PAIRS.items()), "neural_losses.txt")


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("element", [f32, bf16])
def test_recorded_and_computed_at_once_are_the_same_bits(name: str, element: Any) -> None:
    numbers = {(6, 5): LOGITS.reshape(6, 5), (2, 3, 5): LOGITS, (4,): RNG.normal(size=4)}

    class Eager:
        """A tape's sources as tensors."""

        def input(self, shape: list[int]) -> Tensor:
            return Tensor(numbers[tuple(shape)], f64).convert(element)

        def selection(self, shape: list[int], vocab: int, absent: int | None = None) -> Tensor:
            ids = [0, 4, 2, 2, 2, 1] if absent is None else [0, -1, 2, -1, 2, 1]
            return Tensor.selection(ids, vocab, absent=absent)

    facade = PAIRS[name][0]
    tape, feeds = Tape(element), {}
    loss = facade(tape).symbol()
    network = tape.into_network()
    for node in network.nodes():
        if node.opcode.name == "Input":
            absent = -1 if "absent" in name else None
            ids = Eager().selection([6], 5, absent).ids
            feeds[node.symbol] = ids if node.element is None else numbers[tuple(node.shape)].astype(np.float64)
    entry = network.entry(loss).numerics(Numerics.EXACT)
    expected = facade(Eager())
    assert_same_bits(entry.lower().forward(network.parameters(), feeds).of(loss), expected)
    assert_same_bits(entry.interpret(network.parameters(), feeds).of(loss), expected)


@pytest.mark.parametrize("absent", [None, -1])
def test_a_plan_finds_the_cross_entropy_and_its_gradient(absent: int | None) -> None:
    tape = Tape()
    weight = tape.parameter(RNG.normal(size=(7, 5)))
    labels = tape.selection([2, 3], 5, absent=absent)
    logits = (tape.input(shape=[6, 7]) @ weight).reshape([2, 3, 5])
    loss = cross_entropy(logits, labels)
    roots = [loss.symbol(), tape.differentiate(loss, weight).of(weight).symbol()]
    plan = tape.into_network().entry(roots).lower()
    found = [pattern.kind for pattern in plan.patterns(Formula)]
    assert "cross entropy" in found
    assert "cross entropy gradient" in found


def test_targets_and_weights_may_be_symbols_and_values() -> None:
    tape = Tape()
    logits, labels = given(tape)
    weights = tape.parameter([1, 2, 3, 4, 5])
    length = len(tape)
    first = cross_entropy(logits, labels.symbol(), weights=weights.symbol())
    middle = len(tape)
    second = cross_entropy(logits, labels, weights=weights)
    assert middle - length == len(tape) - middle
    assert (first.shape, second.shape) == ([], [])


def test_weights_of_another_element_are_cast_where_they_are_used() -> None:
    tape = Tape(bf16)
    logits, labels = given(tape)
    assert cross_entropy(logits, labels, weights=tape.parameter([1, 2, 3, 4, 5], element=f32)).element is bf16


def test_more_rows_than_the_element_counts_exactly() -> None:
    tape = Tape(bf16)
    loss = cross_entropy(tape.input(shape=[257, 3]), tape.selection([257], 3))
    assert loss.element is bf16


def test_a_node_tells_which_loss_recorded_it() -> None:
    tape = Tape()
    loss = cross_entropy(*given(tape))
    assert tape.nodes()[loss.symbol().index].line.endswith("(cross_entropy)")
    assert "test_recorded_losses.py" in tape.nodes()[loss.symbol().index].line
