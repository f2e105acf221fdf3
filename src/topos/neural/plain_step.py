"""A step by a plain rule over tables as a single call: what `Parameters.step` computes slot by slot, by a plan."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from types import CellType, FunctionType
from typing import Any

from topos.element import Element
from topos.errors import RecordedError
from topos.graph import Parameters, Symbol
from topos.neural.asked import Asked, Fed
from topos.neural.facts import Reads, reads_of
from topos.neural.plans import NATIVE, computed
from topos.neural.pure import around, is_pure, names_of
from topos.tensor import Tensor

Rule = Callable[..., Any]


def plain_step(parameters: Parameters, gradients: Any, rule: Rule, is_told: bool) -> dict[int, Tensor] | None:
    """The weights after a step, by row; `None` where the rule has to be asked slot by slot.

    A plan stands for a rule as long as all that the rule reads is what it was. A float that the rule does nothing with
    but to put it beside a weight or a gradient is fed to the plan: another float is no other plan.
    """
    reads = reads_of(rule)
    if reads is None:
        return None
    step = _Step(parameters, gradients, rule, is_told, reads)
    if not step.slots or not NATIVE.issuperset(step.elements):
        return None
    family, slots, answers = parameters.family, (is_told, step.slots), None
    if reads.floats:
        answers = computed(family, (reads.what, slots), [*step.numbers(), *step.tensors], step.express_fed)
    if answers is None:
        answers = computed(family, (reads.whole, slots), step.tensors, step.express)
    return None if answers is None else dict(zip(step.slots, answers, strict=True))


class _Step:
    """What is stepped.

    `slots` are the rows, `tensors` weights and gradients in turn, and `elements` those of the weights, each once.
    """

    def __init__(self, parameters: Parameters, gradients: Any, rule: Rule, is_told: bool, reads: Reads) -> None:
        self._family, self._rule, self._reads = parameters.family if is_told else None, rule, reads
        slots, self.tensors = [], list[Tensor]()
        for symbol, weight in parameters:
            gradient = gradients.get(symbol.index)
            if weight is not None and gradient is not None:
                slots.append(symbol.index)
                self.tensors += (weight, gradient)
        self.slots = tuple(slots)
        self.elements = list(dict.fromkeys([weight.element for weight in self.tensors[::2]]))

    def numbers(self) -> list[Tensor]:
        """Every float that the rule reads, in every element."""
        return [
            _tensor(struct.pack("d", number), element) for number in self._reads.floats for element in self.elements
        ]

    def express(self, values: Sequence[Any]) -> list[Any]:
        """The weights after the step. Raises where a rule does something else than record them."""
        return self._answers(self._rule, values)

    def express_fed(self, values: Sequence[Any]) -> list[Any]:
        """The same of a rule whose floats come first: each in every element that there is."""
        given = iter(values)
        numbers = [Fed({element: next(given) for element in self.elements}) for _ in self._reads.floats]
        return self._answers(with_numbers(self._rule, numbers), list(given))

    def _answers(self, rule: Rule, values: Sequence[Any]) -> list[Any]:
        given = iter(values)
        answers = []
        for row, weight, gradient in zip(self.slots, given, given, strict=True):
            told = () if self._family is None else (Symbol(self._family, row),)
            answer = rule(*told, weight, gradient)
            if not isinstance(answer, Asked) or (answer.shape, answer.element) != (weight.shape, weight.element):
                raise RecordedError("step: a rule that answers something else than the weight")
            answers.append(answer)
        now = reads_of(self._rule)
        if now is None or now.whole != self._reads.whole:
            raise RecordedError("step: a rule that changed meanwhile")
        return answers


@lru_cache(256)
def _tensor(number: bytes, element: Element) -> Tensor:
    """A float, read once: most stay the same for many steps."""
    return Tensor(struct.unpack("d", number)[0], element)


def with_numbers(function: Any, numbers: Iterable[Any]) -> Any:
    """A function that `reads_of` knows, with something else in the place of each of its floats, in their order."""
    rest, known = iter(numbers), dict[int, FunctionType]()

    def instead(found: Any) -> Any:
        if type(found) is float:
            return next(rest)
        if type(found) is tuple:
            return tuple(map(instead, found))
        if type(found) is not FunctionType or is_pure(found):
            return found
        return known[id(found)] if id(found) in known else made(found)

    def made(found: Any) -> FunctionType:
        cells = [CellType() for _ in found.__closure__ or ()]
        space: dict[str, Any] = {"__builtins__": found.__builtins__}
        copy = known[id(found)] = FunctionType(found.__code__, space, closure=tuple(cells))
        copy.__defaults__ = instead(found.__defaults__)
        copy.__kwdefaults__ = {name: instead(one) for name, one in (found.__kwdefaults__ or {}).items()}
        for cell, own in zip(cells, found.__closure__ or (), strict=True):
            cell.cell_contents = instead(own.cell_contents)
        names = names_of(found.__code__)
        for name in () if names is None else names.globals:
            space[name] = instead(around(found, name))
        return copy

    return made(function)
