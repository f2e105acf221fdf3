"""Losses: their values from outside, their gradients, what does not count, and what is refused."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpmath import mp

from topos import (
    SettingError,
    ShapeError,
    Tape,
    Tensor,
    binary_cross_entropy,
    cross_entropy,
    f32,
    f64,
    huber,
    mean_absolute_error,
    mean_squared_error,
)
from topos.testing import assert_same_bits, check_gradient

RNG = np.random.default_rng(5)
LOGITS = RNG.normal(size=(2, 3, 5)) * 3
IDS = [[0, 4, 2], [2, 2, 1]]
CHANCES = RNG.dirichlet(np.ones(5), (2, 3))
WEIGHTS = [1.0, 0.5, 2.0, 0.0, 3.0]


def wide(payload: Any) -> Tensor:
    return Tensor(payload, f64)


# cross entropy
def expected_cross_entropy(logits, target, weights=None, smoothing=0.0) -> float:
    """From its definition, row by row in 40 digits; in `target` a row that is absent is all zeros."""
    with mp.workdps(40):
        total, count, classes = mp.mpf(0), mp.mpf(0), logits.shape[-1]
        for row, chances in zip(logits.reshape(-1, classes), target.reshape(-1, classes), strict=True):
            if not chances.any():
                continue
            normalizer = mp.log(sum(mp.exp(mp.mpf(x)) for x in row))
            for c in range(classes):
                weight = mp.mpf(weights[c]) if weights else mp.mpf(1)
                smooth = (1 - mp.mpf(smoothing)) * mp.mpf(chances[c]) + mp.mpf(smoothing) / classes
                total -= weight * smooth * (mp.mpf(row[c]) - normalizer)
                count += weight * mp.mpf(chances[c]) if weights else 0
            count += 0 if weights else 1
        return float(total / count)


def one_hot(ids: Any) -> np.ndarray:
    return np.eye(6)[np.asarray(ids).reshape(-1)][:, :5].reshape(*np.shape(ids), 5)


TARGETS = {
    "ids": (Tensor.selection(IDS, 5), one_hot(IDS)),
    "absent ids": (Tensor.selection([[0, -1, 2], [-1, 2, 1]], 5, absent=-1), one_hot([[0, 5, 2], [5, 2, 1]])),
    "probabilities": (wide(CHANCES), CHANCES),
}


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("kind", TARGETS)
def test_cross_entropy_is_its_definition(kind: str, weights: Any, smoothing: float) -> None:
    target, chances = TARGETS[kind]
    found = cross_entropy(wide(LOGITS), target, weights=weights, smoothing=smoothing)
    expected = expected_cross_entropy(LOGITS, chances, weights, smoothing)
    assert float(found) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("kind", TARGETS)
def test_gradients_of_cross_entropy(kind: str, weights: Any, smoothing: float) -> None:
    target = TARGETS[kind][0]
    check_gradient(lambda x: cross_entropy(x, target, weights=weights, smoothing=smoothing), LOGITS)
    if kind != "probabilities":
        check_gradient(
            lambda x: cross_entropy(x, target, weights=weights, smoothing=smoothing), LOGITS, element=f32, entries=2
        )


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_ids_and_their_one_hot_rows_are_the_same_loss(weights: Any, smoothing: float) -> None:
    by_ids = cross_entropy(wide(LOGITS), TARGETS["ids"][0], weights=weights, smoothing=smoothing)
    by_rows = cross_entropy(wide(LOGITS), wide(one_hot(IDS)), weights=weights, smoothing=smoothing)
    assert float(by_ids) == pytest.approx(float(by_rows), rel=1e-15)


def test_rows_that_are_absent_change_nothing() -> None:
    """A batch that is filled up has the loss and the gradient of the rows that count, whatever is in the others."""
    few = cross_entropy(wide(LOGITS[0]), Tensor.selection([0, 4, 2], 5), smoothing=0.1, weights=WEIGHTS)
    padded = np.concatenate([LOGITS[0], np.full((2, 5), 7.0)])
    ids = Tensor.selection([0, 4, 2, -1, -1], 5, absent=-1)
    many = cross_entropy(wide(padded), ids, smoothing=0.1, weights=WEIGHTS)
    assert float(many) == pytest.approx(float(few), rel=1e-15)
    rows = gradient(lambda x: cross_entropy(x, ids), padded)
    assert_same_bits(rows[3:], np.zeros((2, 5)))
    assert_same_bits(rows[:3], gradient(lambda x: cross_entropy(x, Tensor.selection([0, 4, 2], 5)), LOGITS[0]))


def test_a_mean_over_no_rows_is_nan() -> None:
    assert math.isnan(float(cross_entropy(wide(LOGITS[0]), Tensor.selection([-1] * 3, 5, absent=-1))))
    assert math.isnan(float(cross_entropy(wide(np.zeros((0, 5))), Tensor.selection([], 5))))


def gradient(function: Callable[[Any], Any], *payloads: Any) -> np.ndarray:
    """The recorded gradient in the first operand."""
    tape = Tape(f64)
    values = [tape.parameter(payload) for payload in payloads]
    slope = tape.differentiate(function(*values), values[0]).of(values[0]).symbol()
    network = tape.into_network()
    return network.entry(slope).lower().forward(network.parameters()).of(slope).numpy()


def test_extreme_logits_and_masked_classes() -> None:
    logits = np.array([[1e4, -1e4, 0.0], [-np.inf, 3.0, 3.0], [-np.inf, -1e4, 1e4]])
    losses = [float(cross_entropy(wide(logits[row : row + 1]), Tensor.selection([row], 3))) for row in range(3)]
    assert losses == [0.0, pytest.approx(math.log(2), rel=1e-15), 0.0]
    assert float(cross_entropy(wide(logits[:1]), Tensor.selection([1], 3))) == 2e4
    chances = np.array([[1.0, 0.0, 0.0], [0.0, 0.25, 0.75], [0.0, 0.0, 1.0]])
    for target in (Tensor.selection([0, 1, 2], 3), wide(chances)):
        for weights in (None, [0.0, 1.0, 2.0]):
            function = lambda x, target=target, weights=weights: cross_entropy(x, target, weights=weights)  # noqa: E731
            assert math.isfinite(float(function(wide(logits))))
            assert np.isfinite(gradient(function, logits)).all()
    assert float(cross_entropy(wide(logits[1:2]), Tensor.selection([0], 3))) == math.inf
    assert float(cross_entropy(wide(logits[1:2]), Tensor.selection([0], 3), weights=[0, 1, 1], smoothing=0.0)) != 0


def test_a_weight_of_zero_takes_a_masked_class_out_of_the_mean() -> None:
    logits = wide([[-np.inf, 3.0, 3.0], [0.0, 0.0, 0.0]])
    found = cross_entropy(logits, Tensor.selection([0, 1], 3), weights=[0, 1, 1])
    assert float(found) == pytest.approx(math.log(3), rel=1e-15)


def test_smoothing_of_a_masked_class_is_infinite() -> None:
    assert float(cross_entropy(wide([[-np.inf, 0.0]]), Tensor.selection([1], 2), smoothing=0.1)) == math.inf


# binary cross entropy
@pytest.mark.parametrize("logit", [0.0, -0.0, 1e-3, 0.5, -0.5, 3.0, -20.0, 20.0, 90.0, -100.0, 1000.0, -1e4])
@pytest.mark.parametrize("target", [0.0, 1.0, 0.25])
def test_binary_cross_entropy_is_its_definition(logit: float, target: float) -> None:
    """In f64 and f32, to a few ulp however far the logit is: the smallest losses keep all their digits."""
    with mp.workdps(500):
        p = 1 / (1 + mp.exp(-mp.mpf(logit)))
        expected = float(-(target * mp.log(p) + (1 - mp.mpf(target)) * mp.log(1 - p)))
        slope = float(p - target)
    assert float(binary_cross_entropy(wide([logit]), [target])) == pytest.approx(expected, rel=1e-15, abs=5e-324)
    assert float(binary_cross_entropy(Tensor([logit]), [target])) == pytest.approx(expected, rel=3e-7, abs=1.5e-45)
    found = float(gradient(lambda x: binary_cross_entropy(x, [target]), [logit])[0])
    assert found == pytest.approx(slope, rel=1e-14, abs=5e-324)


def test_an_infinite_logit_that_is_right_costs_nothing() -> None:
    assert float(binary_cross_entropy(wide([math.inf, -math.inf]), [1, 0])) == 0.0
    assert float(binary_cross_entropy(wide([math.inf, -math.inf]), [1, 1])) == math.inf
    assert gradient(lambda x: binary_cross_entropy(x, [1, 0]), [math.inf, -math.inf]).tolist() == [0.0, 0.0]


def test_gradients_of_the_other_losses() -> None:
    prediction, target = RNG.normal(size=(3, 4)) * 2, RNG.uniform(size=(3, 4))
    for loss in (binary_cross_entropy, mean_squared_error, mean_absolute_error, huber):
        check_gradient(lambda x, loss=loss: loss(x, Tensor(target, f64)), prediction)
        check_gradient(loss, prediction, target, element=f32)


# the others
def test_errors_by_hand() -> None:
    prediction, target = Tensor([1.0, 2.0, -3.0]), [1.5, 2.0, 1.0]
    assert float(mean_squared_error(prediction, target)) == np.float32((0.25 + 16) / 3)
    assert float(mean_absolute_error(prediction, target)) == 1.5
    assert float(huber(prediction, target)) == np.float32((0.125 + 3.5) / 3)
    assert float(huber(prediction, target, delta=8)) == np.float32((0.125 + 8) / 3)


LOSSES = [binary_cross_entropy, mean_squared_error, mean_absolute_error, huber]


@pytest.mark.parametrize("loss", LOSSES)
def test_c36_shapes_that_differ_are_named_and_nothing_is_recorded(loss: Callable[..., Any]) -> None:
    """Spread over one another they would train on all pairs and look plausible."""
    message = f"{loss.__name__}: shapes must be equal, got prediction [3, 1] and target [3]"
    tape = Tape()
    prediction, target = tape.input(shape=[3, 1]), tape.input(shape=[3])
    for given in (target, target.symbol(), [1, 2, 3]):
        with pytest.raises(ShapeError) as caught:
            loss(prediction, given)
        assert str(caught.value) == message
        assert len(tape) == 2
    with pytest.raises(ShapeError) as caught:
        loss(prediction, 1.0)
    assert str(caught.value) == f"{loss.__name__}: shapes must be equal, got prediction [3, 1] and target []"


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"smoothing": 1.5}, SettingError, "cross_entropy: smoothing must be a number from 0 to 1, got 1.5"),
        ({"weights": [1, 2]}, ShapeError, "cross_entropy: wants weights [5], one for each class, got [2]"),
        (
            {"target": Tensor.selection([1, 2], 5)},
            ShapeError,
            "cross_entropy: wants probabilities of [2, 3, 5] like the logits, or a selection of as many rows "
            "(tape.selection); got [2, 5]",
        ),
        (
            {"target": IDS},
            ShapeError,
            "cross_entropy: wants probabilities of [2, 3, 5] like the logits, or a selection of as many rows "
            "(tape.selection); got [2, 3]",
        ),
        ({"logits": 1.0}, ShapeError, "cross_entropy: wants logits [..., classes], got []"),
    ],
)
def test_cross_entropy_refuses_what_does_not_fit(options: dict[str, Any], kind: type, message: str) -> None:
    tape = Tape()
    given = {"logits": LOGITS, "target": TARGETS["ids"][0], **options}
    logits = tape.input(given.pop("logits"))
    with pytest.raises(kind) as caught:
        cross_entropy(logits, given.pop("target"), **given)
    assert str(caught.value) == message
    assert len(tape) == 1


def test_a_huber_limit_is_positive() -> None:
    with pytest.raises(SettingError) as caught:
        huber(Tensor([1.0]), [1.0], delta=0)
    assert str(caught.value) == "huber: delta must be a number above 0, got 0"
