"""A lowering at one block of rows of one matrix: what a stage of a cascade is written for."""

from __future__ import annotations

from collections.abc import Iterator

from topos.backend.native.groups import Group, Lowering
from topos.backend.native.products.text import Text
from topos.backend.native.program import Pointer
from topos.backend.native.views import View
from topos.graph.spec import Spec
from topos.op import Fold, MatMul
from topos.records import NamedTuple
from topos.reference.products import BLOCK
from topos.shape import Shape

BLOCK_BYTES = 1 << 15
"""What one value of a block takes at most, so that the nearest cache holds it, beside a line of it at least."""
FEWEST_ROWS, MOST_ROWS = 16, 128


class Source(NamedTuple):
    """Where an operand of a stage is in the memory of the plan: its first number, and its steps in bytes.

    `leading` are the steps of the axes before the matrices, `down` the step from row to row of the block (or from image
    to image), which is 0 for what each block reads as a whole.
    """

    pointer: Pointer
    leading: tuple[int, ...]
    down: int


class Block(Lowering):
    """`rows` rows of one matrix of a cascade, or images of one that folds, as if there were no others.

    Values of the stages keep their rows; what is read from outside has a buffer for each operand, named by it, and
    `source` says where that is.
    """

    def __init__(self, lowering: Lowering, group: Group, rows: int) -> None:
        self._whole, self._group, self.rows = lowering, group, rows
        first = group.stages[0].shape
        self.folds = isinstance(lowering.spec.rows[group.stages[-1].rows[-1]].opcode, Fold)
        self.leading, self.all_rows = first[:-2], group.shape[0] if self.folds else first[-2]
        self.kept, self.constants = lowering.kept, lowering.constants
        self._placement, self._read_later = lowering._placement, set()
        self.axes = self._axes()
        self.inside = {row for stage in group.stages for row in stage.rows}
        self.spec = Spec(lowering.spec.element)
        self.spec.rows = list(lowering.spec.rows)
        self.views = dict[int, View]()
        for row in self._met():
            self._cut(row)
        self.groups = [self._stage(stage) for stage in group.stages]

    def _axes(self) -> dict[int, int | None]:
        """The axis of a matrix that is the rows, where it is not the first; `None` where there is no such axis."""
        axes: dict[int, int | None] = {}
        for stage in self._group.stages:
            rows = self._whole.spec.rows
            recorded = rows[stage.rows[0]]
            if stage.crosses:
                axes.update(dict.fromkeys(operand for row in stage.rows for operand in (row, *rows[row].operands)))
                axes.update(zip(recorded.operands, (1, 0), strict=True))
            elif isinstance(recorded.opcode, MatMul):
                axes[recorded.operands[1]] = None
        return axes

    def _met(self) -> Iterator[int]:
        """Every row that the stages compute or read."""
        for row in sorted(self.inside):
            yield from self._whole.spec.rows[row].operands
            yield row

    def _cut(self, row: int) -> None:
        """The block's part of a row's shape and view."""
        recorded = self._whole.spec.rows[row]
        shape, element = self._extents(row), recorded.element
        view = self._whole.views.get(row)
        if view is not None and row not in self.constants:
            steps = view.strides[len(self.leading) :]
            if view.row in self.inside:
                self.views[row] = View(view.row, 0, shape, steps)
            else:
                self.views[row] = View(row, 0, shape, steps)
                element = self._whole.spec.element_of(view.row)
        self.spec.rows[row] = recorded._replace(shape=shape, element=element)

    def _extents(self, row: int) -> Shape:
        extents = list(self._whole.spec.rows[row].shape[len(self.leading) :])
        axis = self.axes.get(row, 0)
        if axis is not None:
            extents[axis] = self._part(extents[axis])
        return Shape(extents)

    def _part(self, extent: int) -> int:
        """How much of an axis of rows is the block's; an image has several."""
        return extent // self.all_rows * self.rows

    def _stage(self, stage: Group) -> Group:
        if stage.crosses:
            return stage._replace(shape=self._extents(stage.rows[0]))
        first, *rest = stage.shape[len(self.leading) :]
        shape = Shape((self._part(first), *rest))
        return stage._replace(shape=shape, axis=None if stage.axis is None else 1)

    def first(self, text: Text, begun: str) -> str:
        """The first row of a block before which so many rows are done: the last block of all is moved back."""
        return begun if self.all_rows % self.rows == 0 else text.least(begun, self.all_rows - self.rows)

    def interiors(self) -> list[int]:
        """The rows that only later stages read."""
        stored = set(self._group.writes)
        return [row for stage in self._group.stages for row in stage.writes if row not in stored]

    def bytes_of(self, row: int) -> int:
        """The size of the block's part of a row."""
        return self.spec.rows[row].shape.volume * self.spec.element_of(row).dtype.itemsize

    def source(self, row: int) -> Source:
        """Where a buffer of the block, an operand's or a stage's, is in the plan."""
        spec = self._whole.spec
        view = self._whole.views[row]
        size = spec.element_of(view.row).dtype.itemsize
        steps = [step * size for step in view.strides]
        count = len(self.leading)
        axis = self.axes.get(row, 0)
        down = 0 if axis is None else steps[count + axis] * (view.shape[count + axis] // self.all_rows)
        return Source(Pointer(view.row, view.offset * size), tuple(steps[:count]), down)


def most_rows(lowering: Lowering, group: Group) -> int:
    """The rows of which no value takes more than the cache allows."""
    columns = group.stages[0].shape[-1]
    item = lowering.spec.element_of(group.stages[0].rows[0]).dtype.itemsize
    return max(FEWEST_ROWS, min(MOST_ROWS, BLOCK_BYTES // (columns * item)))


def even_rows(rows: int, most: int) -> int:
    """The rows of a block: even shares of all rows, of which the last one may be moved back."""
    return -(-rows // -(-rows // most))


def block_rows(rows: int, most: int) -> int:
    """The same where terms are summed: a block ends where every 512 rows do."""
    return even_rows(rows, most) if rows <= BLOCK else 1 << min(most, BLOCK).bit_length() - 1
