"""Which rows become one kernel: a schedule of rows to a schedule of groups.

Elementwise rows of one shape share a loop, in registers; reductions of one axis share it with what they read and with
what reads them; movement is folded into addressing; everything else stands alone. Groups run in order, and a group
reads only what earlier ones stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from topos.backend.native.absorption import absorb, walk_once
from topos.backend.native.drafts import Prologue
from topos.backend.native.folding import Folding, folded_alone
from topos.backend.native.gridding import gridded, gridded_rows, turned
from topos.backend.native.padding import inlined_pads, padded
from topos.backend.native.placement import Placement
from topos.backend.native.prologues import Prologues
from topos.backend.native.readers import Readers
from topos.backend.native.rearranging import Rearranging, cut_rows, settled_rows
from topos.backend.native.recomputing import Recomputing
from topos.backend.native.registers import Operand
from topos.backend.native.rings import Ring
from topos.backend.native.selections import with_dense_selections
from topos.backend.native.signs import Signs
from topos.backend.native.views import View, dense, moved
from topos.backend.native.widening import widened_by_products
from topos.engine.liveness import volume
from topos.graph.spec import Spec
from topos.op import Cast, Elementwise, Fold, MatMul, Movement, Opcode, Pad, Stop, Sum
from topos.op.reduction import AlongAxis
from topos.records import NamedTuple
from topos.shape import Shape
from topos.tensor import Tensor


class Group(NamedTuple):
    """Rows that one kernel computes, in order; the last one gives it its name.

    `reads` are the operands in memory, `writes` the rows whose values are stored; the others live in registers. `axis`
    is the one that its reductions take, `WHOLE` for all of them together. `why` says why the first row began a group.
    `prologues` are the operands, by position, that a product works out as it packs them. `stages` are the groups that
    run as this one, a block of rows at a time; those of a group that is none are empty. A stage that `crosses` is a
    product whose terms are those rows. One that is `in_lines` works out all that its rows are made of at the places of
    what it stores, of which its shape is.
    """

    shape: Shape
    rows: list[int]
    reads: list[int]
    writes: list[int]
    axis: int | None = None
    why: str = ""
    prologues: Mapping[int, Prologue] = {}
    stages: tuple[Group, ...] = ()
    crosses: bool = False
    in_lines: bool = False


class Lowering:
    """The groups of a schedule, and for each row where its value is read.

    `spec` is the one given, or one with more rows at its end. `views` has every row whose value is in memory,
    `constants` the rows that are one number at every place, as tensors of rank 0, `written_as` for a row the result in
    whose buffer it is stored. A reshape whose strides do not merge is a group of its own.
    """

    reach: Operand | None = None
    """How many places of a row are walked along, where that is known at run time."""
    rings: Mapping[int, Ring] = {}
    """For a fold of some rows of an image, where it finds its windows."""

    def __init__(self, spec: Spec, scheduled: Sequence[int], kept: Iterable[int]) -> None:
        self.spec, scheduled = with_dense_selections(spec, scheduled)
        self.kept = frozenset(kept)
        self._recorded = len(spec.rows)
        self.views: dict[int, View] = {}
        self.constants: dict[int, Tensor] = {}
        self.written_as: dict[int, int] = {}
        self._inlined, self._written = inlined_pads(self.spec, scheduled, self.kept)
        self._placement = Placement(self.spec, self.views)
        self._signs = Signs(self.spec, self.constants)
        self._gridded = gridded_rows(self.spec, scheduled, self.kept)
        self._widened = widened_by_products(self.spec, scheduled, self.kept)
        settled = settled_rows(self.spec, scheduled, self.kept)
        cut = cut_rows(self.spec, scheduled)
        self._rearranging = Rearranging(self.spec, self.views, self.constants, self._placement, settled, cut)
        alone = folded_alone(self.spec, scheduled, self.kept)
        self._folding = Folding(self.spec, self.views, self._placement, self._rearranging, alone, self.kept)
        for row in scheduled:
            self._place(row)
            self._signs.meet(row)
        readers = Readers(self._placement, self.spec, self.views)
        absorb(self._placement, self.spec, self.views, self.kept, readers)
        Recomputing(self._placement, self.spec, self.views, self.kept, readers).run()
        walk_once(self._placement, self.spec, self.views)
        folded = self._folding.products
        Prologues(self._placement, self.spec, self.views, self._widened, self.kept, readers, folded).fold()
        self.groups = self._groups()

    def view(self, row: int) -> View:
        """Where a row is read: in memory, or the one number of a constant again and again."""
        if row in self.constants:
            return View(row, 0, self.spec.rows[row].shape, (0,) * self.spec.rows[row].shape.rank)
        return self.views[row]

    def recorded(self, row: int) -> int:
        """The row of the spec given that a row is, or is computed for."""
        while row >= self._recorded:
            origin = self.spec.rows[row].origin
            assert origin is not None
            row = origin
        return row

    def is_one_hot(self, row: int) -> bool:
        """Whether a row is read off the ids of a selection."""
        view = self.views.get(row)
        return view is not None and self.spec.is_selection(view.row)

    def is_across(self, row: int) -> bool:
        """Whether a row holds one number for each row of its group's shape, and not one for each place."""
        return row in self._placement.across

    def wanted(self, rows: Sequence[int], writes: Iterable[int]) -> list[int]:
        """Those of a draft's rows that any row written is worked out from."""
        wanted = set(writes)
        for row in reversed(rows):
            if row in wanted:
                wanted.update(
                    self.views[operand].row for operand in self.spec.rows[row].operands if operand in self.views
                )
        return [row for row in rows if row in wanted]

    def is_read_later(self, row: int) -> bool:
        """Whether a group after the row's own reads what it stores."""
        return row in self._read_later

    def last_reads(self) -> dict[int, int]:
        """For each row whose buffer any group reads, the last group that does."""
        return {self.views[operand].row: at for at, group in enumerate(self.groups) for operand in group.reads}

    def copied(self, row: int) -> int | None:
        """The operand that a row copies bit for bit, or moves; `None` where it computes something."""
        recorded = self.spec.rows[row]
        if isinstance(recorded.opcode, Movement | Stop):
            return recorded.operands[0]
        return self._signs.zero_addend(row)

    # one row after another
    def _place(self, row: int) -> None:
        opcode = self.spec.rows[row].opcode
        if row < self._recorded:
            self._placement.reach(row)
        if opcode.is_source:
            self._source(row, opcode)
        elif (rows := self._rearranging.apart(row)) is not None:
            for added in rows:
                self._place(added)
                self._signs.meet(added)
            self.views[row] = self.views[rows[-1]]
            self._signs.meet_as(row, rows[-1])
        elif not self._is_number(row, opcode) and not self._is_address(row, opcode):
            row = (self._folding if isinstance(opcode, Fold) else self._rearranging).instead(row)
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
            copied = self.copied(row)
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
        if view.grid is not None:
            return turned(view, opcode)
        ids = self.spec.is_selection(view.row)
        size = self.spec.rows[view.row].shape.volume if ids else volume(self.spec, view.row)
        found = moved(view, opcode, size)
        return gridded(view, self.spec.rows[row].shape, size) if found is None and row in self._gridded else found

    # what is stored
    def _groups(self) -> list[Group]:
        """The drafts, but for rows that nobody reads any more: what the last one reads, the ones before it store."""
        self._read_later: set[int] = set()
        groups = []
        for at, draft in reversed(list(enumerate(self._placement.drafts))):
            writes = [row for row in draft.rows if row in self.kept or row in self._read_later]
            if not writes:
                continue
            draft.rows = self.wanted(draft.rows, writes)
            operands = [(operand, self._outside(operand, at)) for operand in draft.operands(self.spec)]
            outside = {operand: base for operand, base in operands if base is not None}
            self._read_later.update(outside.values())
            groups.append(Group(draft.shape, draft.rows, list(outside), writes, draft.axis, draft.why, draft.prologues))
        return groups[::-1]

    def _outside(self, operand: int, at: int) -> int | None:
        """The row in whose buffer a draft reads an operand; `None` for what it has in registers or as a number."""
        base = None if operand in self.constants else self.views[operand].row
        return None if base is None or self._placement.home.get(base) == at else base
