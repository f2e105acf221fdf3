"""Steps by the first and second moments of the gradient."""

from __future__ import annotations

from typing import Any

from topos.neural.limits import expect_not_negative, expect_share
from topos.neural.optimizer import Numbers, Optimizer
from topos.tensor import Tensor


class Adam(Optimizer):
    """`weight - rate * mean / (sqrt(square) + epsilon)` (Kingma and Ba 2015, algorithm 1).

    `first = beta1 * first + (1 - beta1) * gradient` and `second = beta2 * second + (1 - beta2) * gradient ** 2` start
    at zero; `mean = first / (1 - beta1 ** t)` and `square = second / (1 - beta2 ** t)` correct for that at step `t`.
    The powers are carried and multiplied once a step, and both corrections are worked out once a step for all
    weights: `weight - first / (sqrt(second) * scale + epsilon) * length`, with `scale = 1 / sqrt(1 - power2)` and
    `length = rate / (1 - power1)`.

    >>> from topos import Adam, Tape
    >>> network, weight = Tape.record(lambda tape: tape.parameter([1, 2]))
    >>> parameters = network.parameters()
    >>> Adam().step(parameters, parameters.scale(2), rate=0.25).of(weight)
    Tensor([0.75, 1.75], f32)
    """

    def __init__(self, *, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> None:
        called = type(self).__name__
        self.beta1 = expect_share(called, "beta1", beta1)
        self.beta2 = expect_share(called, "beta2", beta2)
        self.epsilon = expect_not_negative(called, "epsilon", epsilon)

    def start(self, weight: Tensor) -> dict[str, Tensor]:
        return {"first": weight.zero_like(), "second": weight.zero_like()}

    def counts(self) -> dict[str, float]:
        return {"power1": 1.0, "power2": 1.0}

    def common(self, counts: Numbers, rate: Any) -> dict[str, Any]:
        one = rate.one_like()
        power1, power2 = counts["power1"] * self.beta1, counts["power2"] * self.beta2
        scale, length = one / (one - power2).sqrt(), rate / (one - power1)
        rests = {"rest1": one - self.beta1, "rest2": one - self.beta2}  # of the decays as the element holds them
        return {"power1": power1, "power2": power2, "scale": scale, "length": length, **rests}

    def update(self, weight: Any, gradient: Any, kept: Numbers, common: Numbers) -> tuple[Any, dict[str, Any]]:
        parts = ("rest1", "rest2", "scale", "length")
        rest1, rest2, scale, length = (common[part].broadcast(weight.shape) for part in parts)
        first = kept["first"] * self.beta1 + gradient * rest1
        second = kept["second"] * self.beta2 + gradient * gradient * rest2
        moved = self.decayed(weight, common) - first / (second.sqrt() * scale + self.epsilon) * length
        return moved, {"first": first, "second": second}

    def decayed(self, weight: Any, common: Numbers) -> Any:
        """The weight before its step: as it is."""
        return weight


class AdamW(Adam):
    """Adam with weights that decay on their own: `weight * (1 - rate * decay)` before its step.

    The decay is decoupled from the gradient (Loshchilov and Hutter 2019, algorithm 2); `step_where` leaves biases and
    norms out of it.

    >>> from topos import AdamW, Tape
    >>> network, weight = Tape.record(lambda tape: tape.parameter([1, 2]))
    >>> parameters = network.parameters()
    >>> AdamW(decay=0.5).step(parameters, parameters.scale(0), rate=0.5).of(weight)
    Tensor([0.75, 1.5 ], f32)
    """

    def __init__(self, *, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, decay: float = 0.01) -> None:
        super().__init__(beta1=beta1, beta2=beta2, epsilon=epsilon)
        self.decay = expect_not_negative(type(self).__name__, "decay", decay)

    def common(self, counts: Numbers, rate: Any) -> dict[str, Any]:
        return {**super().common(counts, rate), "shrink": rate.one_like() - rate * self.decay}

    def decayed(self, weight: Any, common: Numbers) -> Any:
        return weight * common["shrink"].broadcast(weight.shape)
