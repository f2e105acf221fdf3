"""The recorded reading of an optimizer: one step as nodes, and what it remembers as inputs that an entry carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from topos.element import Element
from topos.errors import KinshipError
from topos.graph import Adjoints, Node, Tape, Value
from topos.neural.rule import live_pairs, rate_in, stepped, widest, working
from topos.tensor import Tensor

if TYPE_CHECKING:
    from topos.neural.optimizer import Optimizer

Carry = dict[Value, Value]


def recorded_step(
    optimizer: Optimizer, tape: Tape, adjoints: Adjoints, rate: float, name: str | None
) -> tuple[Value, Carry]:
    """The rate, and what replaces what. Parameters are stepped in recording order, whatever order they stand in."""
    if not isinstance(name, str | None):
        raise KinshipError(f"{optimizer.name}: wants a text for its name, got {name!r}")
    gradients = dict(live_pairs(tape, adjoints, optimizer.name))
    return _Recorder(optimizer, tape, list(gradients), rate, name).step(gradients)


class _Recorder:
    """Writes one step; every number that weights share is recorded once for each rule and working element."""

    def __init__(self, optimizer: Optimizer, tape: Tape, weights: list[Value], rate: float, name: str | None) -> None:
        self._tape = tape
        self._name = optimizer.name.lower() if name is None else name
        self._nodes = {weight: _source(tape, weight, optimizer.name) for weight in weights}
        self._rules = {weight: optimizer.rule(weight.symbol()) for weight in weights}
        self._is_named = name is not None or any(node.name for node in self._nodes.values())
        self._shared: dict[tuple[int, Element], Mapping[str, Value]] = {}
        self._carry: Carry = {}
        self._rate = self._input("rate", rate_in(optimizer, rate, widest(weights, tape.element)))

    def step(self, gradients: Mapping[Value, Value]) -> tuple[Value, Carry]:
        for weight, rule in self._rules.items():
            if rule is not None:
                self._weight(rule, weight, gradients[weight])
        return self._rate, self._carry

    def _weight(self, rule: Optimizer, weight: Value, gradient: Value) -> None:
        node = self._nodes[weight]
        common = self._common(rule, working(weight))
        kept = {
            part: self._tape.input(tensor, element=tensor.element, name=self._called(node, part))
            for part, tensor in rule.start(weight.payload()).items()
        }
        after, left = stepped(rule, weight, gradient, kept, common, node.name or str(node.symbol))
        self._carry |= {kept[part]: left[part] for part in kept}
        self._carry[weight] = after

    def _common(self, rule: Optimizer, wide: Element) -> Mapping[str, Value]:
        key = id(rule), wide
        if key not in self._shared:
            own = f".{len(self._shared)}" if self._shared else ""
            counts = {part: self._input(f"{part}{own}", Tensor(number, wide)) for part, number in rule.counts().items()}
            common = self._shared[key] = rule.common(counts, self._rate.to(wide))
            self._carry |= {counts[part]: common[part] for part in counts}
        return self._shared[key]

    def _input(self, part: str, start: Tensor) -> Value:
        name = f"{self._name}.{part}" if self._is_named else None
        return self._tape.input(start, element=start.element, name=name)

    def _called(self, node: Node, part: str) -> str | None:
        return f"{self._name}.{node.name}.{part}" if node.name else None


def _source(tape: Tape, weight: Value, called: str) -> Node:
    node = tape.nodes()[weight.symbol().index]
    if node.opcode.name not in ("Parameter", "Input"):
        raise KinshipError(f"{called}: steps parameters and inputs, got {weight}")
    return node
