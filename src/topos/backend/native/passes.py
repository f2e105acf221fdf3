"""When each value of a group is known: a row is walked again wherever something needs the whole of it first."""

from __future__ import annotations

from collections.abc import Iterable

from topos.backend.native.costs import is_dear
from topos.backend.native.groups import Group, Lowering
from topos.op import Div, LogSoftmax, LogSumExp, MaxAlong, Reduction
from topos.op.maps import Sqrt
from topos.records import NamedTuple

CHEAP, CHEAP_FAR = 3, 16
"""Operations that are done again rather than kept for a later pass; or so, where a row leaves the nearest caches."""
FAR = 1 << 15
"""Places along an axis from which on what is kept of all of them leaves the caches before it is read again."""


class Gathered(NamedTuple):
    """What a pass accumulates: the largest of a reduction's terms, their sum, or that of their exponentials."""

    row: int
    kind: str


class Passes:
    """The passes over a row of a group.

    `stage` is the first pass that can evaluate a row; for one number per row, the pass before which it is known.
    `gathered`, `evaluated`, `recalled` and `stored` say per pass what is accumulated, worked out, read back and
    written; `kept` are the rows that a later pass reads back from memory that is nobody's result.
    """

    def __init__(self, lowering: Lowering, group: Group) -> None:
        self._lowering = lowering
        self._group = group
        self._inside = set(group.rows)
        self.stage: dict[int, int] = {}
        self._costs: dict[int, int] = {}
        self._cheap = CHEAP if group.axis is None or group.axis < 0 or group.shape[group.axis] < FAR else CHEAP_FAR
        gathered: list[tuple[int, Gathered]] = []
        for row in group.rows:
            gathered += self._met(row)
        stored = [(self.stage[row], row) for row in group.writes if not lowering.is_across(row)]
        self.count = 1 + max((at for at, _ in [*gathered, *stored]), default=-1)
        self.gathered = [[what for at, what in gathered if at == index] for index in range(self.count)]
        self.stored = [[row for at, row in stored if at == index] for index in range(self.count)]
        self.evaluated: list[list[int]] = [[] for _ in range(self.count)]
        self.recalled: list[list[int]] = [[] for _ in range(self.count)]
        self.kept: set[int] = set()
        self._wanted = [
            {*self.stored[index], *self._bases(self.operand(what.row) for what in self.gathered[index])}
            for index in range(self.count)
        ]
        for index in reversed(range(self.count)):
            self._walk(index)

    def operand(self, row: int) -> int:
        """What a reduction reduces."""
        return self._lowering.spec.rows[row].operands[0]

    def base(self, operand: int) -> int | None:
        """The row of the group whose register holds an operand; `None` for what is read from memory or constant."""
        if operand in self._lowering.constants:
            return None
        base = self._lowering.views[operand].row
        return base if base in self._inside else None

    def across(self, stage: int) -> list[int]:
        """The elementwise rows of one number per row that are known before a pass."""
        return [
            row
            for row in self._group.rows
            if self._lowering.is_across(row) and self.stage[row] == stage and not self._is_reduction(row)
        ]

    def _is_reduction(self, row: int) -> bool:
        return isinstance(self._lowering.spec.rows[row].opcode, Reduction)

    def _met(self, row: int) -> list[tuple[int, Gathered]]:
        recorded = self._lowering.spec.rows[row]
        bases = [base for base in map(self.base, recorded.operands) if base is not None]
        at = max((self.stage[base] for base in bases), default=0)
        opcode = recorded.opcode
        full = [base for base in bases if not self._lowering.is_across(base)]
        heavy = 4 if isinstance(opcode, Div | Sqrt) else 1
        own = 2 if isinstance(opcode, LogSoftmax) else 100 if is_dear(self._lowering.spec, row) else heavy
        self._costs[row] = min(100, own + sum(self._costs[base] for base in full))
        if not self._is_reduction(row):
            self.stage[row] = at
            return []
        if isinstance(opcode, LogSumExp | LogSoftmax):
            self.stage[row] = at + 2
            return [(at, Gathered(row, "largest")), (at + 1, Gathered(row, "exponentials"))]
        self.stage[row] = at + 1
        return [(at, Gathered(row, "largest" if isinstance(opcode, MaxAlong) else "sum"))]

    def _bases(self, operands: Iterable[int]) -> list[int]:
        """The operands that are values of this group at each place."""
        bases = [self.base(operand) for operand in operands]
        return [base for base in bases if base is not None and not self._lowering.is_across(base)]

    def _walk(self, index: int) -> None:
        """What a pass evaluates and reads back, from what it wants."""
        evaluated: set[int] = set()
        recalled: set[int] = set()
        waiting = list(self._wanted[index])
        while waiting:
            row = waiting.pop()
            if row in evaluated or row in recalled:
                continue
            if self.stage[row] < index and self._costs[row] > self._cheap:
                recalled.add(row)
                self._wanted[self.stage[row]].add(row)
                if row not in self._group.writes:
                    self.kept.add(row)
                continue
            evaluated.add(row)
            waiting += self._bases(self._lowering.spec.rows[row].operands)
        self.evaluated[index] = [row for row in self._group.rows if row in evaluated]
        self.recalled[index] = [row for row in self._group.rows if row in recalled]
