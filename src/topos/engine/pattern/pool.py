"""All candidates of a spec, collected once for whoever elects."""

from __future__ import annotations

from collections.abc import Iterator

from topos.engine.pattern import attention, form, gradients, joins, losses, norms, pools, windows
from topos.engine.pattern.columns import Columns
from topos.engine.pattern.match import Match
from topos.graph.spec import Spec

FORMS = (*norms.FORMS, *losses.FORMS, *attention.FORMS)
"""The compositions that are described in terms; the others are found by where their windows or parts lie."""


def pooled(spec: Spec, length: int) -> list[Match]:
    """Every match in the first `length` rows, those that overlap among them, whoever wrote the rows."""
    columns = Columns(spec, length)
    return [*_products(columns), *_with_gradients(columns)]


def _products(columns: Columns) -> Iterator[Match]:
    """What is found whole, in whichever direction it was recorded."""
    yield from windows.found(columns)
    yield from joins.found(columns)


def _with_gradients(columns: Columns) -> Iterator[Match]:
    """Compositions and their gradients as the rules write them; part of one with a gradient has none of its own."""
    matches = [*pools.found(columns), *form.found(columns, FORMS)]
    parts: set[int] = set()
    for match in sorted(matches, key=lambda match: (-len(match.rows), match.root)):
        yield match
        found = [] if match.root in parts else list(gradients.gradient(columns, match))
        if found:
            parts |= match.nodes
        yield from found
