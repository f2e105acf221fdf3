"""A composition described in terms, and how a match is made of what they found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from topos.engine.pattern.columns import Columns
from topos.engine.pattern.match import Match
from topos.engine.pattern.terms import Found, Term
from topos.records import NamedTuple


class Told(NamedTuple):
    """What a composition is, and its numbers."""

    kind: str
    formula: str
    parameters: Mapping[str, Any]


class Form(NamedTuple):
    """One way to write a composition; `told` looks at what was found, and answers `None` where it is not quite that."""

    term: Term
    told: Callable[[Columns, int, Found], Told | None]


def found(columns: Columns, forms: Iterable[Form]) -> Iterator[Match]:
    """Every place at which one of the forms stands, by its last row."""
    possible = [form for form in forms if form.term.needs <= columns.kinds]
    roots = {kind for form in possible for kind in form.term.roots}
    worth: dict[tuple[type, ...], list[Form]] = {}
    for row, recorded in enumerate(columns.rows):
        kind = type(recorded.opcode)
        if kind in roots:
            kinds = (kind, *[type(columns.rows[operand].opcode) for operand in recorded.operands])
            if kinds not in worth:
                worth[kinds] = [f for f in possible if kind in f.term.roots and f.term.may_be_over(kinds[1:])]
            for form in worth[kinds]:
                match = first(columns, row, form)
                if match is not None:
                    yield match


def first(columns: Columns, row: int, form: Form) -> Match | None:
    """The first way in which a row is a form."""
    for way in form.term.matches(columns, row, Found()):
        told = form.told(columns, row, way)
        if told is not None:
            names = {term.name: at for term, at in way.bound.items() if term.name}
            operands = {name: at for name, at in names.items() if name in way.facts}
            results = {name: at for name, at in names.items() if name not in way.facts and at != row}
            return made(columns, told.kind, told.formula, row, way.rows, operands, results, told.parameters)
    return None


def made(
    columns: Columns,
    kind: str,
    formula: str,
    root: int,
    rows: Iterable[int],
    operands: Mapping[str, int],
    results: Mapping[str, int],
    parameters: Mapping[str, Any],
    again: Iterable[int] = (),
) -> Match:
    """A match whose rows are sorted by what they are: computed, read through, or constant."""
    constants = {row for row in rows if columns.number(row) is not None}
    views = {row for row in rows if row not in constants and row != root and columns.is_view(row)}
    nodes = frozenset(rows) - constants - views
    shared = frozenset(constants).union(again)
    return Match(kind, formula, root, nodes, frozenset(views), shared, operands, results, parameters)
