"""The dense layer, and several of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from topos.element import Element
from topos.graph import Tape, Value
from topos.neural.activation import Activation
from topos.neural.carried import expect_parts
from topos.neural.module import Module
from topos.neural.options import bias_start, extent
from topos.neural.rows import expect_width, flat, unflat
from topos.neural.sources import Init, Sources


class Linear(Module):
    """`y = x @ weight + bias` over the last axis: `[..., inputs]` to `[..., outputs]`.

    `weight` is `[inputs, outputs]` and starts as `init` says. `bias` is `[outputs]` and starts at zero, or as an
    initialiser of its own says that is given for it; with `bias=False` it is `None`. The leading axes are the rows of
    one product, so that a row has the same bits in any batch. Parameters of another `element` than the input's are cast
    where they are used: weights of f32 on a tape of bf16 are master weights. Raises `ShapeError` where the last axis is
    not `inputs`.
    """

    def __init__(
        self,
        tape: Tape,
        inputs: int,
        outputs: int,
        init: Init,
        *,
        bias: bool | Init = True,
        element: Element | None = None,
        name: str | None = None,
    ) -> None:
        sources = Sources(tape, "Linear", name)
        self.path = sources.path
        inputs, outputs = (extent(self.refusal, "extents", given, 0) for given in (inputs, outputs))
        starts = bias_start(self.refusal, bias)
        self.weight = sources.parameter("weight", [inputs, outputs], init, element)
        self.bias = sources.parameter("bias", [outputs], starts, element) if starts else None

    def express(self, x: Value) -> Value:
        return self.narrowed(x, 0, None)

    def narrowed(self, x: Value, start: int, count: int | None) -> Value:
        """Some outputs alone, `count` from `start`, with the bits that they have among all of them.

        `[..., inputs]` to `[..., count]`; without a count to all `outputs`. Raises `ShapeError` for others than there
        are.
        """
        weight = self.resolve(self.weight, like=x)
        expect_width(self.refusal, x, weight.shape[0])
        y = flat(x) @ (weight if count is None else weight.narrow(1, start, count))
        if self.bias is not None:
            bias = self.resolve(self.bias, like=x)
            y = y + (bias if count is None else bias.narrow(0, start, count)).broadcast_along(0, y.shape[0])
        return unflat(y, like=x)


class Mlp(Module):
    """Dense layers with an activation between each two: `[..., extents[0]]` to `[..., extents[-1]]`.

    `activation` is an `Activation`, the name of one, or a function of a value. None follows the last layer. `layers`
    are the dense ones. Raises `ShapeError` for fewer than two extents.
    """

    def __init__(
        self,
        tape: Tape,
        extents: Sequence[int],
        activation: Activation | str | Callable[[Value], Value],
        init: Init,
        *,
        bias: bool | Init = True,
        element: Element | None = None,
        name: str | None = None,
    ) -> None:
        sources = Sources(tape, "Mlp", name)
        self.path = sources.path
        if not isinstance(extents, Sequence | np.ndarray) or len(extents) < 2:
            raise self.refusal(f"wants two extents or more, got {extents!r}")
        self.activation = Activation(activation) if isinstance(activation, str) else activation
        expect_parts(self.called, [self.activation])
        self.layers = [
            Linear(tape, inputs, outputs, init, bias=bias, element=element, name=sources.called(f"layers.{position}"))
            for position, (inputs, outputs) in enumerate(zip(extents, extents[1:], strict=False))
        ]

    def express(self, x: Value) -> Value:
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)  # type: ignore[no-any-return]
