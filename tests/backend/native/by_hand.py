"""Compositions and their gradients by loops over places, in `f64`: what they mean, whoever computes them.

Each answers the value and the cotangent of each operand, given the operands and the cotangent of the value.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Answer = tuple[Array, list[Array]]


def convolution(
    x: Array, kernel: Array, seed: Array, steps: Sequence[int], dilations: Sequence[int], pads: Sequence[int]
) -> Answer:
    """Images `[n, channels, *extents]` by kernels `[filters, channels, *sizes]`."""
    value, x_slope, kernel_slope = np.zeros(seed.shape), np.zeros(x.shape), np.zeros(kernel.shape)
    for image, filters, *place in np.ndindex(*seed.shape):
        for channel, *offset in np.ndindex(*kernel.shape[1:]):
            at = [p * s + o * d - w for p, s, o, d, w in zip(place, steps, offset, dilations, pads, strict=True)]
            if all(0 <= index < extent for index, extent in zip(at, x.shape[2:], strict=True)):
                source, weight = (image, channel, *at), (filters, channel, *offset)
                value[(image, filters, *place)] += x[source] * kernel[weight]
                x_slope[source] += seed[(image, filters, *place)] * kernel[weight]
                kernel_slope[weight] += seed[(image, filters, *place)] * x[source]
    return value, [x_slope, kernel_slope]


def pool(x: Array, seed: Array, axes: Sequence[int], size: int, step: int, largest: bool) -> Answer:
    """Along one axis after another; ties share evenly, axis by axis."""
    stages = [x]
    for axis in axes:
        stages.append(_reduced(stages[-1], axis, size, step, largest))
    slope = seed
    for axis, before, after in zip(reversed(axes), stages[-2::-1], stages[:0:-1], strict=True):
        slope = _spread(before, after, slope, axis, size, step, largest)
    return stages[-1], [slope]


def _windows(x: Array, axis: int, size: int, step: int) -> Any:
    """Each place of the reduced array, and its window in the other."""
    count = (x.shape[axis] - size) // step + 1
    for place in product(*(range(count if at == axis else extent) for at, extent in enumerate(x.shape))):
        first = place[axis] * step
        yield place, [(*place[:axis], at, *place[axis + 1 :]) for at in range(first, first + size)]


def _reduced(x: Array, axis: int, size: int, step: int, largest: bool) -> Array:
    shape = [(x.shape[axis] - size) // step + 1 if at == axis else extent for at, extent in enumerate(x.shape)]
    result = np.zeros(shape)
    for place, window in _windows(x, axis, size, step):
        terms = [x[at] for at in window]
        result[place] = max(terms) if largest else sum(terms) / size
    return result


def _spread(before: Array, after: Array, seed: Array, axis: int, size: int, step: int, largest: bool) -> Array:
    slope = np.zeros(before.shape)
    for place, window in _windows(before, axis, size, step):
        hits = [at for at in window if not largest or before[at] == after[place]]
        for at in hits:
            slope[at] += seed[place] / len(hits)
    return slope


def norm(x: Array, gain: Array, bias: Array, seed: Array, epsilon: float, by_column: bool, centred: bool) -> Answer:
    """Each row, or each column, by its mean and deviation; gain and bias stand along the columns."""
    value, x_slope = np.zeros(x.shape), np.zeros(x.shape)
    gain_slope, bias_slope = np.zeros(gain.shape), np.zeros(bias.shape)
    for line in range(x.shape[1 if by_column else 0]):
        at: Any = (slice(None), line) if by_column else (line, slice(None))
        own = x[at] - (sum(x[at]) / len(x[at]) if centred else 0.0)
        deviation = (sum(term * term for term in own) / len(own) + epsilon) ** 0.5
        normal = own / deviation
        scale, shift = (gain[line], bias[line]) if by_column else (gain, bias)
        value[at] = normal * scale + shift
        inner = seed[at] * scale
        mean = sum(inner) / len(inner) if centred else 0.0
        x_slope[at] = (inner - mean - normal * (sum(inner * normal) / len(inner))) / deviation
        columns: Any = line if by_column else slice(None)
        gain_slope[columns] += sum(seed[at] * normal) if by_column else seed[at] * normal
        bias_slope[columns] += sum(seed[at]) if by_column else seed[at]
    return value, [x_slope, gain_slope, bias_slope]


def attention(query: Array, key: Array, content: Array, mask: Array, seed: Array, scale: float) -> Answer:
    """`[batch, places, width]`, one row of scores after another; what the mask does not keep has no weight."""
    value = np.zeros(seed.shape)
    slopes = [np.zeros(operand.shape) for operand in (query, key, content)]
    for batch, row in np.ndindex(*query.shape[:2]):
        kept = [at for at in range(key.shape[1]) if mask[row, at]]
        scores = [float(query[batch, row] @ key[batch, at]) * scale for at in kept]
        powers = [np.exp(score - max(scores)) for score in scores]
        chances = [power / sum(powers) for power in powers]
        for at, chance in zip(kept, chances, strict=True):
            value[batch, row] += chance * content[batch, at]
        wanted = [float(seed[batch, row] @ content[batch, at]) for at in kept]
        mean = sum(chance * slope for chance, slope in zip(chances, wanted, strict=True))
        for at, chance, slope in zip(kept, chances, wanted, strict=True):
            slopes[0][batch, row] += chance * (slope - mean) * scale * key[batch, at]
            slopes[1][batch, at] += chance * (slope - mean) * scale * query[batch, row]
            slopes[2][batch, at] += chance * seed[batch, row]
    return value, slopes


def entropy(scores: Array, ids: Array, seed: float, divisor: float) -> Answer:
    """The mean over rows of what the label's logarithm of a softmax lacks."""
    value, slope = np.zeros(()), np.zeros(scores.shape)
    for row, label in enumerate(ids):
        powers = [np.exp(score - max(scores[row])) for score in scores[row]]
        value -= np.log(powers[label] / sum(powers)) / divisor
        for column, power in enumerate(powers):
            slope[row, column] = (power / sum(powers) - (column == label)) * seed / divisor
    return value, [slope]
