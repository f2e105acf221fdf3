"""Activations by name, with the gain that keeps the scale of what passes them."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import NamedTuple

from topos.errors import SettingError
from topos.graph import Value
from topos.neural.limits import expect_number
from topos.neural.module import Module


class _Kind(NamedTuple):
    function: Callable[[Value], Value]
    gain: float


def _identity(x: Value) -> Value:
    return x


KINDS = {
    "identity": _Kind(_identity, 1.0),
    "relu": _Kind(Value.relu, sqrt(2)),
    "tanh": _Kind(Value.tanh, 5 / 3),
    "sigmoid": _Kind(Value.sigmoid, 1.0),
    "gelu": _Kind(Value.gelu, 1.5335304412),
    "gelu_tanh": _Kind(Value.gelu_tanh, 1.5335805217),
    "silu": _Kind(Value.silu, 1.6765324703),
    "softplus": _Kind(Value.softplus, 1.0),
}


class Activation(Module):
    """A function of each number, by name: `Activation("gelu")`.

    The names are those of the methods that record them: relu, tanh, sigmoid, gelu (exact, by `erf`), gelu_tanh, silu,
    softplus; and identity, and leaky_relu, which multiplies what is below 0 by `slope`.

    `gain` is what an initialiser multiplies its deviation by, where the layer before it should keep its scale:
    `sqrt(2)` for relu and `sqrt(2 / (1 + slope ** 2))` for leaky_relu (He et al. 2015, "Delving deep into rectifiers",
    section 2.2), the customary `5 / 3` for tanh and 1 for identity, sigmoid and softplus. For gelu and silu it is that
    of He et al. too: the inverse root of the mean of `f(z) ** 2` over a standard normal `z`.

    >>> Activation("relu").gain ** 2 - 2 < 1e-15, Activation("tanh")
    (True, Activation(tanh))
    """

    def __init__(self, kind: str, *, slope: float = 0.01) -> None:
        if not isinstance(kind, str) or (kind != "leaky_relu" and kind not in KINDS):
            raise SettingError(f"Activation: none is called {kind!r}; there are {', '.join([*KINDS, 'leaky_relu'])}")
        self.kind = kind
        self.slope = expect_number("Activation", "slope", slope)

    @property
    def gain(self) -> float:
        """What an initialiser multiplies its deviation by."""
        return KINDS[self.kind].gain if self.kind in KINDS else sqrt(2 / (1 + self.slope * self.slope))

    def express(self, x: Value) -> Value:
        if self.kind in KINDS:
            return KINDS[self.kind].function(x)
        return x.step(0.0).select(x, x * self.slope)

    def __repr__(self) -> str:
        return f"Activation({self.kind})"
