"""Compositions for which StableHLO has one operation: elected among a plan's patterns, and written as that.

`raising` is a composition at work, `axes` what lies along those of a convolution; then a file for each family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from topos.element import bf16, f32, f64
from topos.emission.raises import convolutions, norms, pools
from topos.emission.raises.axes import axes_of
from topos.emission.raises.raising import Raising
from topos.emission.text import Named
from topos.engine.entry import Entry
from topos.engine.pattern.elect import NOTHING, Election, as_scheduled, elect
from topos.engine.pattern.match import Match
from topos.engine.pattern.pool import pooled
from topos.errors import SettingError
from topos.graph.spec import Spec

__all__ = ["RAISES", "Raising", "elected"]

RAISES: Mapping[str, Callable[[Raising], dict[int, Named]]] = {
    "WINDOW_PRODUCT": convolutions.product,
    "WINDOW_PRODUCT_KERNEL_GRADIENT": convolutions.kernel_gradient,
    "WINDOW_PRODUCT_INPUT_GRADIENT": convolutions.input_gradient,
    "REDUCE_WINDOW": pools.pool,
    "REDUCE_WINDOW_GRADIENT": pools.pool_gradient,
    "BATCH_NORM_TRAINING": norms.training,
    "BATCH_NORM_TRAINING_GRADIENT": norms.training_gradient,
    "BATCH_NORM_INFERENCE": norms.inference,
}
"""What writes each composition, by its formula."""


def elected(spec: Spec, length: int, rows: Sequence[int], entry: Entry, raises: bool | Iterable[str]) -> Election:
    """The compositions of a schedule that are written as one operation. None of a plan that retains its values."""
    names = _names(raises)
    if entry.backward or not names:
        return NOTHING
    asked_for = frozenset(rows)
    found = (match for match in pooled(spec, length) if match.formula in names)
    asked = (as_scheduled(match, asked_for, spec.rows) for match in found)
    able = [match for match in asked if match is not None and _is_able(spec, match)]
    kept = {symbol.index for symbol in (*entry.results, *entry.carry.values())}
    return elect(spec.rows, rows, able, names, kept)


def _names(raises: bool | Iterable[str]) -> frozenset[str]:
    """The formulas that are raised: all that can be, none, or those that are named."""
    if isinstance(raises, bool):
        return frozenset(RAISES) if raises else frozenset()
    names = {str(name): None for name in ([raises] if isinstance(raises, str) else raises)}
    for name in names:
        if name not in RAISES:
            raise SettingError(f"emit_stablehlo: no operation is raised from {name!r}; there are {', '.join(RAISES)}")
    return frozenset(names)


def _is_able(spec: Spec, match: Match) -> bool:
    """Whether the operation says what the composition does: over those numbers, arranged as they are."""
    operands = match.operands.values()
    if any(spec.is_selection(row) or not spec.rows[row].shape.volume for row in operands):
        return False
    elements = {spec.element_of(row) for row in (*match.rows, *operands)}
    if match.formula.startswith("BATCH_NORM"):
        return elements in ({f32}, {f64}) and norms.is_spelled(spec, match)
    if elements not in ({f32}, {f64}, {bf16}):
        return False
    return pools.is_spelled(spec, match) if match.formula.startswith("REDUCE") else axes_of(spec, match) is not None
