"""Softmax, and the cross entropy of scores by labels."""

from __future__ import annotations

from collections.abc import Iterator

from topos.engine.pattern.axes import Along, Spread, maxima, sums
from topos.engine.pattern.columns import Columns
from topos.engine.pattern.form import Form, Told
from topos.engine.pattern.terms import Constant, Either, Found, Instruction, Term, Variable
from topos.op import LogSoftmax, LogSumExp, Reshape, Select, Stop, Sum
from topos.op.maps import Exp, Ln


def _largest(x: Term) -> Term:
    """The largest score of each row, passing a cotangent or not."""
    largest = maxima(x, "axis")
    return Either(Instruction(Stop, largest), largest).named("maximum")


def softmax(x: Term) -> Term:
    """Softmax along `axis`; what a gradient asks of it are the largest score and the sum of each row."""
    powers = Instruction(Exp, x - Spread(_largest(x), "axis"))
    return powers / Spread(sums(powers, "axis").named("total"), "axis")


def _logsumexp(x: Term) -> Iterator[Term]:
    """The logarithm of the sum of powers, as an instruction or by hand, shifted by the largest score or not."""
    yield Along(LogSumExp, x, "axis").named("logarithm")
    largest = _largest(x)
    powers = Instruction(Exp, x - Spread(largest, "axis"))
    yield (largest + Instruction(Ln, sums(powers, "axis").named("total"))).named("logarithm")
    yield Instruction(Ln, sums(Instruction(Exp, x), "axis").named("total")).named("logarithm")


def _chances(x: Term) -> Iterator[Term]:
    """The logarithm of the softmax."""
    yield Instruction(LogSoftmax, x, facts={"axis": "axis"})
    yield Instruction(Ln, softmax(x))
    for logarithm in _logsumexp(x):
        yield x - Spread(logarithm, "axis")
    shifted = x - Spread(_largest(x), "axis")
    yield shifted - Spread(Instruction(Ln, sums(Instruction(Exp, shifted), "axis").named("total")), "axis")


def _picked(value: Term) -> Term:
    return Instruction(Select, Variable("labels"), value, Constant(value=0.0))


def _forms() -> Iterator[Form]:
    x = Variable("scores")
    count = Constant("divisor")
    picked = _picked(Either(*_chances(x)))
    each = Either(picked, sums(picked, "summed"))
    total = Either(Instruction(Sum, each), sums(picked, "summed"))
    negated = Instruction(Sum, Either(-each, sums(-picked, "summed")))
    for term in (-total / count, -(total / count), negated / count, -total, negated, sums(-picked, "summed")):
        yield Form(term, _told)
    score = sums(_picked(x), "summed")
    for logarithm in _logsumexp(x):
        loss, gain = logarithm - score, score - logarithm
        losses = Instruction(Sum, Either(loss, -gain))
        apart = Instruction(Sum, logarithm) - Instruction(Sum, Either(_picked(x), score))
        for term in (losses / count, losses, apart / count, apart, loss):
            yield Form(term, _told_of_scores)
        gained = Instruction(Sum, gain)
        for term in (-gained / count, -(gained / count), -gained, -gain):
            yield Form(term, _told_of_scores)


def _told(columns: Columns, row: int, found: Found) -> Told | None:
    """One term per row of scores: where an axis is summed, it is that of the classes."""
    axes = found.facts["axis"]
    axes = (axes,) if isinstance(axes, int) else axes
    if len(axes) != 1 or found.facts.get("summed", axes) != axes:
        return None
    return Told("cross entropy", "CROSS_ENTROPY", {"axis": axes[0], "divisor": found.facts.get("divisor", 1.0)})


def _told_of_scores(columns: Columns, row: int, found: Found) -> Told | None:
    """Where scores are picked, and not what a softmax makes of them, labels have to pick one of each row."""
    labels = found.facts["labels"]
    told = _told(columns, row, found)
    if told is None or told.parameters["axis"] != columns.rows[labels].shape.rank - 1:
        return None
    return told if _picks_one(columns, labels) else None


def _picks_one(columns: Columns, labels: int) -> bool:
    """Whether a row of labels is that of a selection, however the rows are grouped."""
    classes = columns.rows[labels].shape[-1]
    while isinstance(columns.rows[labels].opcode, Reshape):
        (labels,) = columns.rows[labels].operands
        if columns.rows[labels].shape[-1] != classes:
            return False
    return columns.spec.is_selection(labels)


FORMS = tuple(_forms())
