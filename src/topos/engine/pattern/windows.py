"""Products over windows: a convolution, the gradient of its kernel, and the gradient of its input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from topos.engine.pattern.columns import Columns, zero_addend
from topos.engine.pattern.form import made
from topos.engine.pattern.layout import Layout
from topos.engine.pattern.match import Match
from topos.op import Add, Fold, MatMul, Narrow, Opcode, Pad, Permute, Reshape, Unfold

FORMULA = "WINDOW_PRODUCT"
SIDES = ("left", "right")
LONGEST = 32
"""Steps of movement that are followed."""


def found(columns: Columns) -> Iterator[Match]:
    """Every product over windows, and every fold of a product."""
    if MatMul not in columns.kinds or not columns.kinds & {Unfold, Fold}:
        return
    folded = False
    for row, recorded in enumerate(columns.rows):
        match = None
        if isinstance(recorded.opcode, MatMul):
            yield from list(_products(columns, row, 0)) or _products(columns, row, 1)
        elif isinstance(recorded.opcode, Fold | Narrow | Add) and (folded or isinstance(recorded.opcode, Fold)):
            match, folded = _folded(columns, row), True
        if match is not None:
            yield match


def steps(columns: Columns, row: int, *kinds: type[Opcode]) -> list[int]:
    """The movement that a row ends, reductions of those kinds among it, down to the pads below its first windows."""
    chain: list[int] = []
    while isinstance(columns.rows[row].opcode, (Unfold, Permute, Reshape, Pad, *kinds)) and len(chain) < LONGEST:
        chain.append(row)
        (row,) = columns.rows[row].operands
    return chain if any(isinstance(columns.rows[at].opcode, Unfold) for at in chain) else []


def laid_out(columns: Columns, chain: list[int], fills: set[str]) -> Iterator[tuple[Layout, list[int]]]:
    """The views that a chain of movement makes of arrays, and how much of it each one is.

    The first begins as far down as it can be followed, the others above one pad more each.
    """
    begins = [at for at, row in enumerate(chain) if isinstance(columns.rows[row].opcode, Unfold | Pad)]
    for begin in reversed(begins):
        part = chain[: begin + 1]
        layout = Layout(columns.rows[columns.rows[part[-1]].operands[0]].shape)
        upwards = [columns.rows[at] for at in reversed(part)]
        followed = all(layout.follow(row.opcode, row.shape) for row in upwards)
        if followed and layout.is_windowed and layout.fills <= fills:
            yield layout, part
        if isinstance(columns.rows[part[-1]].opcode, Unfold):
            return


def _products(columns: Columns, row: int, side: int) -> Iterator[Match]:
    """A product over windows, the padding of its operand among it or not."""
    for layout, chain in laid_out(columns, steps(columns, columns.rows[row].operands[side]), {"0.0"}):
        match = _product(columns, row, side, layout, chain)
        if match is not None:
            yield match


def _product(columns: Columns, row: int, side: int, layout: Layout, chain: list[int]) -> Match | None:
    """A product of which one operand is windows: their places are its terms, or which of them are."""
    operands = columns.rows[row].operands
    rank = columns.rows[operands[side]].shape.rank
    inner = rank - 1 if side == 0 else rank - 2
    outer = [axis for axis in range(rank) if axis != inner]
    if "count" not in layout.roles([inner]) and "offset" not in layout.roles(outer):
        kind, formula, other = "window product", FORMULA, "kernel"
    elif "offset" not in layout.roles([inner]) and "count" not in layout.roles(outer):
        kind, formula, other = "window product kernel gradient", f"{FORMULA}_KERNEL_GRADIENT", "cotangent"
    else:
        return None
    source = columns.rows[chain[-1]].operands[0]
    named = {"operand": source, other: operands[1 - side]}
    return made(columns, kind, formula, row, [*chain, row], named, {}, _parameters(layout, side))


def _folded(columns: Columns, root: int) -> Match | None:
    """A product of which each row is added back to the windows that it belongs to."""
    layout = Layout(columns.rows[root].shape)
    rows, row = [root], root
    while not isinstance(columns.rows[row].opcode, MatMul) and len(rows) < LONGEST:
        recorded = columns.rows[row]
        zero = zero_addend(columns, row)
        if zero is not None:
            row = zero[0]
            rows += zero[1]
        elif isinstance(recorded.opcode, Fold | Narrow | Permute | Reshape):
            (row,) = recorded.operands
            if not layout.retrace(recorded.opcode, columns.rows[row].shape):
                return None
        else:
            return None
        rows.append(row)
    if not isinstance(columns.rows[row].opcode, MatMul) or not layout.is_windowed:
        return None
    *outer, last = range(columns.rows[row].shape.rank)
    for side, inner, others in ((0, last, outer), (1, outer[-1], [*outer[:-1], last])):
        if "count" not in layout.roles([inner]) and "offset" not in layout.roles(others):
            cotangent, kernel = columns.rows[row].operands[:: 1 if side == 0 else -1]
            formula, named = f"{FORMULA}_INPUT_GRADIENT", {"cotangent": cotangent, "kernel": kernel}
            kind = "window product input gradient"
            return made(columns, kind, formula, root, rows, named, {}, _parameters(layout, side))
    return None


def _parameters(layout: Layout, side: int) -> dict[str, Any]:
    """The windows, which operand of the product they are, and what lies along each of its axes."""
    axes = tuple(layout.parts(axis) for axis in range(len(layout.axes)))
    return {"windows": layout.parameters, "side": SIDES[side], "axes": axes}
