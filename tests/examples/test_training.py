"""The examples that train something, at a small size."""

import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from topos.testing import assert_same_bits

Example = Callable[[str], ModuleType]
PNG = b"\x89PNG\r\n\x1a\n"
SMALL = {"steps": 60, "together": 20, "measure_every": 20, "limit": 300, "hidden": 24, "measure_batch": 512}


def test_one_plan_serves_threads_and_a_plain_loop_with_the_same_bits(example: Example) -> None:
    compared = example("gradient_descent").main(steps=60, rates=(0.03, 0.1, 0.2))
    assert compared.same
    assert len(compared.after) == 3
    assert max(compared.after) < 0.02 < min(compared.before)


def test_the_exclusive_or_is_learned(example: Example) -> None:
    learned = example("mlp_xor").main(steps=500)
    assert [round(answer) for answer in learned.answers] == [0, 1, 1, 0]
    assert learned.losses[-1] < 0.01 < learned.losses[0]


def test_regression_arrives_at_the_least_squares_solution(example: Example) -> None:
    fitted = example("regression").main(rows=60, steps=300)
    assert np.abs(fitted.weights - fitted.solution).max() < 1e-12
    assert fitted.losses.shape == (300,)
    assert fitted.losses[-1] < fitted.losses[0] / 100


def test_steps_in_one_call_are_the_steps_by_hand(example: Example) -> None:
    """The recorded step of the regression against the same arithmetic in NumPy; f64 products differ in order."""
    random = np.random.Generator(np.random.PCG64(1))
    features, wanted = random.normal(size=(20, 3)), random.normal(size=(20, 1))
    plan, state, loss = example("regression").record_step(features, wanted, rate=0.1, momentum=0.5)
    losses = plan.advance(state, steps=4).of(loss).numpy()
    weights, velocity = np.zeros((3, 1)), np.zeros((3, 1))
    for step in range(4):
        error = features @ weights - wanted
        assert losses[step] == pytest.approx(np.mean(error**2), rel=1e-13)
        velocity = 0.5 * velocity + 2 * features.T @ error / 20
        weights = weights - 0.1 * velocity
    np.testing.assert_allclose(state.parameters().payloads()[0].numpy(), weights, rtol=1e-12)


def test_the_moons_are_divided(example: Example, tmp_path: Path) -> None:
    picture = tmp_path / "moons.png"
    boundary = example("moons").main(count=120, steps=120, resolution=24, picture=picture)
    assert boundary.accuracy > 0.95
    assert boundary.losses[0] == pytest.approx(math.log(2), abs=0.6)
    assert boundary.losses[-1] < 0.15
    assert boundary.probabilities.shape == (24, 24)
    # The upper left belongs to the upper moon, the lower right to the other.
    assert boundary.probabilities[-1, 0] > 0.9
    assert boundary.probabilities[0, -1] < 0.1
    assert picture.read_bytes().startswith(PNG)


def test_the_moons_lie_on_half_circles(example: Example) -> None:
    points, classes = example("moons").moons(40, noise=0.0, seed=3)
    upper, lower = points[classes == 1], points[classes == 0]
    np.testing.assert_allclose(np.hypot(*upper.T), 1, rtol=1e-15)
    np.testing.assert_allclose(np.hypot(lower[:, 0] - 1, lower[:, 1] - 0.5), 1, rtol=1e-15)
    assert (upper[:, 1] >= 0).all() and (lower[:, 1] <= 0.5).all()


def test_the_bigram_table_comes_close_to_the_counted_one(example: Example, tmp_path: Path) -> None:
    learned = example("makemore/bigram").main(steps=150, batch=512, limit=2000, picture=tmp_path / "bigram.png")
    assert learned.losses[0] == pytest.approx(math.log(27), abs=1e-5)
    assert learned.counted_loss < learned.learned_loss < learned.counted_loss + 0.12


def test_pairs_lead_into_a_name_and_out_of_it(example: Example) -> None:
    before, after = example("makemore/bigram").pairs_of(["ab", "c"])
    assert list(zip(before.tolist(), after.tolist(), strict=True)) == [(0, 1), (1, 2), (2, 0), (0, 3), (3, 0)]


def test_the_model_of_names_learns(example: Example, tmp_path: Path) -> None:
    picture = tmp_path / "loss.png"
    trained = example("makemore/mlp").main(**SMALL, picture=picture)
    assert [step for step, _ in trained.dev_losses] == [0, 20, 40, 60]
    assert trained.dev_losses[0][1] == pytest.approx(math.log(27), abs=0.05)
    assert trained.dev_losses[-1][1] < 2.95
    assert trained.train_loss < 2.9
    assert len(trained.step_losses) == 60
    assert len(trained.names) == 10
    assert set("".join(trained.names)) <= set("abcdefghijklmnopqrstuvwxyz")
    assert picture.read_bytes().startswith(PNG)


def test_the_model_of_names_is_the_same_every_time(example: Example, tmp_path: Path) -> None:
    """How many steps go into one call changes no bit."""
    first, second = (
        example("makemore/mlp").main(**{**SMALL, "steps": 24, "together": together}, picture=tmp_path / "loss.png")
        for together in (6, 12)
    )
    assert_same_bits(first.step_losses, second.step_losses)
    assert first.names == second.names
    assert first.dev_losses[-1] == second.dev_losses[-1]


def test_a_loss_is_measured_the_same_in_any_batches(example: Example) -> None:
    """Rows that select nothing fill the last batch up; only the order of the sum differs."""
    makemore = example("makemore/mlp")
    contexts, targets = example("makemore/names").windows(["ada", "grace", "emmy"], 3)
    language = {batch: makemore.record(4, 8, 2, batch, samples=2, seed=1) for batch in (5, 15, 64)}
    losses = [makemore.mean_loss(language[batch], contexts, targets, batch) for batch in language]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-6)


def test_contexts_slide_over_a_name(example: Example) -> None:
    contexts, targets = example("makemore/names").windows(["ab"], 3)
    assert contexts.tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 2]]
    assert targets.tolist() == [1, 2, 0]


@pytest.mark.slow
def test_the_demo_reaches_its_loss(example: Example, tmp_path: Path) -> None:
    trained = example("makemore/mlp").main(picture=tmp_path / "loss.png")
    assert trained.dev_losses[-1][1] < 2.35
    assert trained.train_loss < 2.35
