"""The register tile: some rows by some vectors of columns, over one block of terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from topos.backend.native.products.grids import OFFSET_BYTES, grid_rows
from topos.backend.native.products.kind import Kind
from topos.backend.native.products.lanes import Results, prefetch
from topos.backend.native.products.regions import Regions
from topos.backend.native.products.text import Text
from topos.records import NamedTuple
from topos.reference.products import BLOCK
from topos.tensor.memory import LINE

_MASK = "%mask"
_AHEAD_BYTES = 1024  # how far ahead of the chains a packed right operand is asked for
_ROUND_BYTES = 768  # of multiply-adds in one turn of the loop: beside fewer, the turn itself takes its time


class Shape(NamedTuple):
    """Rows, vectors, and the lanes of the last vector that are columns: all or so many where it is ragged."""

    rows: int
    vectors: int
    active: int
    is_ragged: bool = False

    def mask(self, vector: int) -> str:
        """The mask of a vector, where only the run knows it."""
        return _MASK if self.is_ragged and vector == self.vectors - 1 else ""


class Totals(NamedTuple):
    """Where block totals wait for the next block: the byte stride of their rows, and whether results end there too.

    Where a block's terms come some at a time, its chains wait there, and the totals `behind_bytes` further on.
    """

    row_bytes: int
    in_out: bool
    behind_bytes: int = 0


def micro_name(kind: Kind, shape: Shape) -> str:
    """The function for a shape."""
    return f"@{kind.name}_{shape.rows}x{shape.vectors}_{shape.active}"


def micro(kind: Kind, shape: Shape, totals: Totals | None) -> str:
    """The chains of one block of `%terms`, from zero; then, after the totals before, into totals or results.

    `totals` is None where one block is all.
    """
    text, lanes, choice = Text(kind.helpers), kind.lanes, kind.choice
    assert choice.task.terms
    _begin(text, kind, shape)
    rows = grid_rows(text, shape.rows) if choice.task.left_grid is not None else None
    if choice.packs_right:
        _prefetch_results(text, kind, shape, totals)
    begun = ["zeroinitializer"] * (shape.rows * shape.vectors)
    if kind.all_terms:
        assert totals is not None
        begun = _begun(text, kind, shape, totals)
    carried = [("ptr", "%left"), ("ptr", "%right"), *[(lanes.vector, value) for value in begun]]
    step = _step(kind, shape)
    sums = text.loop("0", "%terms", step, lambda _, values: _round(text, kind, shape, rows, values), carried)[2:]
    if kind.all_terms:
        assert totals is not None
        _go_on(text, kind, shape, totals, sums)
    elif totals is None:
        _finish(text, kind, shape, sums, from_zero=True)
    else:
        _accumulate(text, kind, shape, totals, sums)
    return text.function(_head(kind, shape))


def _begin(text: Text, kind: Kind, shape: Shape) -> None:
    """The room in which an epilogue finds the results, and the mask of the last vector."""
    width = kind.lanes.width
    if kind.epilogue is not None:
        text.do(f"%room = alloca [{shape.rows * shape.vectors} x {kind.lanes.vector}], align 64")
    if shape.is_ragged and kind.lanes.has_quick_masks:
        text.do(f"{_MASK} = bitcast i{width} %lanes to <{width} x i1>")
    elif shape.is_ragged:
        # Bits would be spread over a vector in ten instructions, where one of two constants is loaded in one.
        word = f"<{width} x i{8 * kind.lanes.wide_bytes}>"
        tail = ", ".join(f"i{8 * kind.lanes.wide_bytes} {-(lane < shape.active)}" for lane in range(width))
        is_full = text.let(f"icmp eq i{width} %lanes, -1")
        either = text.let(f"select i1 {is_full}, {word} splat (i{8 * kind.lanes.wide_bytes} -1), {word} <{tail}>")
        text.do(f"{_MASK} = icmp slt {word} {either}, zeroinitializer")


def _head(kind: Kind, shape: Shape) -> str:
    arguments = "ptr noalias %left, ptr noalias %right, ptr %out, ptr %totals, i64 %terms, i1 %first, i1 %last"
    arguments += ", i64 %row, i64 %column" + ", ptr %arguments, i64 %product" * (kind.epilogue is not None)
    arguments += ", ptr noalias %grid" * (kind.choice.task.left_grid is not None)
    arguments += ", i64 %begun" * bool(kind.all_terms) + f", i{kind.lanes.width} %lanes" * shape.is_ragged
    return f"internal void {micro_name(kind, shape)}({arguments}) noinline nounwind"


def _step(kind: Kind, shape: Shape) -> int:
    """The terms of one turn of the loop: two, where every block has a multiple of them."""
    if kind.reach == "terms":
        return 1
    term_bytes = shape.rows * shape.vectors * kind.lanes.width * kind.lanes.wide_bytes
    return 2 if all(length % 2 == 0 for length in kind.lengths) and 2 * term_bytes <= _ROUND_BYTES else 1


def _round(text: Text, kind: Kind, shape: Shape, rows: Sequence[str] | None, values: Sequence[str]) -> Sequence[str]:
    """The terms of one turn of the loop, one after another; what comes later is asked for line by line."""
    step, (left, right) = _step(kind, shape), values[:2]
    for _ in range(step):
        values = _term(text, kind, shape, rows, values)
    left_bytes, right_bytes = (step * size for size in _strides(kind, shape))
    if kind.choice.packs_left:  # the same place of the next row group, into L2
        for offset in range(0, left_bytes, LINE):
            prefetch(text, text.at(left, Regions(kind).group_bytes + offset), write=False, locality=2)
    if kind.choice.packs_right:
        for offset in range(0, right_bytes, LINE):
            prefetch(text, text.at(right, _AHEAD_BYTES + offset), write=False, locality=3)
    return [_settled(text, values[0]), _settled(text, values[1]), *values[2:]]


def _term(text: Text, kind: Kind, shape: Shape, rows: Sequence[str] | None, values: Sequence[str]) -> list[str]:
    """One term onto every chain; `rows` are the pointers of the rows of an operand on a grid."""
    left, right, *sums = values
    offset = text.let(f"load i64, ptr {left}, align 8") if rows is not None else ""
    rights = [_right(text, kind, shape, right, vector) for vector in range(shape.vectors)]
    after: list[str] = []
    for row in range(shape.rows):
        if rows is None:
            spread = _left(text, kind, left, row)
        else:
            spread = kind.left.splat(text, text.at(rows[row], offset), wide=False)
        for vector in range(shape.vectors):
            after.append(kind.lanes.fma(text, spread, rights[vector], sums[len(after)]))
    left_bytes, right_bytes = _strides(kind, shape)
    return [text.at(left, left_bytes), text.at(right, right_bytes), *after]


def _settled(text: Text, pointer: str) -> str:
    """A pointer that is where it should be: LLVM would weigh the addresses of a loop, for a twentieth of its time."""
    return text.let(f"freeze ptr {pointer}")


def _prefetch_results(text: Text, kind: Kind, shape: Shape, totals: Totals | None) -> None:
    """Where this tile ends up, before its chains run: its rows lie apart, on many pages."""
    if totals is None and (kind.choice.task.out[1] != 1 or kind.epilogue is not None):
        return
    row_bytes = kind.choice.task.out[0] * kind.lanes.item_bytes if totals is None else totals.row_bytes
    base = "%out" if totals is None else "%totals"
    for row in range(shape.rows):
        for vector in range(shape.vectors):
            offset = row * row_bytes + vector * kind.lanes.width * kind.lanes.wide_bytes
            prefetch(text, text.at(base, offset), write=False, locality=3)


def _strides(kind: Kind, shape: Shape) -> tuple[int, int]:
    """Bytes from one term to the next, on the left and on the right."""
    choice, lanes = kind.choice, kind.lanes
    left = choice.left_steps[1] * lanes.wide_bytes if choice.packs_left else choice.task.left[1] * kind.left.item_bytes
    left = left if choice.task.left_grid is None else OFFSET_BYTES
    right = choice.task.right[0] * kind.right.item_bytes
    return left, shape.vectors * lanes.width * lanes.wide_bytes if choice.packs_right else right


def _left(text: Text, kind: Kind, pointer: str, row: int) -> str:
    lanes, packed = kind.left, kind.choice.packs_left
    stride = kind.choice.left_steps[0] if packed else kind.choice.task.left[0]
    stride *= lanes.wide_bytes if packed else lanes.item_bytes
    return lanes.splat(text, text.at(pointer, row * stride), wide=packed)


def _right(text: Text, kind: Kind, shape: Shape, pointer: str, vector: int) -> str:
    lanes, packed = kind.right, kind.choice.packs_right
    size = lanes.wide_bytes if packed else lanes.item_bytes
    active = shape.active if vector == shape.vectors - 1 and not packed else lanes.width
    mask = "" if packed else shape.mask(vector)
    return lanes.load(text, text.at(pointer, vector * lanes.width * size), active, packed, mask)


def _active(kind: Kind, shape: Shape, vector: int) -> int:
    return shape.active if vector == shape.vectors - 1 else kind.lanes.width


def _finish(text: Text, kind: Kind, shape: Shape, values: Sequence[str], from_zero: bool = False) -> None:
    """Results to their places, or row by row to the epilogue, in a loop; `from_zero`: added to the zero before them."""
    task, lanes = kind.choice.task, kind.lanes
    if kind.epilogue is None:

        def stores(shape: Shape) -> None:
            for place, value in enumerate(values):
                row, vector = divmod(place, shape.vectors)
                value = lanes.add(text, value, "zeroinitializer") if from_zero else value
                pointer = text.at("%out", (row * task.out[0] + vector * lanes.width * task.out[1]) * lanes.item_bytes)
                results = Results(value, "", "", "", _active(kind, shape, vector), shape.mask(vector))
                kind.finish(text, results, pointer)

        return stores(shape) if lanes.has_quick_masks else _either(text, kind, shape, stores)
    size = lanes.width * lanes.wide_bytes
    for place, value in enumerate(values):
        lanes.keep(text, text.at("%room", place * size), value, lanes.width)

    def line(row: str, _: Sequence[str]) -> None:
        source = text.at("%room", text.mul(row, shape.vectors * size))
        for vector in range(shape.vectors):
            value = lanes.load(text, text.at(source, vector * size), lanes.width, wide=True)
            value = lanes.add(text, value, "zeroinitializer") if from_zero else value
            where = text.add("%row", row), text.add("%column", vector * lanes.width)

            def told(shape: Shape, vector: int, value: str = value, where: tuple[str, str] = where) -> None:
                kind.finish(text, Results(value, "%product", *where, _active(kind, shape, vector)), "poison")

            if shape.mask(vector):
                _either(text, kind, shape, partial(told, vector=vector))
            else:
                told(shape, vector)

    text.loop("0", str(shape.rows), 1, line)
    return None


def _either(text: Text, kind: Kind, shape: Shape, body: Callable[[Shape], None]) -> None:
    """The body for a shape; where that is ragged, for the full one or the one that is not, as the run has it."""
    if not shape.is_ragged:
        return body(shape)
    full = shape._replace(active=kind.lanes.width, is_ragged=False)
    is_full = text.let(f"icmp eq i{kind.lanes.width} %lanes, -1")
    text.when(is_full, lambda: body(full), lambda: body(shape._replace(is_ragged=False)))
    return None


def _accumulate(text: Text, kind: Kind, shape: Shape, totals: Totals, sums: Sequence[str]) -> None:
    """The block's totals onto those before; the last block's sums are the results."""
    waiting = _Waiting(text, kind, shape, totals, 0)
    earlier = waiting.unless("%first")
    added = [kind.lanes.add(text, one, two) for one, two in zip(earlier, sums, strict=True)]
    if totals.in_out and kind.epilogue is None:
        waiting.keep(added)
    else:
        text.when("%last", lambda: _finish(text, kind, shape, added), lambda: waiting.keep(added))


class _Waiting:
    """The chains or totals of a register tile, where they wait."""

    def __init__(self, text: Text, kind: Kind, shape: Shape, totals: Totals, behind_bytes: int) -> None:
        self.text, self.kind, self.shape, self.totals = text, kind, shape, totals
        self.behind_bytes = behind_bytes
        self.count = shape.rows * shape.vectors

    def _place(self, place: int) -> tuple[str, int, str]:
        row, vector = divmod(place, self.shape.vectors)
        size = self.kind.lanes.width * self.kind.lanes.wide_bytes
        offset = row * self.totals.row_bytes + vector * size + self.behind_bytes
        return self.text.at("%totals", offset), _active(self.kind, self.shape, vector), self.shape.mask(vector)

    def values(self) -> list[str]:
        places = [self._place(place) for place in range(self.count)]
        return [self.kind.lanes.load(self.text, where, active, True, mask) for where, active, mask in places]

    def unless(self, condition: str) -> list[str]:
        """The values, or zeros where a condition holds."""
        kinds = [self.kind.lanes.vector] * self.count
        return self.text.when(condition, lambda: ["zeroinitializer"] * self.count, self.values, kinds)

    def keep(self, values: Sequence[str]) -> None:
        for at, value in enumerate(values):
            where, active, mask = self._place(at)
            self.kind.lanes.keep(self.text, where, value, active, mask=mask)


def _begun(text: Text, kind: Kind, shape: Shape, totals: Totals) -> list[str]:
    """The chains of the terms before, zeros at the beginning of a block."""
    within = text.let(f"urem i64 %begun, {BLOCK}")
    return _Waiting(text, kind, shape, totals, 0).unless(text.let(f"icmp eq i64 {within}, 0"))


def _go_on(text: Text, kind: Kind, shape: Shape, totals: Totals, chains: Sequence[str]) -> None:
    """Keeps the chains, or at the end of a block adds them to the totals before, which at the end are the results."""
    reached = text.add("%begun", "%terms")
    at_end = text.let(f"icmp eq i64 {reached}, {kind.all_terms}")
    within = text.let(f"urem i64 {reached}, {BLOCK}")
    ends = text.let(f"or i1 {at_end}, {text.let(f'icmp eq i64 {within}, 0')}")
    waiting = _Waiting(text, kind, shape, totals, totals.behind_bytes)

    def total() -> None:
        earlier = waiting.unless(text.less("%begun", BLOCK))
        added = [kind.lanes.add(text, one, two) for one, two in zip(earlier, chains, strict=True)]
        text.when(at_end, lambda: _finish(text, kind, shape, added), lambda: waiting.keep(added))

    text.when(ends, total, lambda: _Waiting(text, kind, shape, totals, 0).keep(chains))
