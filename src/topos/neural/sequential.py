"""Modules one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from topos.graph import Value
from topos.neural.carried import expect_parts, inferred, merge, trained
from topos.neural.module import Module

Part = Module | Callable[[Any], Any]
"""A module, or a function of a value."""


class Sequential(Module):
    """Each part after the one before it: `Sequential(linear, Value.relu, norm)`, of modules and functions.

    `train(x)` answers the output and what all parts carry, `infer(x)` the output once training is over; both go into
    the parts that differ, and without such a part `express(x)` records the same. A Sequential inside another is gone
    through as if its parts stood there, however deep. `layers` are the parts. Raises `KinshipError` where two parts
    carry the same source.
    """

    def __init__(self, *layers: Part) -> None:
        expect_parts("Sequential", layers)
        self.layers = layers

    def express(self, x: Any) -> Any:
        for part in self._parts():
            x = part(x)
        return x

    def train(self, x: Any) -> tuple[Any, dict[Value, Value]]:
        carry: dict[Value, Value] = {}
        for part in self._parts():
            x, moved = trained(part, x)
            merge(carry, moved)
        return x, carry

    def infer(self, x: Any) -> Any:
        for part in self._parts():
            x = inferred(part, x)
        return x

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, position: int) -> Part:
        return self.layers[position]

    def _parts(self) -> Iterator[Part]:
        """The parts in order, with those of a Sequential inside in its place."""
        opened = [iter(self.layers)]
        while opened:
            for part in opened[-1]:
                if type(part) is Sequential:
                    opened.append(iter(part.layers))
                    break
                yield part
            else:
                opened.pop()
