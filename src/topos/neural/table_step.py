"""The computed reading of an optimizer: slot by slot over tensors, with what the slots share worked out once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from topos.errors import KinshipError
from topos.graph import Symbol
from topos.neural.rule import rate_in, stepped, working
from topos.tensor import Tensor

if TYPE_CHECKING:
    from topos.neural.optimizer import Optimizer

Kept = Mapping[str, Tensor]


class TableStep:
    """One step over tables; `slots` is what is kept for each after it, and stands for itself until the step is whole.

    Each slot has counts of its own, since it may take part in some steps only; those that agree share what is worked
    out of them.
    """

    def __init__(self, optimizer: Optimizer, slots: Mapping[Symbol, Kept], rate: Any) -> None:
        self.slots = dict(slots)
        self._optimizer = optimizer
        self._rate = rate
        self._families = {symbol.family for symbol in slots}
        self._shared: dict[Any, tuple[Optimizer, Kept]] = {}  # with each rule, so that no other gets its id

    def of(self, symbol: Symbol, weight: Tensor, gradient: Tensor) -> Tensor:
        """The weight of one slot after the step."""
        rule = self._optimizer.rule(symbol)
        if rule is None:
            return weight
        counts, kept = self._before(rule, symbol, weight)
        common = self._common(rule, counts, weight)
        after: Tensor
        after, left = stepped(rule, weight, gradient, kept, common, str(symbol))
        self.slots[symbol] = {**left, **{name: common[name] for name in counts}}
        return after

    def _before(self, rule: Optimizer, symbol: Symbol, weight: Tensor) -> tuple[Kept, Kept]:
        """The counts of a slot, and what is kept beside it; what both start from where it was never stepped."""
        wide = working(weight)
        start, counts = rule.start(weight), rule.counts()
        if self._families - {symbol.family}:
            raise KinshipError(f"{rule.name}: what it remembers belongs to another spec")
        known = self.slots.get(symbol)
        if known is None:
            return {name: Tensor(number, wide) for name, number in counts.items()}, start
        if known.keys() != start.keys() | counts.keys():
            wanted = ", ".join(map(repr, (*start, *counts))) or "nothing"
            found = ", ".join(map(repr, known)) or "nothing"
            raise KinshipError(f"{rule.name}: {symbol} wants {wanted} in the tables, which have {found}")
        return {name: known[name] for name in counts}, {name: known[name] for name in start}

    def _common(self, rule: Optimizer, counts: Kept, weight: Tensor) -> Kept:
        wide = working(weight)
        key = id(rule), wide, *(tensor.numpy().tobytes() for tensor in counts.values())
        if key not in self._shared:
            self._shared[key] = rule, rule.common(counts, rate_in(self._optimizer, self._rate, wide))
        return self._shared[key][1]
