"""Few results of many terms: a product for every block of terms, then the totals of the blocks added in order."""

from __future__ import annotations

from collections.abc import Sequence

from topos.backend.native.products.blockwise import block_bytes, is_blockwise
from topos.backend.native.products.choice import Choice
from topos.backend.native.products.frame import Work, argument, frame
from topos.backend.native.products.kind import Kind, Span
from topos.backend.native.products.lanes import Results
from topos.backend.native.products.regions import base
from topos.backend.native.products.split import split
from topos.backend.native.products.task import Batch, ProductTask, turned
from topos.backend.native.products.text import Text
from topos.backend.native.target import Target
from topos.reference.products import BLOCK

_FEWEST_BLOCKS = 8
_FEW_RESULTS, _MANY_BLOCKS = 16, 64
_MOST_RESULTS = 1 << 17
_NARROW = 128  # rows or columns up to which the other operand is better read once, whole lines of it, than by tiles
_MOST_BYTES = 16 << 20  # of totals that wait


def is_split(task: ProductTask) -> bool:
    """Whether the blocks of terms are what there is to share out, and their totals take little room."""
    results, blocks = task.rows * task.columns, -(-task.terms // BLOCK)
    if task.batches != 1 or not 0 < results <= _MOST_RESULTS or room_bytes(task) > _MOST_BYTES:
        return False
    if blockwise_form(task):
        return True
    narrow = min(task.rows, task.columns)
    if narrow > 4:
        return blocks >= _FEWEST_BLOCKS and narrow <= _NARROW
    return results <= _FEW_RESULTS and blocks >= _MANY_BLOCKS


def room_bytes(task: ProductTask) -> int:
    """What the totals take."""
    return -(-task.terms // BLOCK) * block_bytes(task)


def _with_totals(task: ProductTask) -> ProductTask:
    """The same terms, into totals as they wait: the rows of a block one after another."""
    return task._replace(
        element="f64" if task.element == "f64" else "f32",
        left_element=task.left_element or task.element,
        right_element=task.right_element or task.element,
        out=(task.columns, 1),
    )


def blockwise_form(task: ProductTask) -> tuple[ProductTask, bool] | None:
    """The form of it that is computed block by block, if one is, and whether that is the turned one."""
    wide = _with_totals(task)
    return next(((form, form is not wide) for form in (wide, turned(wide)) if is_blockwise(form)), None)


def block_tasks(task: ProductTask) -> list[tuple[ProductTask, Span]]:
    """The products that fill the totals, and where they begin: of the whole blocks, and of the one that is shorter."""
    whole, rest = divmod(task.terms, BLOCK)
    wide = _with_totals(task)._replace(
        terms=BLOCK,
        batch=(Batch(whole, BLOCK * task.left[1], BLOCK * task.right[0], block_bytes(task) // task.wide_bytes),),
    )
    grid = task.left_grid
    if grid is not None:
        wide = wide._replace(left_grid=grid._replace(step=BLOCK))
    room = room_bytes(task)
    found = [(wide, Span(room, 0, 0, 0))]
    if rest:
        start = whole * BLOCK
        if grid is not None:
            wide = wide._replace(left_grid=grid._replace(first=start))
        left, right = start * task.left[1] * task.left_bytes, start * task.right[0] * task.right_bytes
        found.append((wide._replace(terms=rest, batch=()), Span(room, whole * block_bytes(task), left, right)))
    return found


def totals_choice(task: ProductTask, target: Target) -> Choice:
    """The kernel that adds: a row at a time, some vectors of columns beside one another."""
    vectors = -(-task.columns // target.lanes(task.wide_bytes))
    rows = split(task.rows, 1)
    return Choice(
        "totals",
        "",
        task,
        rows=rows,
        panels=split(vectors, 4),
        row_tiles=min(task.rows, 4 if room_bytes(task) > 1 << 18 else 1),
    )


def totals(kind: Kind, target: Target) -> str:
    """The text of the kernel that adds the totals of blocks, from zero on."""
    return frame(kind, None, lambda text, work: _Sums(kind, text, work).rows())


class _Sums:
    def __init__(self, kind: Kind, text: Text, work: Work) -> None:
        self.kind, self.text, self.work = kind, text, work
        self.room = base(text, argument(text, kind.scratch_place))

    def rows(self) -> None:
        """Every row and panel of the tile."""
        text, choice, lanes = self.text, self.kind.choice, self.kind.lanes

        def one(row: str, panel: str) -> None:
            column = text.mul(choice.panels.start(text, panel), lanes.width)
            tail = choice.task.columns % lanes.width
            call = lambda vectors, active: self.panel(row, column, vectors, active)  # noqa: E731
            choice.panels.each(text, panel, tail, lanes.width, call)

        text.loop(
            *self.work.groups, 1, lambda row, _: text.loop(*self.work.panels, 1, lambda panel, _: one(row, panel))
        )

    def panel(self, row: str, column: str, vectors: int, active: int) -> None:
        """Some vectors of a row: block after block onto the sums, then the results."""
        text, task, lanes = self.text, self.kind.choice.task, self.kind.lanes
        place = text.add(text.mul(row, task.columns), column)
        first = text.at(self.room, text.mul(place, lanes.wide_bytes))
        actives = [lanes.width] * (vectors - 1) + [active]

        def add(block: str, sums: Sequence[str]) -> list[str]:
            here = text.at(first, text.mul(block, block_bytes(task)))
            size = lanes.width * lanes.wide_bytes
            terms = [lanes.load(text, text.at(here, at * size), count, wide=True) for at, count in enumerate(actives)]
            return [lanes.add(text, one, two) for one, two in zip(sums, terms, strict=True)]

        blocks = -(-task.terms // BLOCK)
        sums = text.loop("0", str(blocks), 1, add, [(lanes.vector, "zeroinitializer")] * vectors)
        for vector, (value, count) in enumerate(zip(sums, actives, strict=True)):
            along = text.add(column, vector * lanes.width)
            down = text.at(self.work.out, text.mul(row, task.out[0] * lanes.item_bytes))
            pointer = text.at(down, text.mul(along, task.out[1] * lanes.item_bytes))
            self.kind.finish(text, Results(value, self.work.product, row, along, count), pointer)
