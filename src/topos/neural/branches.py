"""Modules side by side: around a shortcut, or over the same input."""

from __future__ import annotations

from functools import reduce
from typing import Any

from topos.errors import SettingError
from topos.graph import Value
from topos.neural.carried import expect_parts, inferred, merge, trained
from topos.neural.module import Module
from topos.neural.options import extent
from topos.neural.sequential import Part
from topos.op import concat


class Residual(Module):
    """`shortcut(x) + body(x)`; without a `shortcut`, `x + body(x)` (He et al. 2016, "Deep residual learning").

    The shapes of both must be equal. `train` and `infer` go into both, as `Sequential` does.
    """

    def __init__(self, body: Part, shortcut: Part | None = None) -> None:
        expect_parts("Residual", [body] if shortcut is None else [body, shortcut])
        self.body = body
        self.shortcut = shortcut

    def express(self, x: Value) -> Value:
        return self._sum(x if self.shortcut is None else self.shortcut(x), self.body(x))

    def train(self, x: Value) -> tuple[Value, dict[Value, Value]]:
        carry: dict[Value, Value] = {}
        short = x
        if self.shortcut is not None:
            short, carry = trained(self.shortcut, x)
        long, moved = trained(self.body, x)
        merge(carry, moved)
        return self._sum(short, long), carry

    def infer(self, x: Value) -> Value:
        return self._sum(x if self.shortcut is None else inferred(self.shortcut, x), inferred(self.body, x))

    def _sum(self, short: Value, long: Value) -> Value:
        if short.shape != long.shape:
            raise self.refusal(f"wants a body that answers the shape of its shortcut, {short.shape}, got {long.shape}")
        return short + long


class Parallel(Module):
    """Every branch over the same input: their sum, left to right; or with `axis`, one after another along it.

    `train` and `infer` go into the branches, as `Sequential` does.
    """

    def __init__(self, *branches: Part, axis: int | None = None) -> None:
        if not branches:
            raise SettingError("Parallel: wants at least one branch")
        expect_parts("Parallel", branches)
        self.branches = branches
        self.along = None if axis is None else extent(self.refusal, "axis", axis, -64)  # no shape has more axes

    def express(self, x: Value) -> Value:
        return self._joined([branch(x) for branch in self.branches])

    def train(self, x: Value) -> tuple[Value, dict[Value, Value]]:
        carry: dict[Value, Value] = {}
        results: list[Any] = []
        for branch in self.branches:
            result, moved = trained(branch, x)
            merge(carry, moved)
            results.append(result)
        return self._joined(results), carry

    def infer(self, x: Value) -> Value:
        return self._joined([inferred(branch, x) for branch in self.branches])

    def _joined(self, results: list[Value]) -> Value:
        if self.along is not None:
            return concat(results, self.along)
        if any(result.shape != results[0].shape for result in results):
            shapes = ", ".join(str(result.shape) for result in results)
            raise self.refusal(f"wants branches of equal shapes to add, got {shapes}")
        return reduce(lambda left, right: left + right, results)
