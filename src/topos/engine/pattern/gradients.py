"""What the derivative rules make of a match, found by running them.

The rules are written once, against `Recordable`. Over tensors they compute, over values they record; over what is
`Wanted` here they ask for nodes that stand in the spec already. So every composition that is found has its gradient
found, in the form in which it is recorded, and none is described twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from topos.element import Element
from topos.engine.pattern.columns import Columns
from topos.engine.pattern.form import made
from topos.engine.pattern.match import Match
from topos.graph.reverse import sweep
from topos.op import Composites, Opcode
from topos.shape import Shape


class Wanted(Composites):
    """A value that a rule reads or writes: a row that is known, a number at every place, or an instruction to find.

    One that is none of these is free: any row will do, the same wherever it is read.
    """

    __slots__ = ("_element", "_shape", "book", "is_held", "label", "number", "opcode", "operands", "row")

    def __init__(self, book: list[Wanted], shape: Shape, element: Element | None, row: int | None = None) -> None:
        self.book, self._shape, self._element, self.row = book, shape, element, row
        self.opcode: Opcode | None = None
        self.operands: tuple[Wanted, ...] = ()
        self.number: float | None = None
        self.label = ""
        self.is_held = False

    @property
    def shape(self) -> Shape:
        return self._shape

    @property
    def element(self) -> Element | None:
        return self._element

    def apply(self, opcode: Opcode, operands: tuple[Any, ...]) -> Wanted:
        """Asks for one more instruction, after those it reads."""
        elements = [operand.element for operand in operands]
        element = opcode.result_element(elements) or self._element
        wanted = Wanted(self.book, opcode.result_shape([operand.shape for operand in operands]), element)
        wanted.opcode, wanted.operands = opcode, operands
        self.book.append(wanted)
        return wanted

    def counted(self, count: int) -> Wanted:
        wanted = Wanted(self.book, self._shape, self._element)
        wanted.number = float(count)
        return wanted

    def zero_like(self) -> Wanted:
        """Zero; for what the match reads, which has a label, whatever others have given it before."""
        if not self.label:
            return self.counted(0)
        held = Wanted(self.book, self._shape, self._element)
        held.is_held, held.label = True, f"{self.label} before"
        return held

    def one_like(self) -> Wanted:
        return self.counted(1)


def gradient(columns: Columns, match: Match) -> Iterator[Match]:
    """The gradients of a match that stand in the spec, one for each cotangent of its root."""
    if not _is_read_outside(columns, match):
        return
    book, seed, cotangents = _asked(columns, match)
    seeds = list(dict.fromkeys(_seeds(columns, book, seed)))
    for row in seeds:
        for wanted in book:
            wanted.row = None
        seed.row = row
        covered = _resolve(columns, book)
        found = _made(columns, match, book, covered, cotangents, row)
        if found is not None:
            yield found


def _is_read_outside(columns: Columns, match: Match) -> bool:
    """Whether anybody else reads what only the match and rules read: without that, no gradient is recorded."""
    inner = match.rows - {match.root}
    return any(reader not in match.rows for row in inner for reader in columns.readers[row])


def _asked(columns: Columns, match: Match) -> tuple[list[Wanted], Wanted, Mapping[str, Wanted]]:
    """What the scan asks for over the rows of the match alone: all of it, the seed, the cotangent of each operand."""
    inside = sorted(row for row in match.rows if columns.rows[row].operands)
    read = sorted({o for row in inside for o in columns.rows[row].operands}.difference(inside))
    order = [*read, *inside]
    places = {row: at for at, row in enumerate(order)}
    rows = [columns.rows[row]._replace(operands=()) for row in read]
    rows += [
        columns.rows[row]._replace(operands=tuple([places[o] for o in columns.rows[row].operands])) for row in inside
    ]
    book: list[Wanted] = []
    payloads = [Wanted(book, columns.rows[row].shape, columns.rows[row].element, row) for row in order]
    for name, row in match.operands.items():
        if row in places:
            payloads[places[row]].label = f"{name} gradient"
    root = payloads[places[match.root]]
    seed = Wanted(book, root.shape, root.element)
    found = sweep(rows, places[match.root], seed, payloads.__getitem__)
    named = {name: found[places[row]] for name, row in match.operands.items() if places.get(row) in found}
    return book, seed, named


def _seeds(columns: Columns, book: list[Wanted], seed: Wanted) -> Iterator[int]:
    """The rows that may be the seed, by the first instruction over it and a row that is known."""
    for wanted in book:
        known = [operand for operand in wanted.operands if operand.row is not None]
        depends = any(operand.row is None and operand.number is None for operand in wanted.operands)
        if not depends:
            _look_up(columns, wanted, ())
        elif known:
            found = [_inverted(columns, wanted, row, seed) for row in columns.readers[_rarest(columns, known)]]
            if any(row is not None for row in found):
                yield from (row for row in found if row is not None)
                return


def _inverted(columns: Columns, wanted: Wanted, row: int, seed: Wanted) -> int | None:
    """The row of the seed, were the row what is wanted."""
    if wanted is seed:
        return row
    recorded, found = columns.rows[row], None
    if wanted.opcode is None or recorded.opcode != wanted.opcode:
        return None
    for operand, at in zip(wanted.operands, recorded.operands, strict=True):
        if operand.row is None and operand.number is None and (operand is seed or operand.opcode is not None):
            below = _inverted(columns, operand, at, seed)
            if below is None or found not in (None, below):
                return None
            found = below
        elif not _fits(columns, operand, at):
            return None
    return found


def _fits(columns: Columns, wanted: Wanted, row: int) -> bool:
    if wanted.row is not None:
        return wanted.row == row
    if wanted.number is not None:
        number = columns.number(row)
        return number is not None and number.value == wanted.number
    return wanted.opcode is None


def _rarest(columns: Columns, known: list[Wanted]) -> int:
    rows = [operand.row for operand in known if operand.row is not None]
    return min(rows, key=lambda row: len(columns.readers[row]))


def _look_up(columns: Columns, wanted: Wanted, taken: Any) -> None:
    """The row of an instruction whose operands are known, the first that nobody else has."""
    known = [operand for operand in wanted.operands if operand.row is not None]
    if not known:
        return
    for row in columns.readers[_rarest(columns, known)]:
        recorded = columns.rows[row]
        if row not in taken and recorded.opcode == wanted.opcode:
            pairs = list(zip(wanted.operands, recorded.operands, strict=True))
            if all(_fits(columns, operand, at) for operand, at in pairs):
                wanted.row = row
                for operand, at in pairs:
                    if operand.number is None:
                        operand.row = at
                return


def _resolve(columns: Columns, book: list[Wanted]) -> dict[int, set[int]]:
    """Finds all that stands in the spec; answers each row found, and the rows of the numbers beside it."""
    covered: dict[int, set[int]] = {}
    for wanted in book:
        if any(operand.opcode is not None and operand.row is None for operand in wanted.operands):
            continue
        _look_up(columns, wanted, covered)
        if wanted.row is not None:
            operands = zip(wanted.operands, columns.rows[wanted.row].operands, strict=True)
            numbers = [columns.number(at) for operand, at in operands if operand.number is not None or operand.is_held]
            covered[wanted.row] = {row for number in numbers if number is not None for row in number.rows}
    return covered


def _made(
    columns: Columns,
    match: Match,
    book: list[Wanted],
    covered: Mapping[int, set[int]],
    cotangents: Mapping[str, Wanted],
    seed: int,
) -> Match | None:
    """The match of those rows on which a cotangent of an operand depends, and of what is worked out again for them."""
    results = {f"{name} gradient": wanted.row for name, wanted in cotangents.items() if wanted.row in covered}
    rows: set[int] = set()
    read: list[int] = [row for row in results.values() if row is not None]
    operands = {"cotangent": seed}
    named = {"value": match.root, **match.results, **match.operands}
    named |= {o.label: o.row for w in book for o in w.operands if o.is_held and w.row in covered and o.row is not None}
    names = {row: name for name, row in named.items()}
    inside = match.rows - match.stored
    again: set[int] = set()
    while read:
        row = read.pop()
        if row in rows or row in again:
            continue
        if row in covered:
            rows.update((row, *covered[row]))
        elif row in inside:
            again.add(row)
        else:
            if row in names:
                operands[names[row]] = row
            continue
        read += columns.rows[row].operands
    if not rows:
        return None
    stored = {name: row for name, row in results.items() if row is not None}
    root = max(stored.values())
    kind, formula = f"{match.kind} gradient", f"{match.formula}_GRADIENT"
    return made(columns, kind, formula, root, rows, operands, stored, match.parameters, again)
