"""Compositions as somebody may write them: each answers its result, over sources of small numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from topos import Tape, Value, concat, einsum, stack, where

Compose = Callable[["Sources"], Value]


class Sources:
    """A tape whose parameters are numbered, so that each form draws its own numbers, the same every time."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.drawn: list[Value] = []
        self.random = np.random.default_rng(5)

    def __call__(self, *shape: int) -> Value:
        self.drawn.append(self.tape.parameter(self.random.normal(size=shape)))
        return self.drawn[-1]

    def ids(self, count: int, vocab: int) -> Value:
        from topos import Tensor

        return self.tape.leaf(Tensor.selection(np.arange(count) % vocab, vocab))


# windows
def convolution(
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    kernel: tuple[int, int] = (3, 3),
    shape: tuple[int, int, int, int] = (2, 3, 9, 8),
) -> Compose:
    """Images, channels, height, width; terms by channel, row, column."""

    def compose(source: Sources) -> Value:
        images, channels, *_ = shape
        x, weights = source(*shape), source(4, channels, *kernel)
        for axis in (2, 3):
            extent, pad = x.shape[axis], padding[axis - 2]
            x = x.pad(axis, pad, extent + 2 * pad) if pad else x
        windows = x.unfold(3, kernel[1], stride[1], dilation[1]).unfold(2, kernel[0], stride[0], dilation[0])
        height, width = windows.shape[2], windows.shape[4]
        terms = windows.permute([0, 2, 4, 1, 3, 5]).reshape([images * height * width, channels * kernel[0] * kernel[1]])
        rows = terms @ weights.reshape([4, terms.shape[1]]).transpose()
        return rows.reshape([images, height, width, 4]).permute([0, 3, 1, 2])

    return compose


def channels_last(source: Sources) -> Value:
    x, weights = source(2, 7, 6, 3).pad(1, 1, 9).pad(2, 1, 8), source(27, 4)
    windows = x.unfold(1, 3).unfold(3, 3).permute([0, 1, 3, 2, 4, 5])
    return windows.reshape([2 * 7 * 6, 27]) @ weights


def one_axis(source: Sources) -> Value:
    x, weights = source(2, 3, 11), source(5, 12)
    return weights @ x.unfold(2, 4, 2).permute([1, 3, 0, 2]).reshape([12, 8])


def by_names(source: Sources) -> Value:
    return einsum("nchiwj,fcij->nfhw", source(2, 3, 6, 6).unfold(3, 2).unfold(2, 2), source(4, 3, 2, 2))


def one_picture(source: Sources) -> Value:
    windows = source(6, 5).unfold(0, 3).unfold(2, 3)
    return windows.permute([0, 2, 1, 3]).reshape([12, 9]) @ source(9, 1)


def by_channel(source: Sources) -> Value:
    """A kernel of its own for each channel."""
    x, weights = source(2, 3, 6, 6), source(3, 4, 1)
    windows = x.unfold(3, 2).unfold(2, 2).permute([1, 0, 2, 4, 3, 5]).reshape([3, 50, 4])
    return windows @ weights


def flat_pictures(source: Sources) -> Value:
    """What lies below the first pad is outside."""
    x = source(2, 36).reshape([2, 1, 6, 6])
    return x.unfold(3, 3).unfold(2, 3).permute([0, 2, 4, 1, 3, 5]).reshape([32, 9]) @ source(9, 2)


# pools
def largest(source: Sources) -> Value:
    return source(2, 3, 8, 6).unfold(3, 2, 2).unfold(2, 2, 2).max_along(5).max_along(3)


def largest_at_once(source: Sources) -> Value:
    windows = source(2, 3, 7, 7).unfold(3, 3, 2).unfold(2, 3, 2).permute([0, 1, 2, 4, 3, 5])
    return windows.reshape([2, 3, 3, 3, 9]).max_along(4)


def largest_padded(source: Sources) -> Value:
    x = source(2, 3, 7).pad(2, 1, 9, -np.inf)
    return x.unfold(2, 3, 2).max_along(3)


def averages(source: Sources) -> Value:
    total = source(2, 3, 8, 6).unfold(3, 2, 2).unfold(2, 2, 2).sum_along(5).sum_along(3)
    return total / 4.0


# normalisation
def layer(source: Sources) -> Value:
    x, axis, width = source(3, 4, 6), 2, 6
    centred = x - x.mean_along(axis).broadcast_along(axis, width)
    spread = (centred * centred).mean_along(axis)
    normal = centred / (spread + 1e-5).sqrt().broadcast_along(axis, width)
    return normal * source(6).broadcast_to(x.shape) + source(6).broadcast_to(x.shape)


def layer_plain(source: Sources) -> Value:
    x = source(4, 6)
    centred = x - x.mean_along(1).unsqueeze(1).broadcast_to([4, 6])
    return centred / ((centred**2).sum_along(1) / 6.0 + 1e-3).sqrt().broadcast_along(1, 6)


def layer_by_inverse(source: Sources) -> Value:
    x = source(4, 6)
    centred = x - x.mean_along(1).broadcast_along(1, 6)
    inverse = 1.0 / ((centred * centred).mean_along(1) + 1e-5).sqrt()
    return centred * inverse.broadcast_along(1, 6) * source(6).broadcast_along(0, 4)


def layer_written_twice(source: Sources) -> Value:
    x = source(4, 6)
    first, second = (x - x.mean_along(1).broadcast_along(1, 6) for _ in range(2))
    return second / ((first * first).mean_along(1) + 1e-5).sqrt().broadcast_along(1, 6)


def root_mean_square(source: Sources) -> Value:
    x = source(4, 6)
    return x / ((x * x).mean_along(1) + 1e-6).sqrt().broadcast_along(1, 6) * source(6).broadcast_along(0, 4)


def batch(source: Sources) -> Value:
    x = source(20, 3)
    centred = x - x.mean_along(0).broadcast_along(0, 20)
    normal = centred / ((centred * centred).mean_along(0) + 1e-5).sqrt().broadcast_along(0, 20)
    return normal * source(3).broadcast_along(0, 20) + source(3).broadcast_along(0, 20)


def batch_of_pictures(source: Sources) -> Value:
    x = source(2, 3, 4, 5)

    def mean(value: Value) -> Value:
        return value.sum_along(3).sum_along(2).sum_along(0) / 40.0

    def spread(value: Value) -> Value:
        return value.broadcast_along(0, 2).broadcast_along(2, 4).broadcast_along(3, 5)

    centred = x - spread(mean(x))
    normal = centred / spread((mean(centred * centred) + 1e-5).sqrt())
    return spread(source(3)) * normal + spread(source(3))


def batch_inference(source: Sources) -> Value:
    x, mean, variance = source(20, 3), source(3), source.tape.parameter([1.0, 2.0, 3.0])
    normal = (x - mean.broadcast_along(0, 20)) / (variance + 1e-5).sqrt().broadcast_along(0, 20)
    return normal * source(3).broadcast_along(0, 20) + source(3).broadcast_along(0, 20)


# losses
def mean_entropy(source: Sources) -> Value:
    return -source.ids(6, 4).select(source(6, 4).log_softmax(1), 0.0).sum() / 6


def entropy_of_rows(source: Sources) -> Value:
    return -source.ids(6, 4).select(source(6, 4).log_softmax(1), 0.0).sum_along(1)


def mean_of_rows(source: Sources) -> Value:
    return -source.ids(6, 4).select(source(6, 4).log_softmax(1), 0.0).sum_along(1).mean()


def mean_of_losses(source: Sources) -> Value:
    return (-source.ids(6, 4).select(source(6, 4).log_softmax(1), 0.0).sum_along(1)).mean()


def mean_of_terms(source: Sources) -> Value:
    return (-source.ids(6, 4).select(source(6, 4).log_softmax(1), 0.0)).sum() / 6


def entropy_of_chances(source: Sources) -> Value:
    return -source.ids(6, 4).select(source(6, 4).softmax(1).ln(), 0.0).sum() / 6


def logarithm(x: Value, how: str = "instruction") -> Value:
    """The logarithm of the sum of a row's powers."""
    if how == "instruction":
        return x.logsumexp(1)
    if how == "plain":
        return x.exp().sum_along(1).ln()
    largest = x.max_along(1).stop() if how == "stopped" else x.max_along(1)
    return largest + (x - largest.broadcast_along(1, x.shape[1])).exp().sum_along(1).ln()


def picked_less(how: str, written: Callable[[Value, Value], Value]) -> Compose:
    """A cross entropy out of the logarithms and the picked score of each row."""

    def compose(source: Sources) -> Value:
        x = source(6, 4)
        return written(logarithm(x, how), source.ids(6, 4).select(x, 0.0).sum_along(1))

    return compose


def entropy_apart(source: Sources) -> Value:
    x = source(6, 4)
    return (x.logsumexp(1).sum() - source.ids(6, 4).select(x, 0.0).sum()) / 6


def entropy_less_logarithm(source: Sources) -> Value:
    x = source(6, 4)
    chances = x - logarithm(x, "shifted").broadcast_along(1, 4)
    return -source.ids(6, 4).select(chances, 0.0).sum() / 6


def entropy_of_shifted(source: Sources) -> Value:
    x = source(6, 4)
    shifted = x - x.max_along(1).broadcast_along(1, 4)
    chances = shifted - shifted.exp().sum_along(1).ln().broadcast_along(1, 4)
    return -source.ids(6, 4).select(chances, 0.0).sum() / 6


def entropy_of_grouped_rows(source: Sources) -> Value:
    x = source(2, 3, 4)
    picked = source.ids(6, 4).reshape([2, 3, 4]).select(x, 0.0).sum_along(2)
    return (x.logsumexp(2) - picked).mean()


# attention
def attention(mask: str = "", scale: float = 0.5, divided: bool = False, transposed: bool = False) -> Compose:
    def compose(source: Sources) -> Value:
        query, value = source(2, 3, 5, 4), source(2, 3, 7, 4)
        keys = source(2, 3, 4, 7) if transposed else source(2, 3, 7, 4).transpose()
        scores = query @ keys
        scores = scores / scale if divided else scores * scale if scale != 1 else scores
        kept = source.tape.leaf(np.tril(np.ones((5, 7)), 2))
        if mask == "selected":
            scores = where(kept.broadcast_to(scores.shape), scores, -np.inf)
        elif mask == "added":
            scores = scores + source(5, 7).broadcast_to(scores.shape)
        elif mask == "full":
            scores = scores + source(2, 3, 5, 7)
        return scores.softmax(-1) @ value

    return compose


def attention_by_names(source: Sources) -> Value:
    query, key, value = source(2, 3, 5, 4), source(2, 3, 7, 4), source(2, 3, 7, 4)
    scores = einsum("bhqd,bhkd->bhqk", query, key) * 0.5
    kept = source.tape.leaf(np.tril(np.ones((5, 7)), 2)).broadcast_to(scores.shape)
    return einsum("bhqk,bhkd->bhqd", where(kept, scores, -np.inf).softmax(3), value)


# joins
def joined(source: Sources) -> Value:
    return concat([source(2, 3), source(2, 1), source(2, 4)], 1)


def stacked(source: Sources) -> Value:
    return stack([source(2, 3), source(2, 3)], 1)


def looked_up(source: Sources) -> Value:
    return source(5, 3).gather(source.ids(4, 5))


WINDOW = ["window product"]
ENTROPY = ["cross entropy"]
FORMS: dict[str, tuple[Compose, list[str]]] = {
    "convolution": (convolution(), WINDOW),
    "convolution, padded": (convolution(padding=(1, 2)), WINDOW),
    "convolution, far steps": (convolution(stride=(3, 4), kernel=(2, 3)), WINDOW),
    "convolution, dilated": (convolution(stride=(2, 1), dilation=(2, 3), padding=(2, 0), kernel=(3, 2)), WINDOW),
    "convolution, one picture, one place": (convolution(shape=(1, 1, 3, 3)), WINDOW),
    "convolution, one by one": (convolution(kernel=(1, 1)), WINDOW),
    "channels last": (channels_last, WINDOW),
    "one axis, kernel on the left": (one_axis, WINDOW),
    "einsum": (by_names, WINDOW),
    "no batch": (one_picture, WINDOW),
    "by channel": (by_channel, WINDOW),
    "flat pictures": (flat_pictures, WINDOW),
    "max pool": (largest, ["max pool"]),
    "max pool at once": (largest_at_once, ["max pool"]),
    "max pool, padded": (largest_padded, ["max pool"]),
    "average pool": (averages, ["average pool"]),
    "layer norm": (layer, ["layer norm"]),
    "layer norm, plain": (layer_plain, ["layer norm"]),
    "layer norm by an inverse": (layer_by_inverse, ["layer norm"]),
    "layer norm, written twice": (layer_written_twice, ["layer norm"]),
    "RMS norm": (root_mean_square, ["RMS norm"]),
    "batch norm": (batch, ["batch norm training"]),
    "batch norm of pictures": (batch_of_pictures, ["batch norm training"]),
    "batch norm inference": (batch_inference, ["batch norm inference"]),
    "cross entropy": (mean_entropy, ["cross entropy"]),
    "cross entropy of rows": (entropy_of_rows, ["cross entropy"]),
    "cross entropy of chances": (entropy_of_chances, ["cross entropy"]),
    "cross entropy, mean of rows": (mean_of_rows, ["cross entropy"]),
    "cross entropy, mean of losses": (mean_of_losses, ["cross entropy"]),
    "cross entropy, mean of terms": (mean_of_terms, ["cross entropy"]),
    "cross entropy by logsumexp": (picked_less("instruction", lambda log, score: (log - score).mean()), ENTROPY),
    "cross entropy by logarithms": (picked_less("shifted", lambda log, score: (log - score).mean()), ENTROPY),
    "cross entropy by stopped shifts": (picked_less("stopped", lambda log, score: (log - score).sum()), ENTROPY),
    "cross entropy by plain powers": (picked_less("plain", lambda log, score: log - score), ENTROPY),
    "cross entropy, a gain": (picked_less("instruction", lambda log, score: -(score - log).mean()), ENTROPY),
    "cross entropy, gains": (picked_less("instruction", lambda log, score: (-(score - log)).sum() / 6), ENTROPY),
    "cross entropy, gains of rows": (picked_less("shifted", lambda log, score: -(score - log)), ENTROPY),
    "cross entropy, sums apart": (entropy_apart, ENTROPY),
    "cross entropy, less a logarithm": (entropy_less_logarithm, ENTROPY),
    "cross entropy, shifted": (entropy_of_shifted, ENTROPY),
    "cross entropy of grouped rows": (entropy_of_grouped_rows, ENTROPY),
    "attention, einsum": (attention_by_names, ["attention"]),
    "attention": (attention(), ["attention"]),
    "attention, divided": (attention(divided=True, transposed=True), ["attention"]),
    "attention, unscaled": (attention(scale=1), ["attention"]),
    "attention, selected": (attention("selected"), ["attention"]),
    "attention, added": (attention("added"), ["attention"]),
    "attention, a mask for each head": (attention("full"), ["attention"]),
    "concatenation": (joined, ["concatenation"]),
    "stack": (stacked, ["concatenation"]),
    "embedding": (looked_up, ["embedding"]),
}


def recorded(compose: Compose, gradients: bool = False) -> Any:
    """The network, the composition's symbol, and with `gradients` a loss and the gradient of each source."""

    def record(tape: Tape) -> Any:
        source = Sources(tape)
        result = compose(source)
        if not gradients:
            return result
        weights = tape.parameter(np.random.default_rng(1).normal(size=result.shape))
        loss = (result * weights).sum()
        return result, loss, [gradient for _, gradient in tape.differentiate(loss, source.drawn)]

    return Tape.record(record)
