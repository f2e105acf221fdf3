"""Dropout by a mask that is fed."""

from __future__ import annotations

from collections.abc import Iterable

from topos.element import Element
from topos.graph import Tape, Value
from topos.neural.init import constant
from topos.neural.module import Module
from topos.neural.sources import Sources


class Dropout(Module):
    """`x * mask` (Srivastava et al. 2014), where `mask` is an input of `shape` that is one wherever it is not fed.

    What is fed is drawn by the caller, with what is kept scaled up (`1 / (1 - rate)`) and the rest zero, so that a run
    is a function of its feeds. Unfed it is the identity, in every bit; `infer(x)` is `x` itself. Raises `ShapeError`
    where the shape of `x` is not that of the mask.
    """

    def __init__(
        self, tape: Tape, shape: Iterable[int], *, element: Element | None = None, name: str | None = None
    ) -> None:
        sources = Sources(tape, "Dropout", name)
        self.path = sources.path
        self.mask = sources.input("mask", shape, constant(1), element)

    def express(self, x: Value) -> Value:
        mask = self.resolve(self.mask, like=x)
        if x.shape != mask.shape:
            raise self.refusal(f"wants {mask.shape}, the shape of its mask, got {x.shape}")
        return x * mask

    def infer(self, x: Value) -> Value:
        return x
