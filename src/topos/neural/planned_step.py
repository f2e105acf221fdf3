"""One step over tables as a single call: what `TableStep` computes slot by slot, by a plan."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, KeysView, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from topos.element import Element
from topos.errors import KinshipError
from topos.graph import Parameters, Symbol
from topos.neural.facts import facts_of
from topos.neural.plans import computed
from topos.neural.rule import rate_in, stepped, working
from topos.neural.table_step import Kept
from topos.tensor import Tensor

if TYPE_CHECKING:
    from topos.neural.optimizer import Optimizer


def planned_step(
    optimizer: Optimizer, slots: Mapping[Symbol, Kept], parameters: Parameters, gradients: Any, rate: Any
) -> tuple[Parameters, Mapping[Symbol, Kept]] | None:
    """The table after a step, and what is kept for each slot; `None` where the step has to be walked slot by slot.

    That is a slot's first step, a rule that a plan may not stand for, and whatever is wrong.
    """
    if not (type(parameters) is type(gradients) is Parameters and gradients.family is parameters.family):
        return None
    step = _Step(optimizer)
    weights = {}
    for symbol, weight in parameters:
        gradient = gradients.get(symbol.index)
        if weight is not None and gradient is not None and not step.take(symbol, weight, gradient, slots.get(symbol)):
            return None
        weights[symbol.index] = weight
    tensors = step.tensors([rate_in(optimizer, rate, wide) for wide in step.wides])
    answers = computed(parameters.family, step.signature(), tensors, step.express)
    if answers is None:
        return None
    left = dict(slots)
    for symbol, weight, kept in step.answered(iter(answers)):
        weights[symbol.index], left[symbol] = weight, kept
    return Parameters(parameters.family, weights), left


class _Rule(NamedTuple):
    """A rule of some slots; it is held here so that no other gets its id."""

    rule: Optimizer
    said: Hashable
    counts: KeysView[str]


class _Group(NamedTuple):
    """Slots of one rule whose counts are the same tensors."""

    at: int
    wide: Element
    rule: _Rule


class _Slot(NamedTuple):
    symbol: Symbol
    weight: Tensor
    group: int
    kept: tuple[str, ...]


class _Step:
    """The slots of a step, and every tensor that it reads.

    The rate in each working element comes first, then the counts of each group, then slot by slot a weight, its
    gradient and what is kept for it.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.wides: dict[Element, None] = {}
        self._optimizer = optimizer
        self._rules: dict[int, _Rule | None] = {}
        self._groups: dict[Hashable, _Group] = {}
        self._slots: list[_Slot] = []
        self._counts: list[Tensor] = []
        self._tensors: list[Tensor] = []

    def take(self, symbol: Symbol, weight: Tensor, gradient: Tensor, known: Kept | None) -> bool:
        """Takes one slot in, where a rule steps it; whether that could be done."""
        asked = self._optimizer.rule(symbol)
        if asked is None:
            return True
        rule = self._rule(asked)
        if rule is None or known is None or weight.element is None or not known.keys() >= rule.counts:
            return False
        kept = tuple([name for name in known if name not in rule.counts])
        self._slots.append(_Slot(symbol, weight, self._group(rule, working(weight), known), kept))
        self._tensors += [weight, gradient, *[known[name] for name in kept]]
        return True

    def _rule(self, rule: Optimizer) -> _Rule | None:
        if id(rule) not in self._rules:
            facts = facts_of(rule)
            self._rules[id(rule)] = None if facts is None else _Rule(rule, facts, rule.counts().keys())
        return self._rules[id(rule)]

    def _group(self, rule: _Rule, wide: Element, known: Kept) -> int:
        counts = [known[name] for name in rule.counts]
        key = id(rule), wide, *map(id, counts)
        if key not in self._groups:
            self._groups[key] = _Group(len(self._groups), wide, rule)
            self._counts += counts
            self.wides[wide] = None
        return self._groups[key].at

    def signature(self) -> Hashable:
        """All that makes one step another computation than the next, beside what its tensors are."""
        groups = tuple([(group.wide, tuple(group.rule.counts), group.rule.said) for group in self._groups.values()])
        return groups, tuple([(slot.group, slot.kept) for slot in self._slots])

    def tensors(self, rates: Sequence[Tensor]) -> list[Tensor]:
        """What the step reads."""
        return [*rates, *self._counts, *self._tensors]

    def express(self, values: Sequence[Any]) -> list[Any]:
        """The counts after the step, group by group, then the weight and what is kept, slot by slot."""
        given = iter(values)
        rates = {wide: next(given) for wide in self.wides}
        commons, found = [], []
        for group in self._groups.values():
            counts = {name: next(given) for name in group.rule.counts}
            commons.append((group.rule.rule, group.rule.rule.common(counts, rates[group.wide])))
            found += [commons[-1][1][name] for name in counts]
        for slot in self._slots:
            rule, common = commons[slot.group]
            if rule.start(slot.weight).keys() != set(slot.kept):
                raise KinshipError(f"{rule.name}: {slot.symbol} keeps something else")
            weight, gradient = next(given), next(given)
            kept = {name: next(given) for name in slot.kept}
            after, left = stepped(rule, weight, gradient, kept, common, str(slot.symbol))
            found += [after, *left.values()]
        return found

    def answered(self, answers: Iterator[Tensor]) -> Iterator[tuple[Symbol, Tensor, Kept]]:
        """What `express` answers, by slot; slots of a group go on with the same counts."""
        counts = [{name: next(answers) for name in group.rule.counts} for group in self._groups.values()]
        for slot in self._slots:
            weight = next(answers)
            yield slot.symbol, weight, {**{name: next(answers) for name in slot.kept}, **counts[slot.group]}
