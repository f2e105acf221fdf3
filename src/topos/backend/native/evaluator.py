"""The values of a group's rows in registers, at a place of its shape or for a row of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from topos.backend.native.groups import Group
from topos.backend.native.nest import Frame
from topos.backend.native.reads import Place
from topos.backend.native.vocabulary import Lanes, NativeReading
from topos.element import Element
from topos.op import Cast, Elementwise

Value = Callable[[int, Element], Lanes]
"""An operand's lanes, in the element wanted where it has none of its own."""


class Known(Protocol):
    """What is the same all along a row."""

    def __call__(self, operand: int, base: int | None) -> Lanes | None:
        """The lanes of an operand that is this row of the group, or is read from memory; `None` where it varies."""


class Evaluator:
    """Applies elementwise rows to operands in registers; each load is written once per place."""

    def __init__(self, frame: Frame, group: Group) -> None:
        self.frame = frame
        self.lowering = frame.lowering
        self.inside = set(group.rows)

    def base(self, operand: int) -> int | None:
        """The row of the group that an operand is, or `None` where it is read from memory or constant."""
        if operand in self.lowering.constants:
            return None
        base = self.lowering.views[operand].row
        return base if base in self.inside else None

    def apply(self, row: int, reading: NativeReading, value: Value) -> Lanes:
        """An elementwise row."""
        frame = self.frame
        recorded = frame.spec.rows[row]
        own = frame.element(row)
        m = frame.arithmetic(own, reading)
        if isinstance(recorded.opcode, Cast):
            (operand,) = recorded.operands
            source = own if self.lowering.is_one_hot(operand) else frame.element(operand)
            return m.cast(value(operand, source), frame.arithmetic(source, reading))
        assert isinstance(recorded.opcode, Elementwise)
        result = recorded.opcode.body(m, *[value(operand, own) for operand in recorded.operands])
        assert isinstance(result, Lanes)
        return result

    def values(
        self, place: Place, held: dict[int, Lanes], known: Known | None = None, reading: NativeReading | None = None
    ) -> Value:
        """Operands at a place: held, known, constant or loaded there."""
        loaded: dict[tuple[int, str], Lanes] = {}

        def value(operand: int, wanted: Element) -> Lanes:
            base = self.base(operand)
            if base is not None and base in held:
                return held[base]
            found = known(operand, base) if known is not None else None
            if found is not None:
                return found
            key = operand, wanted.name
            if key not in loaded:
                loaded[key] = self.frame.value(operand, place, wanted, reading)
            return loaded[key]

        return value

    def evaluate(self, rows: Iterable[int], held: dict[int, Lanes], value: Value) -> None:
        """Elementwise rows in order, into `held`."""
        for row in rows:
            if row not in held:
                held[row] = self.apply(row, self.frame.reading, value)


def needed(frame: Frame, group: Group) -> list[int]:
    """The rows of a group, in order, that what it stores depends on."""
    inside, lowering = set(group.rows), frame.lowering
    wanted = set(group.writes)
    for row in reversed(group.rows):
        if row in wanted:
            operands = [o for o in frame.spec.rows[row].operands if o not in lowering.constants]
            wanted.update(base for base in (lowering.views[o].row for o in operands) if base in inside)
    return [row for row in group.rows if row in wanted]
