"""The kinds with a register tile: direct, and packed where a block of an operand is copied first."""

from __future__ import annotations

from topos.backend.native.products.choice import BLOCK
from topos.backend.native.products.frame import Kind, Work, frame
from topos.backend.native.products.micro import Shape, Totals, micro, micro_name
from topos.backend.native.products.pack import pack_left, pack_right
from topos.backend.native.products.text import Text
from topos.backend.native.target import Target


class Regions:
    """The scratch of one tile: packed left, packed right and waiting totals, by their offsets in bytes."""

    def __init__(self, kind: Kind) -> None:
        choice, lanes = kind.choice, kind.lanes
        rows = -(-choice.rows.groups // choice.row_tiles) * choice.rows.largest
        columns = -(-choice.panels.groups // choice.column_tiles) * choice.panels.largest * lanes.width
        self.in_out = choice.task.out[1] == 1 and lanes.item == lanes.scalar
        waits = choice.blocks > 1 and not self.in_out
        self.row_bytes = choice.task.out[0] * lanes.wide_bytes if self.in_out else columns * lanes.wide_bytes
        # Packing the left operand may write a vector past its end.
        left = (rows * choice.depth + lanes.width) * lanes.wide_bytes
        self.right = _rounded(left * choice.packs_left)
        packed = choice.chunk * choice.panels.largest * lanes.width * choice.depth * lanes.wide_bytes
        self.totals = self.right + _rounded(packed * choice.packs_right)
        self.end = self.totals + _rounded(rows * columns * lanes.wide_bytes * waits)

    def waiting(self, kind: Kind) -> Totals | None:
        """How the register tile keeps totals between blocks."""
        return Totals(self.row_bytes, self.in_out) if kind.choice.blocks > 1 else None


def _rounded(size: int) -> int:
    return -(-size // 64) * 64


def scratch_bytes(kind: Kind) -> int:
    """What one tile needs."""
    return Regions(kind).end


def tiled(kind: Kind, target: Target) -> str:
    """The text of a kernel that runs register tiles over row groups and panels, block of terms by block."""
    regions = Regions(kind)
    text = frame(kind, regions.end, lambda text, work: _Tile(kind, regions, text, work).blocks())
    parts = [text]
    for rows, _ in kind.choice.rows.sizes:
        parts += [micro(kind, Shape(rows, *panel), regions.waiting(kind)) for panel in _panels(kind)]
        parts += [pack_left(kind, rows, target)] if kind.choice.packs_left else []
    parts += [pack_right(kind, *panel) for panel in _panels(kind)] if kind.choice.packs_right else []
    return "\n".join(parts)


def _panels(kind: Kind) -> list[tuple[int, int]]:
    """The (vectors, active lanes of the last one) that occur."""
    panels, width, tail = kind.choice.panels, kind.lanes.width, kind.choice.task.columns % kind.lanes.width
    found = [(panels.small + 1, width)] if panels.extra else []
    if not tail or panels.groups - panels.extra > 1:
        found.append((panels.small, width))
    return [*found, (panels.small, tail)] if tail else found


class _Tile:
    """The loops inside one tile of work."""

    def __init__(self, kind: Kind, regions: Regions, text: Text, work: Work) -> None:
        self.kind, self.regions, self.text, self.work = kind, regions, text, work
        self.tail = kind.choice.task.columns % kind.lanes.width
        self.first, self.last, self.terms = "true", "true", str(kind.choice.task.terms)
        self.left, self.right = work.left, work.right

    def blocks(self) -> None:
        """Every block of terms."""
        text, task = self.text, self.kind.choice.task
        count = self.kind.choice.blocks
        if count == 1:
            return self.block()

        def one(block: str) -> None:
            size = self.kind.lanes.item_bytes
            start = text.mul(block, BLOCK)
            self.terms = text.least(text.let(f"sub i64 {task.terms}, {start}"), BLOCK)
            self.first = text.let(f"icmp eq i64 {block}, 0")
            self.last = text.let(f"icmp eq i64 {block}, {count - 1}")
            self.left = text.at(self.work.left, text.mul(start, task.left[1] * size))
            self.right = text.at(self.work.right, text.mul(start, task.right[0] * size))
            self.block()

        text.loop("0", str(count), 1, lambda block, _: one(block))
        return None

    def block(self) -> None:
        """One block: pack what is packed, run the register tiles."""
        text, choice = self.text, self.kind.choice
        if choice.packs_left:
            text.loop(*self.work.groups, 1, lambda group, _: self.pack_group(group))
        if not choice.packs_right:
            return self.chunk(*self.work.panels)

        def one(first: str) -> None:
            end = text.least(text.add(first, choice.chunk), self.work.panels[1])
            text.loop(first, end, 1, lambda panel, _: self.pack_panel(panel, first))
            self.chunk(first, end)

        text.loop(*self.work.panels, choice.chunk, lambda first, _: one(first))
        return None

    def chunk(self, first: str, end: str) -> None:
        """Register tiles over the row groups, and inside them over some panels."""

        def group(index: str) -> None:
            row = self.kind.choice.rows.start(self.text, index)
            self.kind.choice.rows.each(self.text, index, 0, 0, lambda rows, _: panels(row, rows))

        def panels(row: str, rows: int) -> None:
            self.text.loop(first, end, 1, lambda panel, _: self.tile(row, rows, panel, first))

        self.text.loop(*self.work.groups, 1, lambda index, _: group(index))

    def tile(self, row: str, rows: int, panel: str, first_panel: str) -> None:
        """The call of one register tile."""
        text, task, lanes = self.text, self.kind.choice.task, self.kind.lanes
        column = text.mul(self.kind.choice.panels.start(text, panel), lanes.width)
        size = lanes.item_bytes
        left = self.packed_left(row) if self.kind.choice.packs_left else None
        left = left or text.at(self.left, text.mul(row, task.left[0] * size))
        right = self.packed_right(panel, first_panel) if self.kind.choice.packs_right else None
        right = right or text.at(self.right, text.mul(column, size))
        out = text.at(text.at(self.work.out, text.mul(row, task.out[0] * size)), text.mul(column, task.out[1] * size))
        totals = self.totals(row, column, out) if self.kind.choice.blocks > 1 else "poison"
        arguments = f"ptr {left}, ptr {right}, ptr {out}, ptr {totals}, i64 {self.terms}"
        arguments += f", i1 {self.first}, i1 {self.last}, i64 {row}, i64 {column}"

        def call(vectors: int, active: int) -> None:
            text.do(f"call void {micro_name(self.kind, Shape(rows, vectors, active))}({arguments})")

        self.kind.choice.panels.each(text, panel, self.tail, lanes.width, call)

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

    # packing
    def packed_left(self, row: str) -> str:
        """Where a row group is packed."""
        top = self.kind.choice.rows.start(self.text, self.work.groups[0])
        down = self.text.let(f"sub i64 {row}, {top}")
        return self.text.at(self.work.scratch, self.text.mul(down, self.kind.choice.depth * self.kind.lanes.wide_bytes))

    def packed_right(self, panel: str, first: str) -> str:
        """Where a panel is packed."""
        text, choice, lanes = self.text, self.kind.choice, self.kind.lanes
        vectors = text.let(f"sub i64 {choice.panels.start(text, panel)}, {choice.panels.start(text, first)}")
        offset = text.mul(vectors, lanes.width * choice.depth * lanes.wide_bytes)
        return text.at(text.at(self.work.scratch, self.regions.right), offset)

    def pack_group(self, group: str) -> None:
        """One row group of the left operand."""
        text, choice = self.text, self.kind.choice
        row = choice.rows.start(text, group)
        source = text.at(self.left, text.mul(row, choice.task.left[0] * self.kind.lanes.item_bytes))
        arguments = f"(ptr {source}, ptr {self.packed_left(row)}, i64 {self.terms})"
        name = f"@{self.kind.name}_left"
        choice.rows.each(text, group, 0, 0, lambda rows, _: text.do(f"call void {name}_{rows}{arguments}"))

    def pack_panel(self, panel: str, first: str) -> None:
        """One panel of the right operand."""
        text, choice, lanes = self.text, self.kind.choice, self.kind.lanes
        column = text.mul(choice.panels.start(text, panel), lanes.width)
        source = text.at(self.right, text.mul(column, choice.task.right[1] * lanes.item_bytes))
        arguments = f"(ptr {source}, ptr {self.packed_right(panel, first)}, i64 {self.terms})"
        name = f"@{self.kind.name}_right"
        call = lambda vectors, active: text.do(f"call void {name}_{vectors}_{active}{arguments}")  # noqa: E731
        choice.panels.each(text, panel, self.tail, lanes.width, call)
