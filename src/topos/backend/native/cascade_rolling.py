"""The kernel of a cascade that folds images by bands: windows band by band, in a ring that keeps those before them.

A place of the result adds up its offsets in the order in which a fold of the whole image does: all windows that it is
part of are there when it is computed.
"""

from __future__ import annotations

from topos.backend.native.cascade_band import Band
from topos.backend.native.cascade_bands import Bands
from topos.backend.native.cascade_stages import Stages
from topos.backend.native.contractions import contracted
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.kernel import head
from topos.backend.native.products import stage as product_stage
from topos.backend.native.products.frame import digit
from topos.backend.native.products.text import Text
from topos.backend.native.program import Call, Pointer
from topos.backend.native.target import Target
from topos.backend.native.writers import Writer

MOST_TILES = 16
"""Tiles of work; each worker has memory of its own."""


def banded(lowering: Lowering, group: Group, bands: Bands, target: Target, write: Writer) -> Call | None:
    """The kernel that runs the stages of a group band by band; `None` where one of them has none."""
    band = Band(lowering, group, bands)
    calls = [contracted(band, band.groups[0], target, product_stage)]
    calls += [write(band, stage, target) for stage in band.groups[1:]]
    written = [call for call in calls if call is not None]
    return _Rolling(band, bands, written).call() if len(written) == len(calls) else None


class _Rolling:
    """A kernel in the making."""

    def __init__(self, band: Band, bands: Bands, calls: list[Call]) -> None:
        self.band, self.bands, self.calls = band, bands, calls
        stored = [stage.rows[0] for stage in band.groups[:-1]]
        sizes = {row: band.bytes_of(row) for row in stored}
        self.rolled = stored[bands.crossing - 1] if bands.crossing < len(calls) else None
        if self.rolled is not None:
            self.row_bytes = sizes[self.rolled] // bands.rows
            sizes[self.rolled] = bands.ring * self.row_bytes
        self.stages = Stages(
            calls, sizes, ["%begun"] * len(calls), lasting=[] if self.rolled is None else [self.rolled]
        )
        self.pointers = list(dict.fromkeys(source.pointer for source in band.sources.values()))
        self.units = bands.images * bands.parts
        self.tiles = min(MOST_TILES, self.units)

    def call(self) -> Call:
        """The kernel and its operands."""
        return self.stages.call(self.pointers, self.tiles, self._text)

    def _text(self, name: str, helpers: dict[str, str]) -> str:
        self.text = text = Text(helpers)
        self.arguments, self.memory = self.stages.begin(text, len(self.pointers))
        first = text.share("%tile", self.tiles, self.units)
        end = text.share(text.add("%tile", 1), self.tiles, self.units)
        text.loop(first, end, 1, lambda unit, _: self._unit(unit))
        return text.function(head(name))

    def _unit(self, unit: str) -> None:
        """Some bands of an image: what all of them read is packed first, and the band before the first is computed."""
        text, bands = self.text, self.bands
        part, image = digit(text, unit, bands.parts)
        self.places = {
            row: text.at(self.arguments[self.pointers.index(source.pointer)], text.mul(image, source.image))
            for row, source in self.band.sources.items()
        }
        self._fill(0, "0")
        for kernel in self.calls[0].kernels[:-1]:
            self.stages.run(text, 0, kernel, "poison")
        first = text.share(part, bands.parts, bands.bands) if bands.parts > 1 else "0"
        end = text.share(text.add(part, 1), bands.parts, bands.bands) if bands.parts > 1 else str(bands.bands)
        if self.rolled is not None and bands.parts > 1 and bands.halo:
            text.when(text.less("0", first), lambda: self._windows(text.add(first, -1)))
        text.loop(first, end, 1, lambda band, _: self._band(band))

    def _band(self, band: str) -> None:
        text, bands = self.text, self.bands
        self._windows(band)
        if self.rolled is None:
            return
        if bands.bands == 1:
            self._results("0")
            return
        own = text.mul(self._first(band), bands.step)
        last = bands.all_results - bands.results
        # After the last windows come places that belong to no further band.
        is_last = text.let(f"icmp eq i64 {band}, {bands.bands - 1}")
        has_more = text.let(f"and i1 {is_last}, {text.less(own, last)}")
        turns = text.let(f"select i1 {has_more}, i64 2, i64 1")
        least = text.least(own, last)

        def turn(index: str, _: object) -> None:
            is_first = text.let(f"icmp eq i64 {index}, 0")
            self._results(text.let(f"select i1 {is_first}, i64 {least}, i64 {last}"))

        text.loop("0", turns, 1, turn)

    def _first(self, band: str) -> str:
        """The first row of windows of a band."""
        first = self.text.add(self.text.mul(band, self.bands.rows), -self.bands.ahead)
        if not self.bands.ahead:
            return first
        return self.text.let(f"select i1 {self.text.less(first, 0)}, i64 0, i64 {first}")

    def _windows(self, band: str) -> None:
        """The stages up to the fold along the rows."""
        first = self._first(band)
        for at in range(min(self.bands.crossing, len(self.calls))):
            self._fill(at, first)
            self.stages.run(self.text, at, self.calls[at].kernels[-1], "poison")

    def _results(self, first: str) -> None:
        """The fold along the rows and what follows it, for results from one on."""
        for at in range(self.bands.crossing, len(self.calls)):
            self._fill(at, first)
            self.stages.run(self.text, at, self.calls[at].kernels[-1], first)

    def _fill(self, at: int, first: str) -> None:
        """The arguments of a stage that computes rows from one on."""
        scratch = self.text.at(self.memory, self.stages.scratch[at])
        self.stages.fill(self.text, at, scratch, lambda operand: self._place(operand, at, first))

    def _place(self, operand: Pointer, at: int, first: str) -> str:
        text, bands = self.text, self.bands
        if operand.row not in self.stages.values:
            down = text.mul(first, self.band.sources[operand.row].row)
            return text.at(text.at(self.places[operand.row], down), operand.offset_bytes)
        place = text.at(self.memory, self.stages.values[operand.row] + operand.offset_bytes)
        if operand.row != self.rolled or at == bands.crossing or bands.bands == 1:
            return place
        row = text.let(f"urem i64 {text.add(first, bands.ahead)}, {bands.ring}")
        return text.at(place, text.mul(row, self.row_bytes))
