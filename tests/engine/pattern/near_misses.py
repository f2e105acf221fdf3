"""What looks like a composition and is not quite one: each answers its results, and which kinds are not among it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from topos import Value, where

from .compositions import Sources

Miss = Callable[[Sources], Any]
MISSES: dict[str, tuple[Miss, set[str]]] = {}


def miss(name: str, *kinds: str) -> Callable[[Miss], Miss]:
    def keep(compose: Miss) -> Miss:
        MISSES[name] = compose, set(kinds)
        return compose

    return keep


# windows
def _windows(source: Sources, fill: float = 0.0) -> Value:
    x = source(2, 3, 6, 6).pad(2, 1, 8, fill).pad(3, 1, 8, fill)
    return x.unfold(3, 3).unfold(2, 3)


@miss("windows and their places in one axis", "window product")
def mixed(source: Sources) -> Value:
    windows = _windows(source).permute([0, 2, 5, 1, 3, 4])
    return windows.reshape([2 * 6 * 3, 3 * 3 * 6]) @ source(54, 4)


@miss("channels apart inside a part", "window product")
def part_apart(source: Sources) -> Value:
    windows = source(2, 4, 8).unfold(2, 4).permute([0, 2, 1, 3]).reshape([20, 8])
    return windows @ source(8, 2)


@miss("patches that are read again", "window product")
def patches_read_again(source: Sources) -> Any:
    windows = _windows(source).permute([0, 2, 4, 1, 3, 5]).reshape([72, 27])
    return windows @ source(27, 4), windows.sum()


@miss("windows that are observed", "window product")
def windows_observed(source: Sources) -> Any:
    windows = _windows(source)
    return windows.permute([0, 2, 4, 1, 3, 5]).reshape([72, 27]) @ source(27, 4), windows


@miss("a product without windows", "window product")
def no_windows(source: Sources) -> Value:
    return source(2, 3, 6, 6).pad(2, 1, 8).permute([0, 2, 3, 1]).reshape([96, 3]) @ source(3, 4)


@miss("three axes of windows", "window product")
def three_axes(source: Sources) -> Value:
    windows = source(4, 4, 4).unfold(2, 2).unfold(1, 2).unfold(0, 2)
    return windows.permute([0, 2, 4, 1, 3, 5]).reshape([27, 8]) @ source(8, 2)


@miss("a fold of something else", "window product input gradient")
def fold_alone(source: Sources) -> Value:
    return source(4, 3).tanh().fold(0, 3, 1, 1, 6)


@miss("a fold of a product over other axes", "window product input gradient")
def fold_of_batch(source: Sources) -> Value:
    return (source(4, 5) @ source(5, 3)).transpose().reshape([4, 3]).fold(0, 3, 1, 1, 6)


# pools
@miss("over one of two axes", "max pool")
def half_a_pool(source: Sources) -> Value:
    return source(2, 8, 6).unfold(2, 2, 2).unfold(1, 2, 2).max_along(4)


@miss("over the windows", "max pool")
def over_counts(source: Sources) -> Value:
    return source(2, 8).unfold(1, 2, 2).max_along(1)


@miss("over everything", "max pool")
def whole(source: Sources) -> Value:
    return source(2, 8).max_along(1)


@miss("a largest of sums", "max pool", "average pool")
def sum_and_largest(source: Sources) -> Value:
    return source(2, 8, 6).unfold(2, 2, 2).unfold(1, 2, 2).sum_along(4).max_along(2)


@miss("pool by a wrong divisor", "average pool")
def wrong_average(source: Sources) -> Value:
    return source(2, 8).unfold(1, 2, 2).sum_along(2) / 3.0


@miss("pool by a varying divisor", "average pool")
def varying_average(source: Sources) -> Value:
    return source(2, 8).unfold(1, 2, 2).sum_along(2) / source(2, 4)


@miss("a row of the pool is observed", "max pool")
def pool_observed(source: Sources) -> Any:
    rows = source(2, 8, 6).unfold(2, 2, 2).unfold(1, 2, 2).max_along(4)
    return rows.max_along(2), rows


# normalisation
def _normal(source: Sources, count: float = 6.0, squares: float = 6.0, axis: int = 1) -> tuple[Value, Value, Value]:
    x = source(6, 6)
    centred = x - (x.sum_along(axis) / count).broadcast_along(axis, 6)
    deviation = ((centred * centred).sum_along(axis) / squares + 1e-5).sqrt()
    return centred, deviation, x


@miss("mean by a wrong divisor", "layer norm", "batch norm training", "batch norm inference")
def wrong_mean(source: Sources) -> Value:
    centred, deviation, _ = _normal(source, count=5.0)
    return centred / deviation.broadcast_along(1, 6)


@miss("variance by a wrong divisor", "layer norm", "RMS norm")
def unbiased(source: Sources) -> Value:
    centred, deviation, _ = _normal(source, squares=5.0)
    return centred / deviation.broadcast_along(1, 6)


@miss("spread along another axis", "layer norm", "RMS norm", "batch norm training")
def other_axis(source: Sources) -> Value:
    centred, deviation, _ = _normal(source)
    return centred / deviation.broadcast_along(0, 6)


@miss("over the deviation of something else", "layer norm", "RMS norm")
def other_deviation(source: Sources) -> Value:
    centred, _, _ = _normal(source)
    _, deviation, _ = _normal(source)
    return centred / deviation.broadcast_along(1, 6)


@miss("variance without its root", "layer norm", "RMS norm")
def no_root(source: Sources) -> Value:
    centred, deviation, _ = _normal(source)
    return centred / (deviation * deviation).broadcast_along(1, 6)


@miss("a varying epsilon", "layer norm", "RMS norm")
def varying_epsilon(source: Sources) -> Value:
    x = source(6, 6)
    centred = x - x.mean_along(1).broadcast_along(1, 6)
    return centred / ((centred * centred).mean_along(1) + source(6)).sqrt().broadcast_along(1, 6)


@miss("epsilon outside the root", "layer norm", "RMS norm")
def epsilon_outside(source: Sources) -> Value:
    x = source(6, 6)
    centred = x - x.mean_along(1).broadcast_along(1, 6)
    return centred / ((centred * centred).mean_along(1).sqrt() + 1e-5).broadcast_along(1, 6)


@miss("centred and observed", "layer norm")
def centred_observed(source: Sources) -> Any:
    centred, deviation, _ = _normal(source)
    return centred / deviation.broadcast_along(1, 6), centred


@miss("centred and read again", "layer norm")
def centred_read_again(source: Sources) -> Any:
    centred, deviation, _ = _normal(source)
    return centred / deviation.broadcast_along(1, 6), centred.tanh()


@miss("squares that are read again", "RMS norm")
def squares_read_again(source: Sources) -> Any:
    x = source(4, 6)
    squares = x * x
    return x / (squares.mean_along(1) + 1e-6).sqrt().broadcast_along(1, 6), squares.sum()


@miss("statistics worked out otherwise", "batch norm inference", "layer norm")
def other_statistics(source: Sources) -> Value:
    x, mean, variance = source(6, 3), source(3).tanh(), source(3).exp()
    return (x - mean.broadcast_along(0, 6)) / (variance + 1e-5).sqrt().broadcast_along(0, 6)


@miss("statistics along the features", "batch norm inference")
def statistics_of_rows(source: Sources) -> Value:
    x, mean, variance = source(6, 3), source(6), source.tape.parameter(np.ones(6))
    return (x - mean.broadcast_along(1, 3)) / (variance + 1e-5).sqrt().broadcast_along(1, 3)


# losses
@miss("another branch than zero", "cross entropy")
def not_zero(source: Sources) -> Value:
    return -source.ids(6, 4).select(source(6, 4).log_softmax(1), 1.0).sum() / 6


@miss("labels multiplied", "cross entropy")
def multiplied(source: Sources) -> Value:
    return -(source(6, 4) * source(6, 4).log_softmax(1)).sum() / 6


@miss("summed over the rows", "cross entropy")
def summed_over_rows(source: Sources) -> Value:
    return -source.ids(6, 4).select(source(6, 4).log_softmax(1), 0.0).sum_along(0)


@miss("chances observed", "cross entropy")
def chances_observed(source: Sources) -> Any:
    chances = source(6, 4).log_softmax(1)
    return -source.ids(6, 4).select(chances, 0.0).sum() / 6, chances


@miss("chances of a softmax along two axes", "cross entropy")
def along_two_axes(source: Sources) -> Value:
    x = source(2, 3, 4)
    logarithm = x.exp().sum_along(2).sum_along(1).ln().broadcast_along(1, 3).broadcast_along(2, 4)
    return -source.ids(6, 4).reshape([2, 3, 4]).select(x - logarithm, 0.0).sum() / 6


def _picked(source: Sources, axis: int = 1) -> tuple[Value, Value]:
    """Scores, and those that labels pick."""
    x = source(4, 4)
    return x, source.ids(4, 4).select(x, 0.0).sum_along(axis)


@miss("labels that pick several scores", "cross entropy")
def several_labels(source: Sources) -> Value:
    x = source(4, 4)
    labels = source.tape.leaf(np.tril(np.ones((4, 4))))
    return (x.logsumexp(1) - labels.select(x, 0.0).sum_along(1)).sum() / 4


@miss("labels that pick rows", "cross entropy")
def labels_of_rows(source: Sources) -> Value:
    x = source(4, 4)
    return (x.logsumexp(1) - source.ids(4, 4).transpose().select(x, 0.0).sum_along(1)).sum() / 4


@miss("labels of parts of a row", "cross entropy")
def labels_of_parts(source: Sources) -> Value:
    x = source(3, 4)
    return (x.logsumexp(1) - source.ids(6, 2).reshape([3, 4]).select(x, 0.0).sum_along(1)).sum() / 3


@miss("a logarithm along the rows", "cross entropy")
def logarithm_along_rows(source: Sources) -> Value:
    x, picked = _picked(source)
    return (x.logsumexp(0) - picked).sum() / 4


@miss("both along the rows", "cross entropy")
def both_along_rows(source: Sources) -> Value:
    x, picked = _picked(source, 0)
    return (x.logsumexp(0) - picked).sum() / 4


@miss("scores picked from others", "cross entropy")
def other_scores(source: Sources) -> Value:
    _, picked = _picked(source)
    return (source(4, 4).logsumexp(1) - picked).sum() / 4


@miss("a logarithm added", "cross entropy")
def logarithm_added(source: Sources) -> Value:
    x, picked = _picked(source)
    return (x.logsumexp(1) + picked).sum() / 4


@miss("another filling than zero", "cross entropy")
def filled(source: Sources) -> Value:
    x = source(4, 4)
    return (x.logsumexp(1) - source.ids(4, 4).select(x, -1.0).sum_along(1)).sum() / 4


@miss("shifted by something else", "cross entropy")
def shifted_by_another(source: Sources) -> Value:
    x, picked = _picked(source)
    shift = source(4)
    total = (x - shift.broadcast_along(1, 4)).exp().sum_along(1)
    return (x.max_along(1) + total.ln() - picked).sum() / 4


@miss("picked scores observed", "cross entropy")
def picked_observed(source: Sources) -> Any:
    x, picked = _picked(source)
    return (x.logsumexp(1) - picked).sum() / 4, picked


# attention
def _attention(source: Sources, axis: int = -1, shift: bool = True) -> tuple[Value, Value, Value]:
    query, key, value = source(2, 5, 4), source(2, 5, 4), source(2, 5, 4)
    scores = query @ key.transpose() * 0.5
    if shift:
        return scores, scores.softmax(axis), value
    powers = scores.exp()
    return scores, powers / powers.sum_along(2).broadcast_along(2, 5), value


@miss("softmax along the queries", "attention")
def along_queries(source: Sources) -> Value:
    _, chances, value = _attention(source, axis=1)
    return chances @ value


@miss("softmax without its shift", "attention")
def unshifted(source: Sources) -> Value:
    _, chances, value = _attention(source, shift=False)
    return chances @ value


@miss("chances observed in attention", "attention")
def attention_observed(source: Sources) -> Any:
    _, chances, value = _attention(source)
    return chances @ value, chances


@miss("scores read again", "attention")
def scores_read_again(source: Sources) -> Any:
    scores, chances, value = _attention(source)
    return chances @ value, scores.max_along(2).tanh()


@miss("values by chances", "attention")
def other_order(source: Sources) -> Value:
    _, chances, value = _attention(source)
    return value.transpose() @ chances


@miss("chances over the sum of something else", "attention")
def other_sum(source: Sources) -> Value:
    query, key, value = source(2, 5, 4), source(2, 5, 4), source(2, 5, 4)
    scores = query @ key.transpose()
    powers = (scores - scores.max_along(2).stop().broadcast_along(2, 5)).exp()
    return powers / source(2, 5).broadcast_along(2, 5) @ value


@miss("shifted by the largest of something else", "attention")
def other_largest(source: Sources) -> Value:
    query, key, value = source(2, 5, 4), source(2, 5, 4), source(2, 5, 4)
    scores = query @ key.transpose()
    powers = (scores - source(2, 5, 5).max_along(2).stop().broadcast_along(2, 5)).exp()
    return powers / powers.sum_along(2).broadcast_along(2, 5) @ value


@miss("chances scaled once more", "attention")
def scaled_after(source: Sources) -> Value:
    _, chances, value = _attention(source)
    return (chances * 0.5) @ value


# joins
@miss("filled with plus zero", "concatenation")
def plus_zero(source: Sources) -> Value:
    return source(2, 3).pad(1, 0, 5) + source(2, 2).pad(1, 3, 5)


@miss("parts that overlap", "concatenation")
def overlapping(source: Sources) -> Value:
    return source(2, 3).pad(1, 0, 5, -0.0) + source(2, 3).pad(1, 2, 5, -0.0)


@miss("parts with a gap", "concatenation")
def with_a_gap(source: Sources) -> Value:
    return source(2, 2).pad(1, 0, 5, -0.0) + source(2, 2).pad(1, 3, 5, -0.0)


@miss("parts in another order", "concatenation")
def other_parts(source: Sources) -> Value:
    return source(2, 2).pad(1, 3, 5, -0.0) + source(2, 3).pad(1, 0, 5, -0.0)


@miss("parts along two axes", "concatenation")
def two_axes(source: Sources) -> Value:
    return source(2, 4).pad(0, 0, 4, -0.0) + source(4, 2).pad(1, 2, 4, -0.0)


@miss("a part that is observed", "concatenation")
def part_observed(source: Sources) -> Any:
    first = source(2, 3).pad(1, 0, 5, -0.0)
    return first + source(2, 2).pad(1, 3, 5, -0.0), first


@miss("picked by a mask", "embedding")
def picked_by_product(source: Sources) -> Value:
    return source.ids(4, 5) @ source(5, 3)


@miss("chosen", "embedding", "attention")
def chosen(source: Sources) -> Value:
    return where(source(2, 2).step(0.0), source(2, 2), 0.0)
