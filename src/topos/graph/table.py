"""Tables of tensors keyed by the nodes of one family: parameters, gradients, moments, fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from topos.errors import ElementError, KinshipError, ShapeError
from topos.graph.symbol import Family, Symbol, what_it_is
from topos.loading import loaded
from topos.tensor import Tensor
from topos.tensor.deferred import fused

if TYPE_CHECKING:
    from topos.graph.network import Network

Rule = Callable[[Tensor, Tensor], Tensor]

PLAN_NS = 200e6
"""What a plan takes to make: it is made once it would have saved as much in the steps so far."""
CALL_NS, SLOT_NS, PLACE_NS = 20e3, 20e3, 0.3
"""What a plan of a step costs to ask, and what it saves for each slot, and for each of its numbers."""

# A facade that a step may be offered to: this stage does not know what it makes.
_PLANNED = "topos.neural.plain_step.plain_step"


class Table:
    """A tensor per node of one family, in recording order; an entry may be absent. Only a `State` ever changes.

    `moment` stands for what it holds and for whose buffers those are: it is another object after every change of
    either. So whoever has once looked through a table need not look again at the same moment.
    """

    __slots__ = ("_entries", "family", "moment")

    def __init__(self, family: Family, entries: Mapping[int, Tensor | None]) -> None:
        self.family = family
        self.moment = object()
        self._entries = dict(sorted(entries.items()))

    def of(self, symbol: Symbol) -> Tensor:
        """The tensor at a node. Raises `KinshipError` for another family, a node not covered, or an absent entry."""
        tensor = self.get(self._index(symbol))
        if tensor is None:
            raise KinshipError(f"{self._noun}: the entry of {symbol} is absent")
        return tensor

    def payloads(self) -> list[Tensor | None]:
        """The tensors in recording order, `None` for absent ones."""
        return list(self.entries.values())

    def symbols(self) -> list[Symbol]:
        """The nodes covered, in recording order."""
        return [Symbol(self.family, index) for index in self.rows()]

    @property
    def entries(self) -> Mapping[int, Tensor | None]:
        """What it holds by row, at one moment: no later step of a `State` changes this mapping or its tensors."""
        return self._entries

    def seen(self) -> tuple[Mapping[int, Tensor | None], object]:
        """What it holds, as `entries`, and the moment at which it does."""
        return self._entries, self.moment

    def rows(self) -> list[int]:
        """The rows covered, in recording order."""
        return list(self._entries)

    def get(self, index: int) -> Tensor | None:
        """The tensor at a row, or `None`."""
        return self._entries.get(index)

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """The table of `function(tensor)`; absent entries stay absent."""
        return self._with({i: None if t is None else Tensor(fused(function, t)) for i, t in self.entries.items()})

    def zip(self, other: Table, function: Rule) -> Self:
        """The table of `function(own, other's)` where both have an entry; absent elsewhere."""
        self._expect_kin(other)
        pairs = ((i, own, other.get(i)) for i, own in self.entries.items())
        return self._with({i: None if a is None or b is None else Tensor(fused(function, a, b)) for i, a, b in pairs})

    def with_payloads(self, payloads: Mapping[Symbol, Any]) -> Self:
        """The table with some entries replaced, each by a payload of its shape, rounded once to its element."""
        if not isinstance(payloads, Mapping):
            raise KinshipError(f"{self._noun}: wants a mapping from symbols to payloads, got {type(payloads).__name__}")
        entries = dict(self.entries)
        for symbol, payload in payloads.items():
            index = self._index(symbol)
            held = entries[index]
            entries[index] = Tensor(payload) if held is None else fitted(payload, held, f"{self._noun}: {symbol}")
        return self._with(entries)

    def scale(self, number: float) -> Self:
        """Every tensor times a number, rounded once to the tensor's element before."""
        return self.map(lambda tensor: tensor * number)

    def __add__(self, other: Table) -> Self:
        """Entry by entry; where one is absent the other stands alone."""
        if not isinstance(other, Table):
            return NotImplemented
        self._expect_kin(other)
        entries = dict(self.entries)
        for index, theirs in other.entries.items():
            own = entries.get(index)
            entries[index] = theirs if own is None else own if theirs is None else own + theirs
        return self._with(entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[Symbol, Tensor | None]]:
        for index, tensor in self.entries.items():
            yield Symbol(self.family, index), tensor

    def __repr__(self) -> str:
        entries = ", ".join(f"%{i}: {'absent' if t is None else t.shape}" for i, t in self.entries.items())
        return f"{type(self).__name__}({entries})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.family, self.entries)

    @property
    def _noun(self) -> str:
        return type(self).__name__.lower()

    def _with(self, entries: Mapping[int, Tensor | None]) -> Self:
        return type(self)(self.family, entries)

    def _index(self, symbol: Any) -> int:
        if not isinstance(symbol, Symbol):
            raise KinshipError(f"{self._noun}: wants a symbol, got {what_it_is(symbol)}")
        if symbol.family is not self.family:
            raise KinshipError(f"{self._noun}: symbol {symbol} belongs to another spec")
        if symbol.index not in self._entries:
            raise KinshipError(f"{self._noun}: {symbol} is not one of its {len(self._entries)} entries")
        return symbol.index

    def _expect_kin(self, other: Table) -> None:
        if not isinstance(other, Table):
            raise KinshipError(f"{self._noun}: wants another table, got {type(other).__name__}")
        if other.family is not self.family:
            raise KinshipError(f"{self._noun}: the other table belongs to another spec")


class Field(Table):
    """A tensor per node of one family."""

    __slots__ = ()


class Parameters(Table):
    """The caller's table, a tensor per parameter slot in recording order: weights, gradients and moments alike.

    Every operation answers a new table.

    >>> from topos import Tape
    >>> network, weight = Tape.record(lambda tape: tape.parameter([1, 2]))
    >>> parameters = network.parameters()
    >>> gradients = parameters.scale(10)
    >>> parameters.step(gradients, lambda weight, gradient: weight - gradient * 0.5).of(weight)
    Tensor([-4., -8.], f32)
    """

    __slots__ = ()

    def step(self, gradients: Table, rule: Rule) -> Parameters:
        """The table of `rule(weight, gradient)`; a slot that the gradients do not name stays as it is.

        The rule is asked for each slot, at every step. In a long loop, once a plan would have saved as much as it takes
        to make, one stands for a rule that is shown to be the computation that it was, with the same bits. Raises
        `ShapeError` or `ElementError` where the rule answers another shape or element.
        """
        return self._stepped(gradients, rule, is_told=False)

    def step_each(self, gradients: Table, rule: Callable[[Symbol, Tensor, Tensor], Tensor]) -> Parameters:
        """As `step`, with a rule that is also told the slot: `rule(symbol, weight, gradient)`."""
        return self._stepped(gradients, rule, is_told=True)

    def _stepped(self, gradients: Table, rule: Callable[..., Tensor], is_told: bool) -> Parameters:
        self._expect_kin(gradients)
        family = self.family
        if family.forgone_ns >= PLAN_NS:
            planned = loaded(_PLANNED)(self, gradients, rule, is_told)
            if planned is not None:
                return self._with({**self.entries, **planned})
        entries, saved_ns = dict(self.entries), -CALL_NS
        for index, weight in self.entries.items():
            gradient = gradients.get(index)
            if weight is not None and gradient is not None:
                symbol = Symbol(family, index)
                answer = fused(partial(rule, symbol) if is_told else rule, weight, gradient)
                entries[index] = fitted(answer, weight, f"step: {symbol}")
                saved_ns += SLOT_NS + PLACE_NS * weight.shape.volume
        family.forgone_ns += max(0.0, saved_ns)
        return self._with(entries)

    def carried(self, network: Network) -> Parameters:
        """The table for a network that was extended since: its own slots, and the initials of the new ones."""
        initial = network.parameters()
        self._expect_kin(initial)
        return initial._with({i: self.entries.get(i, t) for i, t in initial.entries.items()})

    def clone(self) -> Parameters:
        """Another table of the same tensors."""
        return self._with(self.entries)


def fitted(payload: Any, held: Tensor, where: str) -> Tensor:
    """The payload as a tensor of the shape and element of the one it replaces."""
    assert held.element is not None
    tensor = Tensor(payload, held.element)
    if tensor.ids is not None:
        raise ElementError(f"{where} wants a dense tensor, got a selection")
    if tensor.shape != held.shape:
        raise ShapeError(f"{where} has shape {held.shape}, got {tensor.shape}")
    return tensor
