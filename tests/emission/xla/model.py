"""A small model that trains, over every element, and what is close to its numbers."""

from typing import Any

import numpy as np

from topos import Tape, bf16, f32, f64

ELEMENTS = {"f32": f32, "f64": f64, "bf16": bf16}
ULP = {"f32": 2.0**-22, "f64": 2.0**-50, "bf16": 2.0**-7}
RNG = np.random.default_rng(5)
TABLE, WEIGHTS = RNG.normal(size=(5, 8)), RNG.normal(size=(16, 5)) / 4
IDS = RNG.integers(0, 5, size=(6, 4, 2))
LABELS = np.where(IDS[:, :, 0] == 3, -1, IDS[:, :, 0])


def model(tape: Tape) -> Any:
    """A table of letters, a layer, a loss over labels of which some are absent, and one step down its slope."""
    table, weights = tape.parameter(TABLE, name="table"), tape.parameter(WEIGHTS, name="weights")
    rate = tape.input(0.5, name="rate")
    letters = tape.selection([4, 2], vocab=5, name="letters")
    labels = tape.selection([4], vocab=5, absent=-1, name="labels")
    scores = table.gather(letters).reshape([4, 16]).tanh() @ weights
    loss = -labels.select(scores.log_softmax(1), 0.0).sum() / 4
    slopes = tape.differentiate(loss, [table, weights])
    return loss, labels, {at: at - rate.broadcast(at.shape) * slope for at, slope in slopes}


def recorded(element: str = "f32") -> Any:
    network, (loss, labels, carry) = Tape.record(model, ELEMENTS[element])
    return network, loss, labels, carry, network.entry(loss).carry(carry).lower()


def feeds(step: Any = 0) -> dict[str, Any]:
    return {"letters": IDS[step], "labels": LABELS[step]}


def close(found: Any, expected: Any, element: str = "f32", steps: int = 1) -> None:
    """Of the same form, and within a few roundings of the largest number."""
    assert found.element is expected.element and found.shape == expected.shape
    left, right = (np.asarray(tensor.numpy(), np.float64) for tensor in (found, expected))
    bound = 8 * steps * ULP[element] * (1 + np.max(np.abs(right), initial=0.0))
    np.testing.assert_allclose(left, right, rtol=0, atol=bound)
