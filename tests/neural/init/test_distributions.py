"""What each initialiser draws, worked out from the stream by hand; and what it refuses."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from topos import Shape, ShapeError, ToposError, bf16, f32, f64, init
from topos.testing import assert_same_bits


def test_uniform_and_normal_are_the_stream_on_a_scale() -> None:
    assert_same_bits(init.uniform(3, 0.3)([2, 5], f64), (init.Stream(3).signed(10) * 0.3).reshape(2, 5))
    assert_same_bits(init.normal(3, 0.3)([2, 5], f64), (init.Stream(3).normals(10) * 0.3).reshape(2, 5))
    assert_same_bits(init.uniform(3)([4], f64), init.Stream(3).signed(4))


def test_truncated_normal_stays_within_its_limit() -> None:
    numbers = init.truncated_normal(3, 0.5, limit=1.5)([100, 100], f64).numpy()
    assert np.abs(numbers).max() <= 0.75
    drawn = init.Stream(3).normals(11000)
    assert_same_bits(numbers.reshape(-1)[:9000], (drawn[np.abs(drawn) <= 1.5] * 0.5)[:9000])


def test_dropout_keeps_what_is_not_below_the_rate_and_scales_it() -> None:
    reals = init.Stream(3).reals(1000)
    mask = init.dropout(3, 0.25)([10, 100], f64).numpy().reshape(-1)
    assert_same_bits(mask, np.where(reals < 0.25, 0.0, 1 / 0.75))
    assert abs(mask.mean() - 1) < 4 * math.sqrt(0.25 / 0.75 / 1000)
    assert init.dropout(3, 0.0)([5], f32).tolist() == [1.0] * 5


FANS = [([6, 10], 6, 10), ([8, 3, 5, 5], 75, 200), ([8, 3, 5], 15, 40)]


@pytest.mark.parametrize(("shape", "inputs", "outputs"), FANS)
def test_scales_follow_from_the_fans(shape: list[int], inputs: int, outputs: int) -> None:
    assert init.fans(Shape(shape)) == (inputs, outputs)
    count = math.prod(shape)
    uniform, normal = init.Stream(3).signed(count).reshape(shape), init.Stream(3).normals(count).reshape(shape)
    both = math.sqrt(2 * 3.0 / (inputs + outputs))
    assert_same_bits(init.xavier(3)(shape, f64), uniform * both)
    assert_same_bits(init.xavier(3, 0.5)(shape, f64), uniform * (0.5 * both))
    normally = init.xavier(3, distribution="normal")(shape, f64)
    assert_same_bits(normally, normal * math.sqrt(2.0 / (inputs + outputs)))
    assert_same_bits(init.kaiming(3)(shape, f64), normal * (math.sqrt(2.0) * math.sqrt(1 / inputs)))
    evenly = init.kaiming(3, 1.0, fan="outputs", distribution="uniform")(shape, f64)
    assert_same_bits(evenly, uniform * math.sqrt(3.0 / outputs))


@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_deviations_are_those_of_the_papers(distribution: str) -> None:
    """Within four standard errors, which are at most `1 / sqrt(2 n)` of a deviation of `n` numbers."""
    error = 4 / math.sqrt(2 * 400 * 300)
    xavier = init.xavier(5, 2.0, distribution=distribution)([400, 300], f64).numpy().std()
    kaiming = init.kaiming(5, distribution=distribution)([400, 300], f64).numpy().std()
    assert abs(xavier / (2 * math.sqrt(2 / 700)) - 1) < error
    assert abs(kaiming / math.sqrt(2 / 400) - 1) < error


@pytest.mark.parametrize("shape", [[0, 4], [4, 0], [0, 0], [3, 2, 0]])
def test_nothing_is_drawn_for_a_weight_without_numbers(shape: list[int]) -> None:
    for make in (init.xavier, init.kaiming, init.orthogonal, init.normal):
        initialiser = make(3)
        assert initialiser(shape, f32).shape == shape
        assert_same_bits(initialiser([2, 2], f32), make(3)([2, 2], f32))


def test_constants_are_rounded_once_and_stored_once() -> None:
    assert init.constant(0.1)([2], f64).tolist() == [0.1, 0.1]
    assert init.constant(0.1)([2], bf16).convert(f64).tolist() == [0.10009765625] * 2
    assert (init.zeros([2, 1], f32).tolist(), init.ones([2], f32).tolist()) == ([[0.0], [0.0]], [1.0, 1.0])
    assert init.ones([10**6, 10**6], f32).as_constant() is not None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: init.truncated_normal(1, limit=0), "init.truncated_normal: limit must be a number above 0, got 0"),
        (
            lambda: init.truncated_normal(1, limit=math.nan),
            "init.truncated_normal: limit must be a number above 0, got nan",
        ),
        (lambda: init.dropout(1, 1.0), "init.dropout: rate must be a number at least 0 and below 1, got 1.0"),
        (lambda: init.dropout(1, -0.1), "init.dropout: rate must be a number at least 0 and below 1, got -0.1"),
        (
            lambda: init.xavier(1, distribution="even"),
            "init.xavier: distribution is 'uniform' or 'normal', got 'even'",
        ),
        (lambda: init.kaiming(1, fan="both"), "init.kaiming: fan is 'inputs' or 'outputs', got 'both'"),
        (lambda: init.normal("x"), "seed: wants an integer, got 'x'"),  # type: ignore[arg-type]
        (
            lambda: init.kaiming(Shape([2, 3]), f32),  # type: ignore[arg-type]
            "seed: wants an integer, got [2, 3]; a seed makes the initialiser: init.kaiming(seed=1)",
        ),
        *(
            (
                lambda make=make: make(Shape([2, 3]), f32),
                "seed: wants an integer, got [2, 3]; a seed makes the initialiser: init.kaiming(seed=1)",
            )
            for make in (init.uniform, init.normal, init.truncated_normal, init.dropout, init.xavier, init.orthogonal)
        ),
        (lambda: init.normal(1).keyed().at(7), "init.normal: a path is a string, got 7"),  # type: ignore[arg-type]
    ],
)
def test_options_that_mean_nothing_are_refused_at_once(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ToposError) as caught:
        call()
    assert str(caught.value) == message


@pytest.mark.parametrize("make", [init.xavier, init.kaiming, init.orthogonal])
def test_a_weight_without_fans_is_refused(make: Callable[[int], init.Seeded]) -> None:
    initialiser = make(1)
    with pytest.raises(ShapeError) as caught:
        initialiser([5], f32)
    assert str(caught.value) == f"init.{make.__name__}: wants a weight of rank 2 or more, got [5]"
    assert_same_bits(initialiser([2, 2], f32), make(1)([2, 2], f32))
