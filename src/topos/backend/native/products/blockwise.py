"""Few rows by a matrix that is read once, a tile of it whole blocks of terms, or as many columns of one as are left.

Memory is read fastest where it is read on and on: of lines cut among tiles, what the hardware fetches ahead is mostly
another tile's. Blocks of terms have chains of their own: whole lines are shared out, and the totals added afterwards.
"""

from __future__ import annotations

from topos.backend.native.products.choice import Choice
from topos.backend.native.products.frame import Work, frame
from topos.backend.native.products.kind import Kind
from topos.backend.native.products.split import Split, split
from topos.backend.native.products.streamed import room_bytes, sums_room
from topos.backend.native.products.strip import FEW, MOST_ROWS, SUMS_BYTES, Strip, chunk_vectors
from topos.backend.native.products.task import ProductTask
from topos.backend.native.products.text import Text
from topos.backend.native.target import Target
from topos.reference.products import BLOCK
from topos.tensor.memory import whole_lines

_LEAST_BYTES = 512 << 10  # of a matrix that comes from beyond the nearer caches
_LINE_BYTES = 1 << 10, 32 << 10  # of lines that are long enough to be streamed, and too short to be cut
_FEWEST_TILES, _MOST_TILES = 4, 8  # of few blocks they are parts, so that more than two threads can help
_SHORT_BYTES = 4 << 10  # of lines that end too soon for the hardware to go on in eight at once,
_MOST_ABREAST = 4  # and the blocks that it follows from end to end instead
_FEWEST_ABREAST = 4  # blocks: two for each of two threads


def is_blockwise(task: ProductTask) -> bool:
    """Whether few rows read a matrix of some blocks of terms in lines that had better not be cut."""
    shortest, longest = _LINE_BYTES
    line_bytes = task.columns * task.right_bytes
    is_short = task.right[1] == 1 and shortest <= line_bytes < longest
    is_far = task.terms * line_bytes >= _LEAST_BYTES
    return task.rows <= MOST_ROWS and is_short and is_far and task.terms > BLOCK and task.left_grid is None


def block_bytes(task: ProductTask) -> int:
    """What the totals of one block take."""
    return whole_lines(task.rows * task.columns * task.wide_bytes)


def blockwise_choice(task: ProductTask, is_turned: bool, target: Target) -> Choice:
    """The kernel that leaves the totals of every block."""
    width, whole = target.lanes(task.wide_bytes), task.terms // BLOCK
    chunk = chunk_vectors(width * task.wide_bytes)
    chunks = -(-task.columns // (chunk * width))
    if task.rows <= FEW and whole >= _FEWEST_ABREAST and task.columns * task.right_bytes <= _SHORT_BYTES:
        groups = _even(whole)
        why = "few rows; short lines of the right operand, one of each of some blocks of terms side by side"
        choice = Choice("blockwise", why, task, is_turned, panels=split(chunks, chunks), column_tiles=groups.groups)
        return choice._replace(abreast=groups.largest)
    most = SUMS_BYTES // (task.rows * chunk * width * task.wide_bytes)
    why = "few rows; whole lines of the right operand are read side by side, block of terms by block"
    tiles = max(_FEWEST_TILES, min(_MOST_TILES, whole - whole % 2))
    return Choice("blockwise", why, task, is_turned, panels=split(chunks, most), column_tiles=tiles)


def _even(whole: int) -> Split:
    """So many blocks in as many groups for either of two threads."""
    return split(whole, -(-whole // (2 * -(-whole // (2 * _MOST_ABREAST)))))


def blockwise(kind: Kind, target: Target) -> str:
    """The text: a tile is as many lines as any other, counted block after block, or a group of blocks abreast."""
    is_abreast = kind.choice.abreast > 1

    def body(text: Text, work: Work) -> None:
        tile = _Tile(kind, text, work)
        if is_abreast:
            tile.groups()
        else:
            tile.blocks()

    return frame(kind, None, body)


class _Tile:
    def __init__(self, kind: Kind, text: Text, work: Work) -> None:
        self.kind, self.text, self.work = kind, text, work
        self.task, self.room = kind.choice.task, sums_room(kind, text)
        chunk = chunk_vectors(kind.lanes.width * kind.lanes.wide_bytes)
        self.chunks = -(-self.task.columns // (chunk * kind.lanes.width))

    def blocks(self) -> None:
        """Every block of which some chunks are the tile's."""
        text, tiles, all_chunks = self.text, self.kind.choice.tiles, self.task.terms * self.chunks
        start = text.share("%tile", tiles, all_chunks)
        end = text.share(text.add("%tile", 1), tiles, all_chunks)
        first, last = (self.block_of(place) for place in (start, text.sub(end, "1")))
        text.loop(first, text.add(last, 1), 1, lambda block, _: self.block(block, start, end))

    def block_of(self, place: str) -> str:
        return self.text.let(f"udiv i64 {place}, {BLOCK * self.chunks}")

    def block(self, block: str, start: str, end: str) -> None:
        """The chunks of a block from where the tile starts, or the line, to where the tile ends, or the line."""
        text = self.text
        term = text.mul(block, BLOCK)
        terms = text.least(text.sub(str(self.task.terms), term), BLOCK)
        before = text.mul(term, self.chunks)

        def chunk(place: str) -> str:
            within = text.sub(place, before)
            within = text.let(f"select i1 {text.less(within, 0)}, i64 0, i64 {within}")
            return text.least(text.let(f"udiv i64 {within}, {terms}"), self.chunks)

        begin, stop = chunk(start), chunk(end)
        most = self.kind.choice.panels.largest

        def every() -> None:
            one = lambda first, _: self.strip(block, terms, first, text.least(text.sub(stop, first), most))  # noqa: E731
            text.loop(begin, stop, most, one)

        text.when(text.less(begin, stop), every)

    def strip(self, block: str, terms: str, first: str, count: str) -> None:
        """Some chunks of a block."""
        strip = Strip(self.kind, self.text, self.work, first, count, self.room)
        strip.zero(self.room)
        strip.block(self.text.mul(block, BLOCK), terms)
        strip.store(self.out(block))

    def groups(self) -> None:
        """The tile's whole blocks abreast; the last tile also takes the terms left over."""
        text, groups, rest = self.text, _even(self.task.terms // BLOCK), self.task.terms % BLOCK
        groups.each(text, "%tile", 0, 0, lambda count, _: self.abreast(groups.start(text, "%tile"), count))
        if rest:
            block, is_last = str(self.kind.choice.blocks - 1), text.let(f"icmp eq i64 %tile, {groups.groups - 1}")
            text.when(is_last, lambda: self.strip(block, str(rest), "0", str(self.chunks)))

    def out(self, block: str) -> str:
        return self.text.at(self.work.out, self.text.mul(block, block_bytes(self.task)))

    def abreast(self, first: str, count: int) -> None:
        """So many whole blocks from one on: of each a line at a time, to its end, and then the next line."""
        text, task, kind = self.text, self.task, self.kind

        def of_block(index: str) -> Strip:
            room = text.at(self.room, text.mul(index, room_bytes(kind)))
            return Strip(kind, text, self.work, "0", str(self.chunks), room)

        def zero(index: str) -> None:
            strip = of_block(index)
            strip.zero(strip.sums)

        text.loop("0", count, 1, lambda index, _: zero(index))
        strips = [of_block(str(place)) for place in range(count)]

        def lines(term: str) -> None:
            here = text.add(text.mul(first, BLOCK), term)
            begins = [strip.begins(text.add(here, place * BLOCK)) for place, strip in enumerate(strips)]
            factors = [strip.factors(left, task.rows, 1) for strip, (left, _) in zip(strips, begins, strict=True)]

            def chunk(vector: str, actives: list[int]) -> None:
                offset = text.mul(vector, kind.lanes.width * kind.right.item_bytes)
                for strip, (_, right), factor in zip(strips, begins, factors, strict=True):
                    place = strip.place(strip.sums, vector, 0)
                    strip.chains(place, [text.at(right, offset)], factor, task.rows, actives)

            strips[0].chunks(chunk)

        text.loop("0", BLOCK, 1, lambda term, _: lines(term))
        text.loop("0", count, 1, lambda index, _: of_block(index).store(self.out(text.add(first, index))))
