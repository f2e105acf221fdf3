"""Reductions over windows: pools of the largest and of the average."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from topos.engine.pattern.columns import Columns
from topos.engine.pattern.form import made
from topos.engine.pattern.match import Match
from topos.engine.pattern.windows import laid_out, steps
from topos.op import Div, MaxAlong, SumAlong, Unfold

FORMULA = "REDUCE_WINDOW"


def found(columns: Columns) -> Iterator[Match]:
    """Every pool: the largest of each window, or its sum by as many terms as it has."""
    if Unfold not in columns.kinds:
        return
    for row, recorded in enumerate(columns.rows):
        match = None
        if isinstance(recorded.opcode, MaxAlong):
            match = _pool(columns, row, row, "max pool")
        elif isinstance(recorded.opcode, Div) and isinstance(columns.rows[recorded.operands[0]].opcode, SumAlong):
            match = _pool(columns, row, recorded.operands[0], "average pool")
        if match is not None:
            yield match


def _pool(columns: Columns, root: int, reduced: int, kind: str) -> Match | None:
    """A pool that ends at `root`, by a last reduction."""
    is_largest = kind == "max pool"
    chain = steps(columns, reduced, MaxAlong if is_largest else SumAlong)
    laid = laid_out(columns, chain, {"-inf" if is_largest else "0.0"})
    if laid is None or not laid[0].is_reduced:
        return None
    layout, chain = laid
    rows = [*chain, root]
    if not is_largest:
        divisor = columns.number(columns.rows[root].operands[1])
        if divisor is None or divisor.value != prod(window.size for window in layout.parameters):
            return None
        rows += divisor.rows
    source = columns.rows[chain[-1]].operands[0]
    return made(columns, kind, FORMULA, root, rows, {"operand": source}, {}, {"windows": layout.parameters})
