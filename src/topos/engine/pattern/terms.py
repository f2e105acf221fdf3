"""The language that compositions are described in: written like the code that records them, with names for what varies.

    x = Variable("operand")
    powers = exp(x - spread(maxima(x, "axis"), "axis"))
    softmax = powers / spread(sums(powers, "axis"), "axis")

A term that stands twice means one value. `+` and `*` take their operands in either order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from topos.engine.pattern.columns import Columns
from topos.op import Add, Div, MatMul, Mul, Neg, Opcode, Sub
from topos.records import NamedTuple


class Found(NamedTuple):
    """What is known while a term is matched: the row of each term, what the names stand for, the rows covered."""

    bound: Mapping[Term, int] = {}  # noqa: RUF012 - never written to
    facts: Mapping[str, Any] = {}  # noqa: RUF012
    rows: frozenset[int] = frozenset()

    def fact(self, name: str | None, value: Any) -> Found | None:
        """With a name given a value, or `None` where it has another."""
        if name is None:
            return self
        if name in self.facts:
            return self if self.facts[name] == value else None
        return self._replace(facts={**self.facts, name: value})

    def covering(self, *rows: int) -> Found:
        """With more rows covered."""
        return self._replace(rows=self.rows.union(rows))


class Term:
    """What a row has to be. Operators make larger terms."""

    name: str | None = None

    def named(self, name: str) -> Term:
        """Itself, as a result by which the whole composition may be read in its middle."""
        self.name = name
        return self

    def matches(self, columns: Columns, row: int, found: Found) -> Iterator[Found]:
        """Every way in which the row is this term, given what is known already."""
        held = found.bound.get(self)
        if held == row:
            yield found
            return
        for way in self.ways(columns, row, found):
            yield way if held is not None else way._replace(bound={**way.bound, self: row})

    def ways(self, columns: Columns, row: int, found: Found) -> Iterator[Found]:
        """The same for a row that was not met before."""
        raise NotImplementedError(type(self).__name__)

    def may_be_over(self, kinds: Sequence[type[Opcode]]) -> bool:
        """Whether operands of those kinds are worth a closer look."""
        return True

    @cached_property
    def roots(self) -> frozenset[type[Opcode]]:
        """The instructions that the row may be; none: any."""
        return self._roots()

    def _roots(self) -> frozenset[type[Opcode]]:
        return frozenset()

    @cached_property
    def needs(self) -> frozenset[type[Opcode]]:
        """The instructions without which it is nowhere."""
        return self._needs()

    def _needs(self) -> frozenset[type[Opcode]]:
        return frozenset()

    def __add__(self, other: Term) -> Term:
        return Instruction(Add, self, other)

    def __sub__(self, other: Term) -> Term:
        return Instruction(Sub, self, other)

    def __mul__(self, other: Term) -> Term:
        return Instruction(Mul, self, other)

    def __truediv__(self, other: Term) -> Term:
        return Instruction(Div, self, other)

    def __matmul__(self, other: Term) -> Term:
        return Instruction(MatMul, self, other)

    def __neg__(self) -> Term:
        return Instruction(Neg, self)


class Variable(Term):
    """Any one row, an operand of the composition."""

    def __init__(self, name: str) -> None:
        self.name = name

    def ways(self, columns: Columns, row: int, found: Found) -> Iterator[Found]:
        way = found.fact(self.name, row)
        if way is not None:
            yield way


class Constant(Term):
    """One number at every place: a certain one, or one that gets a name."""

    def __init__(self, name: str | None = None, value: float | None = None) -> None:
        self.fact, self.value = name, value

    def ways(self, columns: Columns, row: int, found: Found) -> Iterator[Found]:
        number = columns.number(row)
        if number is None or self.value not in (None, number.value):
            return
        way = found.fact(self.fact, number.value)
        if way is not None:
            yield way.covering(*number.rows)


class Instruction(Term):
    """An instruction over terms; `facts` names those of its attributes that matter."""

    def __init__(self, kind: type[Opcode], *operands: Term, facts: Mapping[str, str] | None = None) -> None:
        self.kind, self.operands, self.facts = kind, operands, facts or {}

    def _roots(self) -> frozenset[type[Opcode]]:
        return frozenset((self.kind,))

    def _needs(self) -> frozenset[type[Opcode]]:
        return self.roots.union(*(operand.needs for operand in self.operands))

    def ways(self, columns: Columns, row: int, found: Found) -> Iterator[Found]:
        opcode, operands = columns.rows[row].opcode, columns.rows[row].operands
        if type(opcode) is not self.kind:
            return
        orders = [operands, operands[::-1]] if self.kind in (Add, Mul) and operands[0] != operands[1] else [operands]
        orders = [order for order in orders if self._fits([type(columns.rows[at].opcode) for at in order])]
        if not orders:
            return
        way: Found | None = found.covering(row)
        for attribute, name in self.facts.items():
            way = way and way.fact(name, getattr(opcode, attribute))
        if way is None:
            return
        for order in orders:
            yield from self._over(columns, order, way, 0)

    def may_be_over(self, kinds: Sequence[type[Opcode]]) -> bool:
        return self._fits(kinds) or (self.kind in (Add, Mul) and self._fits(kinds[::-1]))

    def _fits(self, kinds: Sequence[type[Opcode]]) -> bool:
        pairs = zip(self.operands, kinds, strict=True)
        return all(not term.roots or kind in term.roots for term, kind in pairs)

    def _over(self, columns: Columns, rows: tuple[int, ...], found: Found, at: int) -> Iterator[Found]:
        if at == len(rows):
            yield found
            return
        for way in self.operands[at].matches(columns, rows[at], found):
            yield from self._over(columns, rows, way, at + 1)


class Either(Term):
    """One of several terms."""

    def __init__(self, *terms: Term) -> None:
        self.terms = terms

    def _roots(self) -> frozenset[type[Opcode]]:
        roots = [term.roots for term in self.terms]
        return frozenset().union(*roots) if all(roots) else frozenset()

    def _needs(self) -> frozenset[type[Opcode]]:
        first, *others = (term.needs for term in self.terms)
        return first.intersection(*others)

    def ways(self, columns: Columns, row: int, found: Found) -> Iterator[Found]:
        for term in self.terms:
            yield from term.matches(columns, row, found)
