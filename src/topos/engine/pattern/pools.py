"""Reductions over windows: pools of the largest and of the average."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from topos.engine.pattern.columns import Columns
from topos.engine.pattern.form import made
from topos.engine.pattern.layout import Layout
from topos.engine.pattern.match import Match
from topos.engine.pattern.windows import laid_out, steps
from topos.op import Div, MaxAlong, SumAlong, Unfold

FORMULA = "REDUCE_WINDOW"


def found(columns: Columns) -> Iterator[Match]:
    """Every pool: the largest of each window, or its sum by as many terms as it has."""
    if Unfold not in columns.kinds:
        return
    for row, recorded in enumerate(columns.rows):
        if isinstance(recorded.opcode, MaxAlong):
            yield from _pools(columns, row, row, "max pool")
        elif isinstance(recorded.opcode, Div) and isinstance(columns.rows[recorded.operands[0]].opcode, SumAlong):
            yield from _pools(columns, row, recorded.operands[0], "average pool")


def _pools(columns: Columns, root: int, reduced: int, kind: str) -> Iterator[Match]:
    """The pool that ends at `root`, by a last reduction, the padding of its operand among it or not."""
    is_largest = kind == "max pool"
    chain = steps(columns, reduced, MaxAlong if is_largest else SumAlong)
    for layout, part in laid_out(columns, chain, {"-inf" if is_largest else "0.0"}):
        match = _pool(columns, root, kind, layout, part) if layout.is_reduced else None
        if match is not None:
            yield match


def _pool(columns: Columns, root: int, kind: str, layout: Layout, chain: list[int]) -> Match | None:
    """A pool over the windows of a layout; of averages, where it divides by as many terms as there are."""
    rows = [*chain, root]
    if kind != "max pool":
        divisor = columns.number(columns.rows[root].operands[1])
        if divisor is None or divisor.value != prod(window.size for window in layout.parameters):
            return None
        rows += divisor.rows
    source = columns.rows[chain[-1]].operands[0]
    return made(columns, kind, FORMULA, root, rows, {"operand": source}, {}, {"windows": layout.parameters})
