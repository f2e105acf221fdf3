"""Scaled dot-product attention, with a mask that is selected or added, or without."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from topos.engine.pattern.axes import Regrouped, Spread, Transposed
from topos.engine.pattern.columns import Columns
from topos.engine.pattern.form import Form, Told
from topos.engine.pattern.losses import softmax
from topos.engine.pattern.terms import Constant, Either, Found, Instruction, Term, Variable
from topos.op import Select


def _scores() -> Iterator[tuple[str, Term]]:
    """Queries by keys, scaled or not, masked or not, and how; keys may lie transposed."""
    query, key = Variable("query"), Variable("key")
    products = Regrouped(Either(query @ Transposed(key), query @ Variable("transposed key")))
    scale = Constant("scale")
    scaled = Either(products * scale, products / Constant("divisor"), products)
    mask = Spread(Variable("mask"), "mask axes", least=0)
    fill = Constant("fill")
    yield "kept where it is set", Instruction(Select, mask, scaled, fill)
    yield "filled where it is set", Instruction(Select, mask, fill, scaled)
    yield "added", scaled + mask
    yield "", scaled


def _told(mask: str, columns: Columns, row: int, found: Found) -> Told | None:
    """Each row of scores is normalised: along the last axis."""
    (largest,) = (columns.rows[at] for term, at in found.bound.items() if term.name == "maximum")
    if found.facts["axis"] != (largest.shape.rank,):
        return None
    told = {name: found.facts[name] for name in ("scale", "divisor", "fill") if name in found.facts}
    if mask:
        told |= {"mask": mask, "mask_axes": found.facts["mask axes"]}
    return Told("attention", "ATTENTION", told | {"rows": largest.shape})


FORMS = tuple(Form(Regrouped(softmax(scores)) @ Variable("value"), partial(_told, mask)) for mask, scores in _scores())
