"""Which kind computes a product, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from topos.backend.native.products.choice import Choice
from topos.backend.native.products.register_tiles import register_tile, tallest
from topos.backend.native.products.split import Split, split
from topos.backend.native.products.strip import FEW, MOST_ROWS, SUMS_BYTES, chunk_vectors, side
from topos.backend.native.products.task import ProductTask, folded, turned
from topos.backend.native.products.tiles import shared_out
from topos.backend.native.target import Target
from topos.records import NamedTuple
from topos.tensor.memory import LINE

_MANY_ROWS = 96
_CROSSING_BYTES = 64 << 10
_FAR_BYTES = 512 << 10  # right operands below this, all together, may still lie in L2
_MEMORY_BYTES = 32  # what memory brings in the four cycles that one term of a chain takes
_MANY_PRODUCTS = 4  # of a batch: tiles enough, so that no line is cut for more of them
_VAST_BYTES = 4 << 20  # of a left operand on many pages,
_VAST_COLUMNS = 1024  # and columns for which it is read over and over
_DOTS = 256  # results, each written out
_DOTS_FAR_BYTES = 8 << 20
_SUMS_OF_FEW_BYTES = 6 << 10  # for each line that is read beside others: half of L1, of four
_RUN_BYTES = 1 << 10  # of a line of the right operand that is read on and on
_TILE_RUN_BYTES = 3 << 10  # of a line that a tile reads at once: each time memory is slow to begin
_FOURTH_BYTES = 2 << 10  # the same of few rows, where there are 4 tiles,
_EIGHTH_BYTES = 8 << 10  # and where there are 8: memory is nearly as fast for 4 threads
# A right operand below this is read again and again from the caches as it lies, where a vector is a line: the hardware
# then fetches ahead of a panel. Lines that lie apart have to come from L2.
_RESIDENT_BYTES = 8 << 20


class _Shape(NamedTuple):
    """What the election looks at: the work in the form to compute, on a target."""

    task: ProductTask
    width: int
    largest_rows: int
    has_fma: bool = True
    resident_bytes: int = _RESIDENT_BYTES

    def fills(self) -> float:
        """The part of the lanes that are columns."""
        return self.task.columns / (-(-self.task.columns // self.width) * self.width)

    def right_bytes(self) -> int:
        return self.task.terms * self.task.columns * self.task.right_bytes

    def is_narrow(self) -> bool:
        few = self.task.rows * self.task.columns <= _DOTS
        return few and 2 * self.task.columns < self.width

    def is_far(self) -> bool:
        return self.task.batches * self.right_bytes() >= _FAR_BYTES


def _is_lines(shape: _Shape) -> bool:
    task = shape.task
    few = MOST_ROWS if shape.has_fma else 2
    return task.rows <= few and task.right[0] == 1 != task.right[1] and task.terms >= shape.width


def _is_streamed(shape: _Shape) -> bool:
    task = shape.task
    is_wide = task.right[1] == 1 and task.columns * task.right_bytes >= _RUN_BYTES
    return is_wide and task.rows <= MOST_ROWS and shape.right_bytes() >= _FAR_BYTES and shape.has_fma


def _is_direct(shape: _Shape) -> bool:
    task = shape.task
    if task.right[1] != 1:
        return False
    aliased = task.right[0] * task.right_bytes % 4096 == 0 and task.terms > 64
    # Vectors that lie across two lines each take twice the time from beyond L1; enough rows pay for a copy.
    crossing = task.right[0] % shape.width != 0 and task.rows >= _MANY_ROWS and shape.right_bytes() > _CROSSING_BYTES
    is_readable = shape.right_bytes() <= shape.resident_bytes and not aliased and not crossing
    return task.rows <= shape.largest_rows or is_readable


_Named = tuple[str, Callable[[_Shape], bool], str]
_KINDS: tuple[_Named, ...] = (
    ("zeros", lambda shape: shape.task.terms == 0, "there are no terms"),
    ("dots", lambda shape: shape.is_narrow(), "the results fill no vector"),
    ("lines", _is_lines, "few rows; the columns are lines of terms, transposed in registers"),
    ("streamed", _is_streamed, "few rows; lines of the right operand are read side by side from end to end"),
    ("direct", _is_direct, "the right operand is read in vectors as it lies, once or from a cache"),
    ("packed", lambda _: True, "the right operand is copied into panels, block of terms by block"),
)
_TILED = _KINDS[-2:]


@lru_cache(maxsize=1024)
def elect(task: ProductTask, target: Target, is_folded: bool = True) -> Choice:
    """The first kind whose condition holds for the better of the two equal forms.

    `is_folded` lets leading axes become rows or columns.
    """
    if 0 in (task.rows, task.columns, task.batches):
        return Choice("nothing", "there are no results", task)
    plain = folded(task) if is_folded and not task.is_computed else task
    width = target.lanes(task.wide_bytes)
    exchanged = turned(plain)
    is_turned = task.left_grid is None and _score(exchanged, width) > _score(plain, width)
    return shared_out(_chosen(exchanged if is_turned else plain, target, is_turned), target)


@lru_cache(maxsize=1024)
def elect_stage(task: ProductTask, target: Target, is_cut: bool = False) -> Choice:
    """The choice for a product that is one tile of work, and whose right operand is packed by a kernel of its own.

    Where it `is_cut`, tiles of its columns run one after another, each over as much of the right operand as L2 holds.
    """
    if 0 in (task.rows, task.columns):
        return Choice("nothing", "there are no results", task)
    choice = _chosen(task, target, False)
    choice = choice._replace(chunk=choice.panels.groups, shared="right" if choice.packs_right else "")
    if not is_cut or not choice.is_tiled:
        return choice
    return choice._replace(column_tiles=min(choice.panels.groups, -(-_Shape(task, 0, 0).right_bytes() // _FAR_BYTES)))


def elect_resumed(task: ProductTask, target: Target, tiles: int) -> Choice:
    """The choice for a product whose chains wait between some terms and the next: a register tile, whatever its shape.

    Up to so many tiles of work share out the longer axis of the results first; of several, each packs for itself.
    """
    choice = _chosen(task, target, False, _TILED)
    rows, panels = choice.rows.groups, choice.panels.groups
    if tiles == 1:
        return choice._replace(chunk=panels, shared="right" if choice.packs_right else "")
    if task.rows >= task.columns:
        row_tiles = min(rows, tiles)
        column_tiles = min(panels, -(-tiles // row_tiles))
    else:
        column_tiles = min(panels, tiles)
        row_tiles = min(rows, -(-tiles // column_tiles))
    return choice._replace(row_tiles=row_tiles, column_tiles=column_tiles, chunk=-(-panels // column_tiles))


def _chosen(best: ProductTask, target: Target, is_turned: bool, kinds: Sequence[_Named] = _KINDS) -> Choice:
    """The first kind of these whose condition holds for a form, in one tile of work."""
    width = target.lanes(best.wide_bytes)
    resident_bytes = _RESIDENT_BYTES if target.vector_bytes == LINE else target.second_cache_bytes
    shape = _Shape(best, width, tallest(target), target.has_fma, resident_bytes)
    kind, why = next((name, why) for name, holds, why in kinds if holds(shape))
    if best.is_computed and kind not in ("zeros", "packed"):
        kind, why = _computed(best)
    if best.left_grid is not None and kind in ("dots", "lines", "streamed"):
        kind, why = "packed", "the left operand is read window by window"
    choice = Choice(kind, why, best, is_turned)
    if kind in ("zeros", "lines"):
        # A chain takes four cycles a term: two of them side by side are worth more than one, where memory keeps up.
        keeps_up = not shape.is_far() or width * best.right_bytes < _MEMORY_BYTES
        chains = 2 if kind == "lines" and best.rows == 1 and keeps_up else 1
        choice = choice._replace(panels=split(-(-best.columns // width), chains), is_far=shape.is_far())
        choice = choice._replace(rows=split(best.rows, 1)) if kind == "zeros" else choice
    elif kind == "dots":
        choice = choice._replace(is_far=best.read_bytes >= _DOTS_FAR_BYTES)
    elif kind == "streamed":
        choice = choice._replace(panels=_long_panels(best, width))
    else:
        rows, vectors = register_tile(best, target, width, is_packed=kind == "packed")
        choice = choice._replace(rows=split(best.rows, rows), panels=split(-(-best.columns // width), vectors))
        choice = packing(choice, target)
    return choice


def _computed(task: ProductTask) -> tuple[str, str]:
    """The kind where an operand is worked out as it is packed."""
    if task.right_value is None and task.right[1] == 1:
        return "direct", "the left operand is worked out as it is packed"
    return "packed", "an operand is worked out as it is packed"


def _long_panels(task: ProductTask, width: int) -> Split:
    """Panels whose sums stay nearby, as many for each of 8 tiles; of 4 or 2 where a tile's lines were short.

    Many products are tiles enough: their lines are not cut.
    """
    vectors, line_bytes = -(-task.columns // width), task.columns * task.right_bytes
    if task.rows > FEW:
        runs, sums = ((8, _TILE_RUN_BYTES), (4, _TILE_RUN_BYTES)), SUMS_BYTES
    else:
        sums = _SUMS_OF_FEW_BYTES * side(task.rows, width * task.wide_bytes)
        runs = ((8, _EIGHTH_BYTES), (4, _FOURTH_BYTES))
    tiles = next((count for count, run in runs if line_bytes >= count * run), 2)
    tiles = 1 if task.batches >= _MANY_PRODUCTS else tiles
    chunk = chunk_vectors(width * task.wide_bytes)
    chunks, most = -(-vectors // chunk), sums // (task.rows * chunk * width * task.wide_bytes)
    return split(chunks, -(-chunks // (tiles * -(-chunks // (tiles * most)))))


def _score(task: ProductTask, width: int) -> float:
    """How well a form suits vectors along its columns: filled lanes, whole loads, whole stores."""
    # Packing a column takes as long as the multiply-adds of some rows with it; few rows do without.
    few = 1.0 if task.right[0] == 1 else 0.8
    loads = few if task.rows <= MOST_ROWS else task.rows / (task.rows + 8)
    loads = 1.0 if task.right[1] == 1 or task.columns == 1 else loads
    # Numbers stored one by one take some tens of multiply-adds a vector.
    stores = 1.0 if task.out[1] == 1 or task.columns == 1 else (task.terms + 2) / (task.terms + 40)
    return _Shape(task, width, 0).fills() * loads * stores


def packing(choice: Choice, target: Target) -> Choice:
    """Which operands are copied first."""
    task = choice.task
    packs_right = choice.kind == "packed"
    # A left operand whose terms lie apart costs a cache line a number, again for every panel.
    far = abs(task.left[1]) * task.left_bytes >= 256
    packs_left = far and task.rows * task.terms > 8192 and choice.panels.groups >= 4
    # With few registers it is read so often that rows on pages of their own had better lie together.
    is_vast = task.rows * task.terms * task.left_bytes >= _VAST_BYTES and task.columns >= _VAST_COLUMNS
    packs_left = (packs_left or (is_vast and packs_right and target.registers == 16)) and task.left_grid is None
    choice = choice._replace(packs_left=packs_left or task.left_value is not None, packs_right=packs_right)
    return choice._replace(has_left_lines=task.left_value is not None and task.left[1] == 1 and not packs_left)
