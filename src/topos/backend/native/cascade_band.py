"""A lowering at one band of an image: what a stage of a cascade that folds is written for."""

from __future__ import annotations

from topos.backend.native.cascade_bands import Bands, in_bands, operand_of
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.program import Pointer
from topos.backend.native.registers import INT64, Operand
from topos.backend.native.rings import Ring
from topos.backend.native.views import View, dense, dense_strides
from topos.graph.spec import Spec
from topos.records import NamedTuple
from topos.shape import Shape


class Source(NamedTuple):
    """Where an operand is in the memory of the plan; in bytes, how far its images and the rows of one are apart."""

    pointer: Pointer
    image: int
    row: int


class Band(Lowering):
    """A band of rows of one image, as if there were no others; `sources` says where what is not between stages is."""

    def __init__(self, lowering: Lowering, group: Group, bands: Bands) -> None:
        self._whole, self._bands = lowering, bands
        self.kept, self.constants = lowering.kept, lowering.constants
        self._placement, self._read_later = lowering._placement, set()
        self.spec = Spec(lowering.spec.element)
        self.spec.rows = list(lowering.spec.rows)
        self.views = dict[int, View]()
        self.sources: dict[int, Source] = {}
        self.result = group.stages[-1].rows[0]
        self.groups = [self._product(group.stages[0])]
        for at, stage in enumerate(group.stages[1:], 1):
            self.groups.append(self._fold(at, stage))
        if bands.crossing < len(group.stages):
            ring = Ring(Operand(INT64, "%begun"), bands.ahead, bands.ring)
            self.rings = {group.stages[bands.crossing].rows[0]: ring}

    def _product(self, stage: Group) -> Group:
        spec, bands, row = self._whole.spec, self._bands, stage.rows[0]
        left, right = spec.rows[row].operands
        every, width = spec.rows[row].shape
        wide = every // (bands.images * bands.windows)
        shape = Shape([wide * bands.rows, width])
        self._read(left, Shape([shape[0], spec.rows[left].shape[1]]), wide)
        self._read(right, spec.rows[right].shape, 0)
        self.views[row] = dense(row, shape)
        self.spec.rows[row] = spec.rows[row]._replace(shape=shape)
        return stage._replace(shape=shape)

    def _read(self, row: int, shape: Shape, down: int) -> None:
        """An operand of the product, of which a row of the image has so many; none where a band has all of it."""
        spec, view = self._whole.spec, self._whole.views[row]
        element = spec.element_of(view.row)
        size = element.dtype.itemsize
        step = down * view.strides[0] * size
        self.sources[row] = Source(Pointer(view.row, view.offset * size), self._bands.windows * step, step)
        self.views[row] = View(row, 0, shape, view.strides)
        self.spec.rows[row] = spec.rows[row]._replace(shape=shape, element=element)

    def _fold(self, at: int, stage: Group) -> Group:
        spec, bands, (row,) = self._whole.spec, self._bands, stage.rows
        operand = operand_of(self._whole, stage)
        cut = in_bands(self._whole.views[operand], bands.laid[at - 1], self._extent(at - 1))
        assert cut is not None
        view, axis = cut
        if operand not in self.views:
            self.views[operand] = view
            self.spec.rows[operand] = spec.rows[operand]._replace(shape=view.shape)
        whole = spec.rows[row]
        place = axis - (axis > whole.opcode.axis)  # type: ignore[attr-defined]
        shape = Shape([1, *whole.shape[1:place], self._extent(at), *whole.shape[place + 1 :]])
        self.views[row] = dense(row, shape)
        if row == self.result:
            size = spec.element_of(row).dtype.itemsize
            self.views[row] = View(row, 0, shape, dense_strides(whole.shape))
            image = whole.shape.volume // bands.images * size
            self.sources[row] = Source(Pointer(row, 0), image, bands.laid[at].step * size)
        self.spec.rows[row] = whole._replace(shape=shape)
        return stage._replace(shape=shape)

    def _extent(self, at: int) -> int:
        """How many rows a stage computes at a time."""
        return self._bands.rows if at < self._bands.crossing else self._bands.results

    def bytes_of(self, row: int) -> int:
        """The size of the band's part of a row."""
        return self.spec.rows[row].shape.volume * self.spec.element_of(row).dtype.itemsize
