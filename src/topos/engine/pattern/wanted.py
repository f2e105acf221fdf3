"""What a derivative rule asks for, and where it stands in a spec."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from topos.element import Element
from topos.engine.pattern.columns import Columns
from topos.op import Composites, Opcode
from topos.shape import Shape


class Wanted(Composites):
    """A value that a rule reads or writes: a row of the match, a number at every place, or an instruction to find.

    What hangs on the cotangent of the whole `is_seeded`. One that `is_held` is what an operand was given before: any
    row will do. Those with a `label` are operands.
    """

    __slots__ = ("_element", "_shape", "book", "is_held", "is_seeded", "label", "number", "opcode", "operands", "row")

    def __init__(self, book: list[Wanted], shape: Shape, element: Element | None, row: int | None = None) -> None:
        self.book, self._shape, self._element, self.row = book, shape, element, row
        self.opcode: Opcode | None = None
        self.operands: tuple[Wanted, ...] = ()
        self.number: float | None = None
        self.label = ""
        self.is_held = self.is_seeded = False

    @property
    def shape(self) -> Shape:
        return self._shape

    @property
    def element(self) -> Element | None:
        return self._element

    def apply(self, opcode: Opcode, operands: tuple[Any, ...]) -> Wanted:
        """Asks for one more instruction, after those it reads."""
        element = opcode.result_element([operand.element for operand in operands]) or self._element
        wanted = Wanted(self.book, opcode.result_shape([operand.shape for operand in operands]), element)
        wanted.opcode, wanted.operands = opcode, operands
        wanted.is_seeded = any(operand.is_seeded for operand in operands)
        self.book.append(wanted)
        return wanted

    def counted(self, count: int) -> Wanted:
        wanted = Wanted(self.book, self._shape, self._element)
        wanted.number = float(count)
        return wanted

    def zero_like(self) -> Wanted:
        """Zero; for an operand, whatever others have given it before."""
        if not self.label:
            return self.counted(0)
        held = Wanted(self.book, self._shape, self._element)
        held.is_held, held.label = True, f"{self.label} before"
        return held

    def one_like(self) -> Wanted:
        return self.counted(1)


class Instance:
    """Where what is wanted stands, given the row of the seed: a row each, and the rows that spell numbers beside it."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.bound: dict[Wanted, int] = {}
        self.covered: dict[int, tuple[int, ...]] = {}

    def fits(self, wanted: Wanted, row: int) -> bool:
        """Whether a row may be what is wanted; what does not hang on the seed may stand at several."""
        if wanted.row is not None:
            return wanted.row == row
        if wanted.number is not None:
            number = self.columns.number(row)
            return number is not None and number.value == wanted.number
        if wanted.is_held or wanted.is_seeded:
            return self.bound.get(wanted, row if wanted.is_held else None) == row
        return self.is_over(wanted, row)

    def is_over(self, wanted: Wanted, row: int) -> bool:
        """Whether a row is the instruction, over operands that fit."""
        recorded = self.columns.rows[row]
        if recorded.opcode != wanted.opcode:
            return False
        return all(self.fits(operand, at) for operand, at in zip(wanted.operands, recorded.operands, strict=True))

    def bind(self, wanted: Wanted, row: int) -> None:
        """Takes a row that fits, and what it reads that does not hang on the seed."""
        number = self.columns.number(row) if wanted.number is not None or wanted.is_held else None
        if number is not None and number.value in (wanted.number, 0.0):
            self.covered |= dict.fromkeys(number.rows, ())
        elif wanted.is_held:
            self.bound[wanted] = row
        elif wanted.opcode is not None and row not in self.covered:
            self.bound[wanted] = row
            recorded = self.columns.rows[row]
            self.covered[row] = recorded.operands
            for operand, at in zip(wanted.operands, recorded.operands, strict=True):
                self.bind(operand, at)

    def find(self, book: list[Wanted]) -> None:
        """All of it that stands in the spec, each at the first row that is not taken."""
        for wanted in book:
            known = [operand for operand in wanted.operands if operand.is_seeded]
            if not known or any(operand not in self.bound for operand in known):
                continue
            readers = min((self.columns.readers[self.bound[operand]] for operand in known), key=len)
            for row in readers:
                if row not in self.covered and self.is_over(wanted, row):
                    self.bind(wanted, row)
                    break

    def seeds(self, book: list[Wanted], seed: Wanted) -> Iterator[int]:
        """The rows that may be the seed, by the first instruction over it and something that does not hang on it."""
        for wanted in book:
            others = [o for o in wanted.operands if not o.is_seeded and not o.is_held and o.number is None]
            if wanted.is_seeded and others:
                rows = {reader for row in self.rows(others[0]) for reader in self.columns.readers[row]}
                found = [self.inverted(wanted, row, seed) for row in sorted(rows)]
                if any(row is not None for row in found):
                    yield from dict.fromkeys(row for row in found if row is not None)
                    return

    def rows(self, wanted: Wanted) -> list[int]:
        """Every row at which something stands that does not hang on the seed."""
        if wanted.row is not None:
            return [wanted.row]
        for operand in wanted.operands:
            if operand.number is None and not operand.is_held:
                readers = {reader for row in self.rows(operand) for reader in self.columns.readers[row]}
                return [row for row in sorted(readers) if self.is_over(wanted, row)]
        return []

    def inverted(self, wanted: Wanted, row: int, seed: Wanted) -> int | None:
        """The row of the seed, were the row what is wanted."""
        if wanted is seed:
            return row
        recorded, found = self.columns.rows[row], None
        if recorded.opcode != wanted.opcode:
            return None
        for operand, at in zip(wanted.operands, recorded.operands, strict=True):
            if operand.is_seeded:
                below = self.inverted(operand, at, seed)
                if below is None or found not in (None, below):
                    return None
                found = below
            elif not self.fits(operand, at):
                return None
        return found
