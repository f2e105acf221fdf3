"""Which rows become one kernel: a schedule of rows to a schedule of groups.

Elementwise rows of one shape share a loop, in registers; reductions of one axis share it with what they read and with
what reads them; movement is folded into addressing; everything else stands alone. Groups run in order, and a group
reads only what earlier ones stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from topos.backend.native.absorption import absorb
from topos.backend.native.padding import inlined_pads, padded
from topos.backend.native.placement import WHOLE, Placement
from topos.backend.native.registers import Operand
from topos.backend.native.selections import with_dense_selections
from topos.backend.native.signs import Signs
from topos.backend.native.views import View, dense, moved
from topos.backend.native.widening import widened_by_products
from topos.engine.liveness import volume
from topos.graph.spec import Spec
from topos.op import Cast, Elementwise, MatMul, Movement, Opcode, Pad, Stop, Sum
from topos.op.reduction import AlongAxis
from topos.shape import Shape
from topos.tensor import Tensor

MOST_SCHEDULED = 1 << 16
"""Rows that are compiled whatever they hold: writing their text takes a few seconds."""
WORTH_A_ROW = 1024
"""Numbers per row, on average, that are worth compiling more rows than that."""


def declined(spec: Spec, scheduled: Sequence[int]) -> str | None:
    """Why a schedule is not worth native code: it would take far longer to compile than to interpret."""
    count = len(scheduled)
    if count <= MOST_SCHEDULED or sum(spec.rows[row].shape.volume for row in scheduled) >= WORTH_A_ROW * count:
        return None
    return f"{count} nodes of few numbers each take longer to compile than to interpret"


class Group(NamedTuple):
    """Rows that one kernel computes, in order; the last one gives it its name.

    `reads` are the operands in memory, `writes` the rows whose values are stored; the others live in registers. `axis`
    is the one that its reductions take, `WHOLE` for all of them together. `why` says why the first row began a group.
    `stages` are the groups that run as this one, a block of rows at a time; those of a group that is none are empty.
    A stage that `crosses` is a product whose terms are those rows.
    """

    shape: Shape
    rows: list[int]
    reads: list[int]
    writes: list[int]
    axis: int | None = None
    why: str = ""
    stages: tuple[Group, ...] = ()
    crosses: bool = False


class Lowering:
    """The groups of a schedule, and for each row where its value is read.

    `spec` is the one given, or one with more rows at its end. `views` has every row whose value is in memory,
    `constants` the rows that are one number at every place, as tensors of rank 0, `written_as` for a row the result in
    whose buffer it is stored. A reshape whose strides do not merge
    is a group of its own.
    """

    reach: Operand | None = None
    """How many places of a row are walked along, where that is known at run time."""

    def __init__(self, spec: Spec, scheduled: Sequence[int], kept: Iterable[int]) -> None:
        self.spec, scheduled = with_dense_selections(spec, scheduled)
        self.kept = frozenset(kept)
        self.views: dict[int, View] = {}
        self.constants: dict[int, Tensor] = {}
        self.written_as: dict[int, int] = {}
        self._inlined, self._written = inlined_pads(self.spec, scheduled, self.kept)
        self._placement = Placement(self.spec, self.views)
        self._signs = Signs(self.spec, self.constants)
        self._widened = widened_by_products(self.spec, scheduled, self.kept)
        for row in scheduled:
            self._place(row)
            self._signs.meet(row)
        absorb(self._placement, self.spec, self.views, self.kept)
        self.groups = self._groups()

    def view(self, row: int) -> View:
        """Where a row is read: in memory, or the one number of a constant again and again."""
        if row in self.constants:
            return View(row, 0, self.spec.rows[row].shape, (0,) * self.spec.rows[row].shape.rank)
        return self.views[row]

    def is_one_hot(self, row: int) -> bool:
        """Whether a row is read off the ids of a selection."""
        view = self.views.get(row)
        return view is not None and self.spec.is_selection(view.row)

    def is_across(self, row: int) -> bool:
        """Whether a row holds one number for each row of its group's shape, and not one for each place."""
        return row in self._placement.across

    def is_read_later(self, row: int) -> bool:
        """Whether a group after the row's own reads what it stores."""
        return row in self._read_later

    def last_reads(self) -> dict[int, int]:
        """For each row whose buffer any group reads, the last group that does."""
        return {self.views[operand].row: at for at, group in enumerate(self.groups) for operand in group.reads}

    # one row after another
    def _place(self, row: int) -> None:
        opcode = self.spec.rows[row].opcode
        if opcode.is_source:
            self._source(row, opcode)
        elif not self._is_number(row, opcode) and not self._is_address(row, opcode):
            if isinstance(opcode, Elementwise | Cast):
                self._placement.elementwise(row)
            elif isinstance(opcode, Sum | AlongAxis):
                self._placement.reduction(row)
            elif isinstance(opcode, MatMul):
                self._placement.product(row)
            else:
                self._placement.alone(row, f"{opcode.name} has a kernel of its own")
            self.views[row] = dense(row, self.spec.rows[row].shape)

    def _source(self, row: int, opcode: Opcode) -> None:
        payload = self.spec.payloads.get(row) if opcode.name == "Leaf" else None
        constant = payload.as_constant() if payload is not None else None
        if constant is None:
            self.views[row] = dense(row, self.spec.rows[row].shape)
        else:
            self.constants[row] = constant

    def _is_number(self, row: int, opcode: Opcode) -> bool:
        """Whether a row is worked out here, once, since its operands are one number everywhere."""
        operands = self.spec.rows[row].operands
        if not isinstance(opcode, Elementwise | Cast) or not all(operand in self.constants for operand in operands):
            return False
        with np.errstate(all="ignore"):
            self.constants[row] = opcode.express([self.constants[operand] for operand in operands])
        return True

    def _is_address(self, row: int, opcode: Opcode) -> bool:
        """Whether a row is another one's numbers, read elsewhere or as they are; a result has a buffer of its own."""
        if isinstance(opcode, Movement) and self.spec.rows[row].operands[0] in self.constants:
            self.constants[row] = self.constants[self.spec.rows[row].operands[0]]
            return True
        if row in self.kept:
            return False
        if isinstance(opcode, Movement):
            view = self.moved(row)
        elif row in self._widened:
            view = self._narrow(self.spec.rows[row].operands[0])
        elif isinstance(opcode, Pad):
            view = self._padded(row, opcode)
        else:
            copied = self.spec.rows[row].operands[0] if isinstance(opcode, Stop) else self._signs.zero_addend(row)
            if copied in self.constants:
                self.constants[row] = self.constants[copied]
                return True
            view = None if copied is None or self.is_one_hot(copied) else self.views[copied]
            view = None if view is not None and view.guards and row in self._written else view
        if view is not None:
            self.views[row] = view
        return view is not None

    def _narrow(self, operand: int) -> View | None:
        """Where a product reads numbers that it widens itself."""
        if operand in self.constants or self.is_one_hot(operand) or self.views[operand].guards:
            return None
        return self.views[operand]

    def _padded(self, row: int, opcode: Pad) -> View | None:
        """A pad that is nothing but where its operand is read, where its readers can ask."""
        (operand,) = self.spec.rows[row].operands
        if row not in self._inlined or operand in self.constants or self.is_one_hot(operand):
            return None
        return padded(self.views[operand], opcode, self.spec.rows[row].shape)

    def moved(self, row: int) -> View | None:
        """Where a movement's numbers are read in its operand's buffer, or `None` where they have to be copied."""
        (operand,) = self.spec.rows[row].operands
        opcode = self.spec.rows[row].opcode
        assert isinstance(opcode, Movement)
        view = self.views[operand]
        ids = self.spec.is_selection(view.row)
        return moved(view, opcode, self.spec.rows[view.row].shape.volume if ids else volume(self.spec, view.row))

    # what is stored
    def _groups(self) -> list[Group]:
        drafts, home = self._placement.drafts, self._placement.home
        reads: list[dict[int, None]] = []
        self._read_later: set[int] = set()
        for at, draft in enumerate(drafts):
            read: dict[int, None] = {}
            for row in draft.rows:
                for operand in self.spec.rows[row].operands:
                    if operand in self.constants:
                        continue
                    base = self.views[operand].row
                    if home.get(base) != at:
                        read[operand] = None
                        self._read_later.add(base)
            reads.append(read)
        groups = []
        for draft, read in zip(drafts, reads, strict=True):
            writes = [row for row in draft.rows if row in self.kept or row in self._read_later]
            if writes:
                groups.append(Group(draft.shape, draft.rows, list(read), writes, draft.axis, draft.why))
        return groups

    def describe(self) -> str:
        """One line per group: its rows by stage, what it reads and stores, its axis, why it is no part of another."""
        lines = []
        for at, group in enumerate(self.groups):
            stages = [
                [f"{row}:{self.spec.rows[row].opcode.name}" for row in stage.rows] for stage in group.stages or [group]
            ]
            names = " | ".join(" ".join(stage) for stage in stages)
            reads, writes = (", ".join(map(str, part)) for part in (group.reads, group.writes))
            axis = "" if group.axis is None else " whole" if group.axis == WHOLE else f" along {group.axis}"
            told = f"{at:>4}  {group.shape!s:13}{axis}  {names}  reads {reads or 'nothing'}  stores {writes}"
            lines.append(f"{told}  ({group.why})")
        return "\n".join(lines)
