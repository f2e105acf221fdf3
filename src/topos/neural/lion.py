"""Steps by the sign of a moment."""

from __future__ import annotations

from typing import Any

from topos.neural.limits import expect_not_negative, expect_share
from topos.neural.optimizer import Numbers, Optimizer
from topos.tensor import Tensor


class Lion(Optimizer):
    """`weight * (1 - rate * decay) - rate * sign(direction)` (Chen et al. 2023, algorithm 2).

    `direction = beta1 * first + (1 - beta1) * gradient`, and then `first = beta2 * first + (1 - beta2) * gradient`,
    from zero. The sign of a zero is zero and that of NaN is NaN. It keeps one table where Adam keeps two, and wants a
    rate three to ten times smaller.

    >>> from topos import Lion, Tape
    >>> network, weight = Tape.record(lambda tape: tape.parameter([1, 2, 3]))
    >>> parameters = network.parameters()
    >>> gradients = parameters.with_payloads({weight: [0.5, 0, -2]})
    >>> Lion().step(parameters, gradients, rate=0.25).of(weight)
    Tensor([0.75, 2.  , 3.25], f32)
    """

    def __init__(self, *, beta1: float = 0.9, beta2: float = 0.99, decay: float = 0.0) -> None:
        self.beta1 = expect_share(self.name, "beta1", beta1)
        self.beta2 = expect_share(self.name, "beta2", beta2)
        self.decay = expect_not_negative(self.name, "decay", decay)

    def start(self, weight: Tensor) -> dict[str, Tensor]:
        return {"first": weight.zero_like()}

    def common(self, counts: Numbers, rate: Any) -> dict[str, Any]:
        one = rate.one_like()
        rests = {"rest1": one - self.beta1, "rest2": one - self.beta2}  # of the decays as the element holds them
        return {"rate": rate, "shrink": one - rate * self.decay, **rests}

    def update(self, weight: Any, gradient: Any, kept: Numbers, common: Numbers) -> tuple[Any, dict[str, Any]]:
        rate, shrink, rest1, rest2 = (
            common[part].broadcast(weight.shape) for part in ("rate", "shrink", "rest1", "rest2")
        )
        direction = kept["first"] * self.beta1 + gradient * rest1
        first = kept["first"] * self.beta2 + gradient * rest2
        return weight * shrink - _sign(direction) * rate, {"first": first}


def _sign(x: Any) -> Any:
    """One, zero or minus one; NaN of NaN, which alone is not at least itself."""
    return x.step(x).select(x.step(0.0) - (-x).step(0.0), x)
