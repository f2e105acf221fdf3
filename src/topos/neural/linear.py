"""The dense layer."""

from __future__ import annotations

from topos.element import Element
from topos.graph import Tape, Value
from topos.neural.init import zeros
from topos.neural.module import Module
from topos.neural.sources import Init, Sources


class Linear(Module):
    """`y = x @ weight + bias` over the last axis: `[..., inputs]` to `[..., outputs]`.

    `weight` is `[inputs, outputs]` and starts as `init` says, `bias` is `[outputs]` and starts at zero; without
    `bias` it is `None`. The leading axes are the rows of one product, so that a row has the same bits in any batch.
    Parameters of another `element` than the input's are cast where they are used: weights of f32 on a tape of bf16
    are master weights. Raises `ShapeError` where the last axis is not `inputs`.
    """

    def __init__(
        self,
        tape: Tape,
        inputs: int,
        outputs: int,
        init: Init,
        *,
        bias: bool = True,
        element: Element | None = None,
        name: str | None = None,
    ) -> None:
        sources = Sources(tape, "Linear", name)
        self.path = sources.path
        self.weight = sources.parameter("weight", [inputs, outputs], init, element)
        self.bias = sources.parameter("bias", [outputs], zeros, element) if bias else None

    def express(self, x: Value) -> Value:
        tape = x.tape
        weight = tape.resolve(self.weight).to(tape.element)
        inputs, outputs = weight.shape
        if not x.shape.rank or x.shape[-1] != inputs:
            raise self.refusal(f"wants a last axis of {inputs}, got {x.shape}")
        rows = x if x.shape.rank == 2 else x.reshape([x.shape.volume // inputs if inputs else 0, inputs])
        y = rows @ weight
        if self.bias is not None:
            bias = tape.resolve(self.bias).to(tape.element)
            y = y + bias.broadcast_along(0, y.shape[0])
        return y if x.shape.rank == 2 else y.reshape([*x.shape[:-1], outputs])
