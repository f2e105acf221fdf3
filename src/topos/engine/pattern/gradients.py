"""What the derivative rules make of a match, found by running them.

The rules are written once, against `Recordable`. Over tensors they compute, over values they record; over what is
`Wanted` here they ask for nodes that stand in the spec already. So every composition that is found has its gradient
found, in the form in which it is recorded, and none is described twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from topos.engine.pattern.columns import Columns
from topos.engine.pattern.form import made
from topos.engine.pattern.match import Match
from topos.engine.pattern.wanted import Instance, Wanted
from topos.graph.reverse import sweep


def gradient(columns: Columns, match: Match) -> Iterator[Match]:
    """The gradients of a match that stand in the spec, one for each cotangent of its root."""
    if not _is_read_outside(columns, match):
        return
    book, seed, cotangents = _asked(columns, match)
    for row in Instance(columns).seeds(book, seed):
        instance = Instance(columns)
        instance.bound[seed] = row
        instance.find(book)
        found = _made(columns, match, instance, cotangents, row)
        if found is not None:
            yield found


def _is_read_outside(columns: Columns, match: Match) -> bool:
    """Whether anybody else reads what only the match and rules read: without that, no gradient is recorded."""
    inner = match.rows - {match.root}
    return any(reader not in match.rows for row in inner for reader in columns.readers[row])


def _asked(columns: Columns, match: Match) -> tuple[list[Wanted], Wanted, Mapping[str, Wanted]]:
    """What the scan asks for over the rows of the match alone: all of it, the seed, the cotangent of each operand."""
    inside = sorted(row for row in match.rows if columns.rows[row].operands)
    read = sorted({operand for row in inside for operand in columns.rows[row].operands}.difference(inside))
    places = {row: at for at, row in enumerate((*read, *inside))}
    rows = [columns.rows[row]._replace(operands=()) for row in read]
    for row in inside:
        operands = tuple([places[operand] for operand in columns.rows[row].operands])
        rows.append(columns.rows[row]._replace(operands=operands))
    book: list[Wanted] = []
    payloads = [Wanted(book, columns.rows[row].shape, columns.rows[row].element, row) for row in places]
    for name, row in match.operands.items():
        if row in places:
            payloads[places[row]].label = f"{name} gradient"
    root = payloads[places[match.root]]
    seed = Wanted(book, root.shape, root.element)
    seed.is_seeded = True
    found = sweep(rows, places[match.root], seed, payloads.__getitem__)
    named = {f"{name} gradient": found[places[row]] for name, row in match.operands.items() if places.get(row) in found}
    return book, seed, named


def _made(
    columns: Columns, match: Match, instance: Instance, cotangents: Mapping[str, Wanted], seed: int
) -> Match | None:
    """The match of those rows on which a cotangent of an operand depends, and of what is worked out again for them."""
    results = {name: instance.bound[wanted] for name, wanted in cotangents.items() if wanted in instance.bound}
    if not results:
        return None
    rows, again, operands = set[int](), set[int](), {}
    names = {row: name for name, row in {"value": match.root, **match.results, **match.operands}.items()}
    names |= {row: wanted.label for wanted, row in instance.bound.items() if wanted.is_held}
    names[seed] = "cotangent"
    inside = match.rows - match.stored
    read = list(results.values())
    while read:
        row = read.pop()
        if row in rows or row in again:
            continue
        if row in instance.covered:
            rows.add(row)
        elif row in inside:
            again.add(row)
        else:
            operands[names.get(row, f"node {row}")] = row
            continue
        read += columns.rows[row].operands
    kind, formula = f"{match.kind} gradient", f"{match.formula}_GRADIENT"
    root = max(results.values())
    return made(columns, kind, formula, root, rows, operands, results, match.parameters, again)
