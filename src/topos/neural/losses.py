"""Losses: rank-0 means over everything that counts. They compute over tensors and record over values, like methods."""

from __future__ import annotations

from typing import Any, TypeVar

from topos.errors import ShapeError
from topos.graph import Symbol, Value
from topos.neural.limits import expect_part, expect_positive
from topos.neural.options import operand, refusing
from topos.op import Composites, Recordable
from topos.shape import Shape
from topos.tensor import Tensor

Operand = TypeVar("Operand", bound=Composites)


def cross_entropy(logits: Operand, target: Any, *, weights: Any = None, smoothing: float = 0.0) -> Operand:
    """The mean over rows of `-sum(t * log_softmax(logits))`, along the last axis of `[..., classes]`.

    `target` is a selection of as many rows of `[classes]` as the logits have, or probabilities `t` of the logits'
    shape. A row whose id is absent does not count; with no row that counts the mean is NaN. A class that is masked (a
    logit of `-inf`) adds nothing where `t` is zero.

    `weights`, `[classes]`, multiply the terms of each class, and the mean divides by `sum(t * weights)`. `smoothing`
    makes `t` into `(1 - smoothing) * t + smoothing / classes` (Szegedy et al., "Rethinking the inception architecture
    for computer vision", 2016), so that no logit may be `-inf` then.

    Terms are summed along the classes of each row, and those sums over the rows. Raises `ShapeError` for shapes that do
    not fit, `SettingError` for a `smoothing` outside `[0, 1]`.

    >>> cross_entropy(Tensor([[2.0, 0.0], [0.0, 0.0]]), Tensor.selection([0, 1], 2))
    Tensor(0.4100376, f32)
    """
    smoothing = expect_part("cross_entropy", "smoothing", smoothing)
    operand(refusing("cross_entropy"), logits)
    if not logits.shape.rank:
        raise ShapeError("cross_entropy: wants logits [..., classes], got []")
    target = _target(logits, target)
    weights = None if weights is None else _class_weights(logits, weights)
    classes, is_selection = logits.shape[-1], target.element is None
    scores = logits.reshape([_volume(logits), classes]) if is_selection and logits.shape.rank != 2 else logits
    target, weights = _placed(logits, target), None if weights is None else _placed(logits, weights).to(logits.element)
    present = _present(scores, target) if is_selection and target.absent is not None else None
    count = _count(scores, target, weights, present)  # before the scores are read, so that one loop can do with them
    chances = scores.log_softmax(-1)
    if weights is not None:
        spread = weights.broadcast_to(scores.shape)
        chances = spread.select(spread * chances, 0.0)
    total = target.select(chances if is_selection else target * chances, 0.0).sum_along(-1).sum()
    if smoothing:
        every = chances.sum_along(-1)
        every = every if present is None else present.select(every, 0.0)
        total = total * (1.0 - smoothing) + every.sum() * (smoothing / max(1, classes))
    loss: Operand = -total / (total.counted(_volume(scores)) if count is None else count)
    return loss


def binary_cross_entropy(logits: Operand, target: Any) -> Operand:
    """The mean of `-(t * ln(p) + (1 - t) * ln(1 - p))` where `p = sigmoid(logits)`, for targets `t` in `[0, 1]`.

    Each term is `w * |x| + log1p(exp(-|x|))`, where `w` is `1 - t` for `x >= 0` and else `t`: nothing overflows and
    nothing cancels, and an infinite logit that is right costs nothing. Raises `ShapeError` where shapes differ.

    >>> binary_cross_entropy(Tensor([3.0, -200.0]), Tensor([1.0, 1.0]))
    Tensor(100.02429, f32)
    """
    target = _like(logits, target, "binary_cross_entropy")
    positive = logits.step(logits.zero_like())
    distance = positive.select(logits, -logits)
    wrong = positive.select(logits.one_like() - target, target)
    loss: Operand = (wrong.select(wrong * distance, 0.0) + (-distance).exp().log1p()).mean()
    return loss


def mean_squared_error(prediction: Operand, target: Any) -> Operand:
    """The mean of `(prediction - target)**2`. Raises `ShapeError` where shapes differ: nothing is spread.

    >>> mean_squared_error(Tensor([1.0, 2.0]), Tensor([1.0, 4.0]))
    Tensor(2., f32)
    """
    error: Operand = prediction - _like(prediction, target, "mean_squared_error")
    return (error * error).mean()


def mean_absolute_error(prediction: Operand, target: Any) -> Operand:
    """The mean of `|prediction - target|`. Raises `ShapeError` where shapes differ: nothing is spread."""
    error: Operand = prediction - _like(prediction, target, "mean_absolute_error")
    return error.abs().mean()


def huber(prediction: Operand, target: Any, delta: float = 1.0) -> Operand:
    """The mean of `m * (|e| - m / 2)` with `m = min(|e|, delta)`: `e * e / 2` up to `delta`, then a line.

    `e` is `prediction - target` (Huber, "Robust estimation of a location parameter", 1964). Raises `ShapeError` where
    shapes differ, `SettingError` for a `delta` that is not positive.
    """
    delta = expect_positive("huber", "delta", delta)
    error: Operand = prediction - _like(prediction, target, "huber")
    distance = error.abs()
    held = distance.minimum(delta)
    return (held * (distance - held / 2)).mean()


def _beside(x: Any, other: Any) -> Any:
    """What stands beside `x` as what has a shape: a symbol as its value, numbers as a tensor of its element."""
    if isinstance(other, Symbol) and isinstance(x, Value):
        return x.tape.resolve(other)
    return other if isinstance(other, Recordable) else Tensor(other, x.element)


def _placed(x: Any, other: Any) -> Any:
    """What stands beside `x`, on its tape where `x` is recorded: numbers as one leaf, however often they are used."""
    return x.tape.leaf(other, element=x.element) if isinstance(x, Value) and isinstance(other, Tensor) else other


def _like(prediction: Any, target: Any, rule: str) -> Any:
    operand(refusing(rule), prediction)
    target = _beside(prediction, target)
    if target.shape != prediction.shape:
        raise ShapeError(f"{rule}: shapes must be equal, got prediction {prediction.shape} and target {target.shape}")
    return _placed(prediction, target)


def _target(logits: Any, target: Any) -> Any:
    """A selection of as many rows as there are, or probabilities for each place."""
    target = _beside(logits, target)
    rows = Shape((_volume(logits), logits.shape[-1])) if target.element is None else logits.shape
    if target.shape != rows:
        raise ShapeError(
            f"cross_entropy: wants probabilities of {logits.shape} like the logits, or a selection of as many rows "
            f"(tape.selection); got {target.shape}"
        )
    return target


def _class_weights(logits: Any, weights: Any) -> Any:
    weights = _beside(logits, weights)
    if weights.shape != logits.shape[-1:]:
        raise ShapeError(f"cross_entropy: wants weights [{logits.shape[-1]}], one for each class, got {weights.shape}")
    return weights


def _volume(logits: Any) -> int:
    """How many rows of classes there are."""
    return int(logits.shape.without_axis(-1).volume)


def _count(scores: Any, target: Any, weights: Any, present: Any) -> Any:
    """What the sum is divided by, of rank 0, where it is not the number of rows."""
    if weights is None:
        return None if present is None else present.sum()
    if target.element is None:
        return weights.gather(target).sum()
    return (target * weights.broadcast_to(scores.shape)).sum()


def _present(scores: Any, target: Any) -> Any:
    """One for each row that counts, zero for one that does not: `[rows]`."""
    return Tensor.filled(scores.shape[-1:], 1, scores.element).gather(target)
