"""The optimizers once more, in float64 NumPy and straight from the papers: what ours are held against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Rule = Callable[[Array, Array, dict[str, Array], int, float], Array]


def sgd(momentum: float = 0.0, nesterov: bool = False) -> Rule:
    def step(weight: Array, gradient: Array, kept: dict[str, Array], t: int, rate: float) -> Array:
        kept["v"] = momentum * kept.get("v", np.zeros_like(weight)) + gradient
        return weight - rate * (gradient + momentum * kept["v"] if nesterov else kept["v"])

    return step


def adam(beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, decay: float = 0.0) -> Rule:
    def step(weight: Array, gradient: Array, kept: dict[str, Array], t: int, rate: float) -> Array:
        kept["m"] = beta1 * kept.get("m", np.zeros_like(weight)) + (1 - beta1) * gradient
        kept["v"] = beta2 * kept.get("v", np.zeros_like(weight)) + (1 - beta2) * gradient**2
        mean, square = kept["m"] / (1 - beta1**t), kept["v"] / (1 - beta2**t)
        return weight - rate * (mean / (np.sqrt(square) + epsilon) + decay * weight)

    return step


def lion(beta1: float = 0.9, beta2: float = 0.99, decay: float = 0.0) -> Rule:
    def step(weight: Array, gradient: Array, kept: dict[str, Array], t: int, rate: float) -> Array:
        m = kept.get("m", np.zeros_like(weight))
        direction = np.sign(beta1 * m + (1 - beta1) * gradient)
        kept["m"] = beta2 * m + (1 - beta2) * gradient
        return weight - rate * (direction + decay * weight)

    return step


def adafactor(beta2: float = 0.999, epsilon: float = 1e-30, limit: float = 1.0) -> Rule:
    def step(weight: Array, gradient: Array, kept: dict[str, Array], t: int, rate: float) -> Array:
        square = gradient**2 + epsilon
        if weight.ndim == 2:
            for name, axis in (("r", 1), ("c", 0)):
                mean = square.mean(axis)
                kept[name] = beta2 * kept.get(name, np.zeros_like(mean)) + (1 - beta2) * mean
            second = np.outer(kept["r"], kept["c"]) / kept["r"].mean()
        else:
            second = kept["v"] = beta2 * kept.get("v", np.zeros_like(weight)) + (1 - beta2) * square
        direction = gradient / np.sqrt(second / (1 - beta2**t))
        length = np.sqrt((direction**2).mean())
        return weight - rate * direction / max(1.0, float(length) / limit)

    return step
