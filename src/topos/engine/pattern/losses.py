"""Softmax, and the cross entropy of scores by labels."""

from __future__ import annotations

from collections.abc import Iterator

from topos.engine.pattern.axes import Spread, maxima, sums
from topos.engine.pattern.columns import Columns
from topos.engine.pattern.form import Form, Told
from topos.engine.pattern.terms import Constant, Either, Found, Instruction, Term, Variable
from topos.op import LogSoftmax, Select, Stop, Sum
from topos.op.maps import Exp, Ln


def softmax(x: Term) -> Term:
    """Softmax along `axis`; what a gradient asks of it are the largest score and the sum of each row."""
    largest = maxima(x, "axis")
    largest = Either(Instruction(Stop, largest), largest).named("maximum")
    powers = Instruction(Exp, x - Spread(largest, "axis"))
    return powers / Spread(sums(powers, "axis").named("total"), "axis")


def _forms() -> Iterator[Form]:
    x = Variable("scores")
    chances = Either(Instruction(LogSoftmax, x, facts={"axis": "axis"}), Instruction(Ln, softmax(x)))
    picked = Instruction(Select, Variable("labels"), chances, Constant(value=0.0))
    each = Either(picked, sums(picked, "summed"))
    total = Either(Instruction(Sum, each), sums(picked, "summed"))
    negated = Instruction(Sum, Either(-each, sums(-picked, "summed")))
    count = Constant("divisor")
    for term in (-total / count, -(total / count), negated / count, -total, negated, sums(-picked, "summed")):
        yield Form(term, _told)


def _told(columns: Columns, row: int, found: Found) -> Told | None:
    """One term per row of scores: where an axis is summed, it is that of the classes."""
    axis = found.facts["axis"]
    axis = axis if isinstance(axis, int) else axis[0]
    summed = found.facts.get("summed")
    if summed is not None and summed != (axis,):
        return None
    return Told("cross entropy", "CROSS_ENTROPY", {"axis": axis, "divisor": found.facts.get("divisor", 1.0)})


FORMS = tuple(_forms())
