"""A training step as a function from weights to weights, in another engine's hands for several steps."""

from typing import Any

import numpy as np
import pytest

from topos import Tape

RNG = np.random.default_rng(3)
KERNEL, WEIGHTS = RNG.normal(size=(4, 9)), RNG.normal(size=(36, 10)) / 6
PICTURES, LABELS = RNG.normal(size=(8, 8, 8)).astype(np.float32), np.array([1, 9, 0, 3, 3, 7, 2, -1], np.int32)


def step(tape: Tape) -> Any:
    """A convolution, a pool, a layer and a loss over labels of which one is absent."""
    kernel, weights = tape.parameter(KERNEL), tape.parameter(WEIGHTS)
    x, labels = tape.input(shape=[8, 8, 8], name="x"), tape.selection([8], vocab=10, absent=-1, name="labels")
    terms = x.unfold(2, 3).unfold(1, 3).permute([0, 1, 3, 2, 4]).reshape([288, 9])
    hidden = (terms @ kernel.transpose()).reshape([8, 6, 6, 4]).permute([0, 3, 1, 2]).relu()
    pooled = hidden.unfold(3, 2, 2).unfold(2, 2, 2).max_along(5).max_along(3)
    scores = pooled.reshape([8, 36]) @ weights
    loss = -labels.select(scores.log_softmax(1), 0.0).sum() / 7
    slopes = tape.differentiate(loss, [kernel, weights])
    return loss, {source: source - 0.02 * slope for source, slope in slopes}


@pytest.mark.parametrize("raises", [True, False])
def test_a_training_step_trains_elsewhere(engines: Any, raises: bool) -> None:
    network, (loss, carry) = Tape.record(step)
    plan = network.entry(loss).carry(carry).lower()
    text = plan.emit_stablehlo(raises=raises)
    state, feeds = network.state(), {"x": PICTURES, "labels": LABELS}
    held = [KERNEL.astype(np.float32), WEIGHTS.astype(np.float32)]
    losses = []
    for _ in range(5):
        expected = plan.advance(state, feeds).of(loss).numpy()
        found, *held = engines.run("compile", text, [*held, PICTURES, LABELS])
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        losses.append(float(found))
    assert losses[-1] < 0.6 * losses[0]
    for source, array in zip(carry, held, strict=True):
        np.testing.assert_allclose(array, state.of(source).numpy(), rtol=1e-4, atol=1e-6)
