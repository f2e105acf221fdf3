"""Gradient descent."""

from __future__ import annotations

from typing import Any

from topos.errors import SettingError
from topos.neural.limits import expect_share
from topos.neural.optimizer import Numbers, Optimizer
from topos.tensor import Tensor


class Sgd(Optimizer):
    """`weight - rate * gradient`; with `momentum`, along `velocity = momentum * velocity + gradient` instead.

    With `nesterov` the step goes along `gradient + momentum * velocity`, of the velocity just made (Sutskever et al.
    2013, section 2, in the form that asks for the gradient where the weights are).

    >>> from topos import Sgd, Tape
    >>> network, weight = Tape.record(lambda tape: tape.parameter([1, 2]))
    >>> parameters = network.parameters()
    >>> Sgd().step(parameters, parameters.scale(2), rate=0.25).of(weight)
    Tensor([0.5, 1. ], f32)
    """

    def __init__(self, *, momentum: float = 0.0, nesterov: bool = False) -> None:
        self.momentum = expect_share("Sgd", "momentum", momentum)
        self.nesterov = nesterov
        if nesterov and not self.momentum:
            raise SettingError("Sgd: nesterov wants a momentum above 0")

    def start(self, weight: Tensor) -> dict[str, Tensor]:
        return {"velocity": weight.zero_like()} if self.momentum else {}

    def update(self, weight: Any, gradient: Any, kept: Numbers, common: Numbers) -> tuple[Any, dict[str, Any]]:
        rate = common["rate"].broadcast(weight.shape)
        if not self.momentum:
            return weight - gradient * rate, {}
        velocity = kept["velocity"] * self.momentum + gradient
        direction = gradient + velocity * self.momentum if self.nesterov else velocity
        return weight - direction * rate, {"velocity": velocity}
