"""Optimizers: one rule over `Recordable`, read twice, as a step over tables and as a recorded step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from topos.errors import KinshipError
from topos.graph import Adjoints, Parameters, Symbol, Tape
from topos.neural.planned_step import planned_step
from topos.neural.recorded_step import recorded_step
from topos.neural.table_step import TableStep
from topos.tensor import Tensor

Numbers = Mapping[str, Any]
"""Tensors or values by name."""


class Update(NamedTuple):
    """A recorded step: the rate, a rank-0 input to feed, and what replaces what, for `entry.carry`."""

    rate: Any
    carry: dict[Any, Any]


class Optimizer:
    """A rule that replaces a weight by means of its gradient, in two readings of the same bits.

    `step` computes it over tables and keeps what it has to remember in `tables`; `record` writes it into a spec, where
    what it has to remember are inputs that an entry carries. A rule of your own defines `update`, and `start` and
    `common` where it remembers anything; it calls nothing but what tensors and values share.

    The rule computes in the accumulator of the weight's element (f32 for bf16), and what it keeps is rounded once to
    the element it is kept in. A slot that the gradients do not name stays as it is, and so does what is kept for it.

    >>> from topos import Optimizer, Tape
    >>> class Momentum(Optimizer):
    ...     def start(self, weight):
    ...         return {"velocity": weight.zero_like()}
    ...
    ...     def update(self, weight, gradient, kept, common):
    ...         velocity = kept["velocity"] * 0.9 + gradient
    ...         return weight - velocity * common["rate"].broadcast(weight.shape), {"velocity": velocity}
    >>> network, weight = Tape.record(lambda tape: tape.parameter([1, 2]))
    >>> parameters, optimizer = network.parameters(), Momentum()
    >>> for _ in range(2):
    ...     parameters = optimizer.step(parameters, parameters.scale(0.5), rate=0.5)
    >>> parameters.of(weight), optimizer.tables["velocity"].of(weight)
    (Tensor([0.3375, 0.675 ], f32), Tensor([0.825, 1.65 ], f32))
    """

    _slots: Mapping[Symbol, Mapping[str, Tensor]] = {}  # never written to: a step puts another in its place

    # what a rule says
    def start(self, weight: Tensor) -> dict[str, Tensor]:
        """What is kept beside a weight, by name, before its first step; of any shape and element.

        Over tables the weight is that of the first step; where a step is recorded it is the recorded initial.
        """
        return {}

    def counts(self) -> dict[str, float]:
        """The numbers of rank 0 that go from step to step, by name, and what they start from: powers of a decay."""
        return {}

    def common(self, counts: Numbers, rate: Any) -> dict[str, Any]:
        """What all weights of a step share, of rank 0: worked out once from the counts and the rate.

        What is named as a count replaces it. It is asked for once for each element computed in.
        """
        return {"rate": rate}

    def update(self, weight: Any, gradient: Any, kept: Numbers, common: Numbers) -> tuple[Any, dict[str, Any]]:
        """The weight after a step, and what is kept, under the names and in the shapes of `start`."""
        raise NotImplementedError(f"{type(self).__name__}.update")

    def rule(self, symbol: Symbol) -> Optimizer | None:
        """The optimizer whose rule a parameter follows, or `None` where it takes no part."""
        return self

    @property
    def name(self) -> str:
        """What messages call it, and in small letters what is recorded for it."""
        return type(self).__name__

    # its readings
    def step(self, parameters: Parameters, gradients: Any, rate: Any) -> Parameters:
        """The table after one step, computed; `tables` then hold what the rule remembers.

        A step like an earlier one is a single call of a plan, recorded for it where that can stand for the rule.
        A step that fails leaves the table and `tables` as they were. Raises `ShapeError` or `ElementError` for a
        gradient that does not fit its weight, `KinshipError` for parameters of another spec than the last step's.
        """
        if not isinstance(parameters, Parameters):
            raise KinshipError(f"{self.name}: steps Parameters, got {type(parameters).__name__}")
        planned = planned_step(self, self._slots, parameters, gradients, rate)
        if planned is not None:
            answer, self._slots = planned
            return answer
        walk = TableStep(self, self._slots, rate)
        answer = parameters.step_each(gradients, walk.of)
        self._slots = walk.slots
        return answer

    def record(self, tape: Tape, adjoints: Adjoints, *, rate: float = 0.0, name: str | None = None) -> Update:
        """One step, recorded over the gradients of `adjoints`; `rate` is what the rate is where it is not fed.

        What the rule remembers are inputs that start as `start` and `counts` say. They are named after `name` and
        their parameter, `adam.h0.weight.first`, where the parameter has a name; `name` is the class's in small letters
        unless it is given. A parameter that occurs twice is stepped once.
        """
        with tape.transaction():
            return Update(*recorded_step(self, tape, adjoints, rate, name))

    def step_where(self, policy: Callable[[Symbol], bool], otherwise: Optimizer | None = None) -> Optimizer:
        """The optimizer that steps by this one's rule where the policy answers true, and by another's elsewhere.

        Without `otherwise` the others stay as they are. It has both readings, and tables of its own.

        >>> from topos import AdamW, Tape
        >>> network, (matrix, bias) = Tape.record(lambda tape: [tape.parameter([[1, 2]]), tape.parameter([1, 2])])
        >>> optimizer = AdamW(decay=0.5).step_where({matrix}.__contains__, otherwise=AdamW(decay=0))
        >>> parameters = network.parameters()
        >>> optimizer.step(parameters, parameters.scale(0), rate=0.5).payloads()
        [Tensor([[0.75, 1.5 ]], f32), Tensor([1., 2.], f32)]
        """
        if not callable(policy) or not isinstance(otherwise, Optimizer | None):
            kinds = f"{type(policy).__name__} and {type(otherwise).__name__}"
            raise KinshipError(f"{self.name}: step_where wants a function of a symbol and an optimizer, got {kinds}")
        return _Where(policy, self, otherwise)

    @property
    def tables(self) -> dict[str, Parameters]:
        """What the rule remembers, a table by name; a slot that has not been stepped is in none.

        Later steps leave these tables as they are; assigning them takes the optimizer back to that step.
        """
        found: dict[str, dict[int, Tensor]] = {}
        for symbol, kept in self._slots.items():
            for name, tensor in kept.items():
                found.setdefault(name, {})[symbol.index] = tensor
        family = next((symbol.family for symbol in self._slots), None)
        return {name: Parameters(family, entries) for name, entries in found.items() if family is not None}

    @tables.setter
    def tables(self, tables: Mapping[str, Parameters]) -> None:
        if not isinstance(tables, Mapping):
            raise KinshipError(f"{self.name}: wants tables by name, got {type(tables).__name__}")
        slots: dict[Symbol, dict[str, Tensor]] = {}
        for name, table in tables.items():
            if not isinstance(table, Parameters):
                raise KinshipError(f"{self.name}: wants Parameters for {name!r}, got {type(table).__name__}")
            for symbol, tensor in table:
                if tensor is not None:
                    slots.setdefault(symbol, {})[name] = tensor
        if len({symbol.family for symbol in slots}) > 1:
            raise KinshipError(f"{self.name}: the tables belong to several specs")
        self._slots = slots

    def __repr__(self) -> str:
        facts = (f"{name}={fact!r}" for name, fact in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({', '.join(facts)})"


class _Where(Optimizer):
    """One rule where a policy says so, and another, or none, elsewhere."""

    def __init__(self, policy: Callable[[Symbol], bool], chosen: Optimizer, otherwise: Optimizer | None) -> None:
        self.policy, self.chosen, self.otherwise = policy, chosen, otherwise

    @property
    def name(self) -> str:
        return self.chosen.name

    def rule(self, symbol: Symbol) -> Optimizer | None:
        found = self.chosen if self.policy(symbol) else self.otherwise
        return None if found is None else found.rule(symbol)

    def __repr__(self) -> str:
        return f"{self.chosen!r}.step_where({self.policy!r}, {self.otherwise!r})"
