"""The kinds with a register tile: direct, and packed where a block of an operand is copied first."""

from __future__ import annotations

from topos.backend.native.products.copies import Copies, left_functions, panel_shapes, ragged, right_functions
from topos.backend.native.products.frame import Work, frame
from topos.backend.native.products.grids import OFFSET_BYTES, grid_functions, list_rows, list_terms
from topos.backend.native.products.kind import Kind
from topos.backend.native.products.micro import Shape, Totals, micro, micro_name
from topos.backend.native.products.regions import Regions
from topos.backend.native.products.text import Text
from topos.backend.native.target import Target
from topos.reference.products import BLOCK


def tiled(kind: Kind, target: Target) -> str:
    """The text of a kernel that runs register tiles over row groups and panels, block of terms by block."""
    choice, regions = kind.choice, Regions(kind)
    waits = choice.blocks > 1 or regions.keeps
    totals = Totals(regions.row_bytes, regions.in_out, regions.chains_bytes) if waits else None
    parts = [frame(kind, regions, lambda text, work: _Tile(kind, regions, text, work).blocks())]
    for rows, _ in choice.rows.sizes:
        parts += [micro(kind, shape, totals) for shape in _shapes(kind, rows)]
    parts += left_functions(kind, target) if choice.packs_left and choice.shared != "left" else []
    parts += right_functions(kind) if choice.packs_right and choice.shared != "right" else []
    parts += grid_functions(kind, choice.task.left_grid) if choice.task.left_grid is not None else []
    return "\n".join(parts)


def _shapes(kind: Kind, rows: int) -> list[Shape]:
    """The register tiles of so many rows that occur."""
    shapes = [Shape(rows, *panel) for panel in panel_shapes(kind)]
    return [*shapes[:-2], shapes[-1]._replace(is_ragged=True)] if ragged(kind) else shapes


class _Tile:
    """The loops inside one tile of work."""

    def __init__(self, kind: Kind, regions: Regions, text: Text, work: Work) -> None:
        self.kind, self.regions, self.text, self.work = kind, regions, text, work
        self.tail = kind.choice.task.columns % kind.lanes.width
        self.first, self.last, self.shared = "true", "true", work.shared
        self.terms = kind.terms(text)
        self.copies = Copies(kind, regions, text, work.left, work.right, self.terms, (work.product, "0"))

    def blocks(self) -> None:
        """Every block of terms."""
        text, task = self.text, self.kind.choice.task
        if self.kind.choice.blocks == 1:
            return self.block()
        blocks = str(self.kind.choice.blocks)
        if self.kind.reach == "terms":
            blocks = text.let(f"udiv i64 {text.add(self.terms, BLOCK - 1)}, {BLOCK}")
        final = text.add(blocks, -1) if self.kind.reach == "terms" else str(self.kind.choice.blocks - 1)

        def one(block: str) -> None:
            start = text.mul(block, BLOCK)
            terms = text.least(text.let(f"sub i64 {self.terms}, {start}"), BLOCK)
            self.first = text.let(f"icmp eq i64 {block}, 0")
            self.last = text.let(f"icmp eq i64 {block}, {final}")
            left = text.at(self.work.left, text.mul(start, task.left[1] * self.kind.left.item_bytes))
            right = text.at(self.work.right, text.mul(start, task.right[0] * self.kind.right.item_bytes))
            self.copies = Copies(self.kind, self.regions, text, left, right, terms, (self.work.product, start))
            if self.kind.choice.shared:
                self.shared = text.at(self.work.shared, text.mul(block, self.regions.block_bytes))
            self.block()

        text.loop("0", blocks, 1, lambda block, _: one(block))
        return None

    def block(self) -> None:
        """One block: pack what this tile packs, run the register tiles."""
        text, choice, work = self.text, self.kind.choice, self.work
        if choice.task.left_grid is not None:
            first = text.add(text.mul(work.product, choice.task.left_grid.step), choice.task.left_grid.first)
            list_terms(self.kind, text, self._grid(0), text.add(first, self.copies.place[1]), self.copies.terms)
        if choice.packs_left and choice.shared != "left":
            self.copies.groups(*work.groups, work.groups[0], work.scratch)
        if not choice.packs_right:
            return self.chunk(*work.panels)

        def one(first: str) -> None:
            end = text.least(text.add(first, choice.chunk), work.panels[1])
            if choice.shared != "right":
                self.copies.panels(first, end, first, text.at(work.scratch, self.regions.right))
            self.chunk(first, end)

        text.loop(*work.panels, choice.chunk, lambda first, _: one(first))
        return None

    def chunk(self, first: str, end: str) -> None:
        """Register tiles over the row groups, and inside them over some panels."""

        def group(index: str) -> None:
            row = self.kind.choice.rows.start(self.text, index)
            self.kind.choice.rows.each(self.text, index, 0, 0, lambda rows, _: panels(index, row, rows))

        def panels(index: str, row: str, rows: int) -> None:
            if self.kind.choice.task.left_grid is not None:
                list_rows(self.kind, self.text, self._grid(BLOCK), self.work.left, row, rows)
            self.text.loop(first, end, 1, lambda panel, _: self.tile(index, row, rows, panel, first))

        self.text.loop(*self.work.groups, 1, lambda index, _: group(index))

    def tile(self, group: str, row: str, rows: int, panel: str, first_panel: str) -> None:
        """The call of one register tile."""
        text, task, size = self.text, self.kind.choice.task, self.kind.lanes.item_bytes
        column = text.mul(self.kind.choice.panels.start(text, panel), self.kind.lanes.width)
        left, right = self.left(group, row), self.right(panel, column, first_panel)
        out = text.at(text.at(self.work.out, text.mul(row, task.out[0] * size)), text.mul(column, task.out[1] * size))
        waits = self.kind.choice.blocks > 1 or self.regions.keeps
        totals = self.totals(row, column, out) if waits else "poison"
        arguments = f"ptr {left}, ptr {right}, ptr {out}, ptr {totals}, i64 {self.copies.terms}"
        arguments += f", i1 {self.first}, i1 {self.last}, i64 {row}, i64 {column}"
        arguments += f", ptr %arguments, i64 {self.work.product}" * (self.kind.epilogue is not None)
        arguments += f", ptr {self._grid(BLOCK)}" if task.left_grid is not None else ""
        arguments += ", i64 %begun" * self.regions.keeps

        panels, is_ragged = self.kind.choice.panels, ragged(self.kind)

        def call(vectors: int, active: int) -> None:
            given = arguments
            if is_ragged and vectors == panels.small:
                active, given = self.tail, f"{arguments}, {self._mask(panel)}"
            text.do(f"call void {micro_name(self.kind, Shape(rows, vectors, active))}({given})")

        panels.each(text, panel, 0 if is_ragged else self.tail, self.kind.lanes.width, call)

    def _mask(self, panel: str) -> str:
        """The lanes of a panel's last vector that are columns, as bits."""
        text, bits = self.text, f"i{self.kind.lanes.width}"
        is_last = text.let(f"icmp eq i64 {panel}, {self.kind.choice.panels.groups - 1}")
        return f"{bits} {text.let(f'select i1 {is_last}, {bits} {(1 << self.tail) - 1}, {bits} -1')}"

    def left(self, group: str, row: str) -> str:
        """Where the left operand of a register tile begins."""
        choice = self.kind.choice
        if choice.task.left_grid is not None:
            return self._grid(0)
        if choice.shared == "left":
            return self.copies.group_place(self.shared, group, "0")
        if choice.packs_left:
            return self.copies.group_place(self.work.scratch, group, self.work.groups[0])
        return self.text.at(self.copies.left, self.text.mul(row, choice.task.left[0] * self.kind.left.item_bytes))

    def _grid(self, place: int) -> str:
        """The offsets of the terms, and behind those of a whole block the pointers of the rows."""
        return self.text.at(self.work.scratch, self.regions.grid + place * OFFSET_BYTES)

    def right(self, panel: str, column: str, first_panel: str) -> str:
        """Where the right operand of a register tile begins."""
        choice = self.kind.choice
        if choice.shared == "right":
            return self.copies.panel_place(self.shared, panel, "0")
        if choice.packs_right:
            place = self.text.at(self.work.scratch, self.regions.right)
            return self.copies.panel_place(place, panel, first_panel)
        return self.text.at(self.copies.right, self.text.mul(column, self.kind.right.item_bytes))

    def totals(self, row: str, column: str, out: str) -> str:
        """Where the totals of a register tile wait."""
        if self.regions.in_out:
            return out
        text, choice = self.text, self.kind.choice
        top = choice.rows.start(text, self.work.groups[0])
        start = text.mul(choice.panels.start(text, self.work.panels[0]), self.kind.lanes.width)
        down = text.mul(text.let(f"sub i64 {row}, {top}"), self.regions.row_bytes)
        along = text.mul(text.let(f"sub i64 {column}, {start}"), self.kind.lanes.wide_bytes)
        return text.at(text.at(text.at(self.work.scratch, self.regions.totals), down), along)
