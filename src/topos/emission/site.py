"""A node while it is being emitted: its operands as values of the text, and what writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from topos.element import Element, Emittable
from topos.emission.text import Named
from topos.emission.words import DTYPES, Arithmetic, Words
from topos.errors import EmissionError
from topos.records import NamedTuple


class Picks(NamedTuple):
    """A selection in the text: flat ids, of which one outside the vocab selects nothing, if any `may_be_absent`."""

    ids: Named
    vocab: int
    may_be_absent: bool

    def hits(self, words: Words) -> Named:
        """Its one-hot rows as truth values, `[count, vocab]`."""
        shape = (*self.ids.shape, self.vocab)
        ids = words.spread(self.ids, (0,), shape)
        places = words.writer.named("places", shape, self.ids.type)
        words.writer.line(places, f"stablehlo.iota dim = 1 : {places.tensor}")
        return words.compare("EQ", ids, places)


Operand: TypeAlias = "Named | Picks"


class Site(NamedTuple):
    """One node: its instruction and facts, its operands, and the words of its element's type."""

    opcode: Any
    shape: tuple[int, ...]
    element: Element
    operands: Sequence[Operand]
    words: Words
    elements: Sequence[Element | None]

    @property
    def type(self) -> str:
        """The type of the node's numbers."""
        return type_of(self.element)

    @property
    def contract(self) -> Emittable:
        """What the element says of emission."""
        assert self.element.emittable is not None
        return self.element.emittable

    @property
    def arithmetic(self) -> Arithmetic:
        """The element's own operations."""
        return Arithmetic(self.words, self.contract)

    @property
    def accumulator(self) -> str:
        """The type in which its sums and products accumulate. Raises `EmissionError` for sums of another kind."""
        accumulator = self.element.accumulator
        kind = type_of(accumulator)
        assert accumulator.emittable is not None
        if not accumulator.emittable.is_plain:
            raise EmissionError(f"element {accumulator} has sums of its own, which no reduction of StableHLO is")
        return kind

    def dense(self, position: int = 0) -> Named:
        """An operand as numbers; a selection, as its one-hot rows in the node's element."""
        operand = self.operands[position]
        return self.words.convert(operand.hits(self.words), self.type) if isinstance(operand, Picks) else operand

    def mask(self, position: int = 0) -> Named:
        """An operand as numbers, or as truth values where it is a selection."""
        operand = self.operands[position]
        return operand.hits(self.words) if isinstance(operand, Picks) else operand

    def picks(self, position: int) -> Picks:
        """An operand that is a selection."""
        operand = self.operands[position]
        assert isinstance(operand, Picks)
        return operand

    def operation(self, name: str, *operands: Named, attributes: str = "") -> Named:
        """The operation that makes the node."""
        return self.words.writer.operation(name, operands, self.shape, self.type, attributes=attributes)

    def demoted(self, x: Named) -> Named:
        """A value of the accumulator as the element's: rounded once."""
        rounded, result = self.contract.rounded, self.words.convert(x, self.type)
        return result if rounded is None or self.element.accumulator is self.element else rounded(self.words, result)


def type_of(element: Element) -> str:
    """The type of an element's numbers. Raises `EmissionError` for an element that has none."""
    contract = element.emittable
    if contract is None:
        raise EmissionError(f"element {element} has no Emittable contract")
    if element.dtype != DTYPES[contract.type]:
        raise EmissionError(f"element {element} is {element.dtype} in memory, which {contract.type} is not")
    return contract.type
