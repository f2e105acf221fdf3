"""Optimizers graded: both readings alike in bits, and what a step has to leave alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from topos.element import Element, bf16, f32, f64
from topos.errors import ToposError
from topos.graph import Adjoints, Network, Parameters, Symbol, Tape
from topos.neural import Optimizer, Update
from topos.op import stack
from topos.shape import Shape
from topos.tensor import Tensor
from topos.testing.same_bits import assert_same_bits

SHAPES = ((), (7,), (3, 5), (40, 33), (2, 3, 4), (0, 2))
"""A number, rows, matrices that do and do not fill a vector, something of higher rank, and nothing at all."""

RATES = (0.5, 0.125, 0.0, 0.3)
"""What the rate is at each step."""


def grade_optimizer(
    make: Callable[[], Optimizer],
    elements: Sequence[Element] = (f32, f64, bf16),
    shapes: Sequence[Sequence[int]] = SHAPES,
) -> None:
    """Grades the optimizer that `make()` answers, a new one each time, over parameters of several shapes.

    For each element it is checked, over gradients with zeros, infinities and NaN among them, that

    - `step` over tables and `record`, interpreted, one `advance` a step and one `advance` for all steps, give the same
      bits after every step: the weights, and what is kept beside them;
    - a slot that the gradients do not name stays, and so does what is kept for it;
    - a step that fails leaves the optimizer and the tables that it was given as they were;
    - tables that were handed out stay, and an optimizer that is given them goes on as the one that they are of.

    Raises `AssertionError` that says which does not hold, of which slot, and after which step.
    """
    __tracebackhide__ = True
    for element in elements:
        graded = _Graded(make, element, shapes)
        graded.check_readings()
        graded.check_absent()
        graded.check_failure()
        graded.check_tables()


class _Graded:
    """Parameters of several shapes, a gradient of each that is fed, and a step recorded over them."""

    def __init__(self, make: Callable[[], Optimizer], element: Element, shapes: Sequence[Sequence[int]]) -> None:
        self._make = make
        self._element = element
        self._random = np.random.default_rng(0)
        self._recorded = make()

        def record(tape: Tape) -> Any:
            weights = [
                tape.parameter(self._numbers(shape), name=f"weight{place}") for place, shape in enumerate(shapes)
            ]
            gradients = [tape.input(shape=weight.shape) for weight in weights]
            pairs = list(zip(weights, gradients, strict=True))
            return pairs, self._recorded.record(tape, Adjoints(tape.leaf(0), pairs), name="graded")

        names: tuple[list[tuple[Symbol, Symbol]], Update]
        self.network: Network
        self.network, names = Tape.record(record, element)
        self.pairs, self.update = names
        self.weights = [weight for weight, _ in self.pairs]
        self.parameters = self.network.parameters()
        self.steps = [self._drawn() for _ in RATES]

    def check_readings(self) -> None:
        """Tables, interpreter and plan, step by step, and the plan in one call."""
        __tracebackhide__ = True
        carry = self.update.carry
        entry = self.network.entry(()).carry(carry)
        plan = entry.lower()
        single, several, by_hand = (self.network.state() for _ in range(3))
        optimizer, parameters = self._make(), self.parameters
        for at, (rate, gradients) in enumerate(zip(RATES, self.steps, strict=True)):
            parameters = optimizer.step(parameters, gradients, rate)
            feeds = {self.update.rate: rate, **{own: gradients.of(weight) for weight, own in self.pairs}}
            run = self.network.entry(list(carry.values())).interpret(by_hand, feeds)
            by_hand.replace({source.index: run.of(following) for source, following in carry.items()})
            plan.advance(single, feeds)
            expected = self._remembered(parameters, optimizer)
            self._same(self._found(by_hand, expected), expected, f"step {at}, interpreted, is not the step over tables")
            self._same(self._found(single, expected), expected, f"step {at}, advanced, is not the step over tables")
        stacked = {own: stack([table.of(weight) for table in self.steps], 0) for weight, own in self.pairs}
        plan.advance(several, {self.update.rate: np.array(RATES), **stacked}, steps=len(RATES))
        self._same(several.payloads(), single.payloads(), "all steps at once are not the steps one by one")

    def check_absent(self) -> None:
        """Slots that the second step does not name."""
        __tracebackhide__ = True
        optimizer = self._make()
        first = optimizer.step(self.parameters, self.steps[0], RATES[0])
        before = self._remembered(first, optimizer)
        named = self.weights[::2]
        entries = {weight.index: self.steps[1].of(weight) if weight in named else None for weight in self.weights}
        second = optimizer.step(first, Parameters(self.weights[0].family, entries), RATES[1])
        after = self._remembered(second, optimizer)
        others = [key for key in before if key[1] not in named]
        self._same({key: after[key] for key in others}, {key: before[key] for key in others}, "an absent slot changed")

    def check_failure(self) -> None:
        """A step in which the last gradient that it takes does not fit."""
        __tracebackhide__ = True
        optimizer = self._make()
        taken = [weight for weight in self.weights if optimizer.rule(weight) is not None]
        if not taken:
            return
        parameters = optimizer.step(self.parameters, self.steps[0], RATES[0])
        before = self._remembered(parameters, optimizer)
        last = taken[-1]
        wrong = {weight.index: self.steps[1].of(weight) for weight in self.weights}
        wrong[last.index] = Tensor.filled([*wrong[last.index].shape, 2], 1, self._element)
        try:
            optimizer.step(parameters, Parameters(last.family, wrong), RATES[1])
        except ToposError:
            self._same(self._remembered(parameters, optimizer), before, "a step that failed left its marks")
            return
        raise AssertionError(f"{self._called}: a gradient of another shape than its weight's was taken")

    def check_tables(self) -> None:
        """What was handed out after one step, taken up by another optimizer."""
        __tracebackhide__ = True
        optimizer, other = self._make(), self._make()
        parameters = optimizer.step(self.parameters, self.steps[0], RATES[0])
        tables = optimizer.tables
        before = {name: table.payloads() for name, table in tables.items()}
        first = optimizer.step(parameters, self.steps[1], RATES[1])
        self._same(tables, before, "tables that were handed out changed")
        other.tables = tables
        second = other.step(parameters, self.steps[1], RATES[1])
        expected = self._remembered(first, optimizer)
        self._same(self._remembered(second, other), expected, "an optimizer that was given the tables goes another way")

    # inner
    @property
    def _called(self) -> str:
        return f"{self._make().name} over {self._element}"

    def _numbers(self, shape: Sequence[int]) -> Tensor:
        return Tensor(np.array(self._random.normal(size=tuple(shape))), self._element)

    def _drawn(self) -> Parameters:
        """A gradient for every slot, hard ones in the last place of each."""
        entries = {weight.index: self._gradient(self.parameters.of(weight).shape) for weight in self.weights}
        return Parameters(self.weights[0].family, entries)

    def _gradient(self, shape: Shape) -> Tensor:
        numbers = np.array(self._random.normal(size=tuple(shape)))
        hard = self._random.permutation(np.array([0.0, -0.0, np.inf, np.nan, 1e-42, 1e-20, 1e20, -1.0]))
        if shape.rank:
            numbers.reshape(-1)[: min(4, shape.volume // 2)] = hard[: min(4, shape.volume // 2)]
        return Tensor(numbers, self._element)

    def _remembered(self, parameters: Parameters, optimizer: Optimizer) -> dict[tuple[str, Symbol], Tensor]:
        """Every weight and everything that is kept beside one."""
        found = {("weight", weight): parameters.of(weight) for weight in self.weights}
        for name, table in optimizer.tables.items():
            found |= {(name, symbol): tensor for symbol, tensor in table if tensor is not None}
        return found

    def _found(self, state: Any, keys: Mapping[tuple[str, Symbol], Any]) -> dict[tuple[str, Symbol], Tensor]:
        """The same of a State; a count stands in it once for all slots."""
        return {key: state.of(self._source(*key)) for key in keys}

    def _source(self, name: str, weight: Symbol) -> Symbol:
        if name == "weight":
            return weight
        label = self.network.node(weight).name
        found = [rule for rule in map(self._recorded.rule, self.weights) if rule is not None]
        rule = self._recorded.rule(weight)
        assert rule is not None  # it would have kept nothing
        place = list({id(one): one for one in found}).index(id(rule))
        shared = f"graded.{name}.{place}" if place else f"graded.{name}"
        return self.network.symbol(shared if name in rule.counts() else f"graded.{label}.{name}")

    def _same(self, actual: object, expected: object, what: str) -> None:
        __tracebackhide__ = True
        try:
            assert_same_bits(actual, expected)
        except AssertionError as error:
            raise AssertionError(f"{self._called}: {what}: {error}") from None
