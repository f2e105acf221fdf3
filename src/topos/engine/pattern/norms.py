"""Normalisation: over the features of each row (layer, root mean square) or over a batch (training, inference)."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from topos.engine.pattern.axes import Spread, sums
from topos.engine.pattern.columns import Columns
from topos.engine.pattern.form import Form, Told
from topos.engine.pattern.terms import Constant, Either, Found, Instruction, Term, Variable
from topos.op.maps import Sqrt


def _mean(operand: Term) -> Term:
    return sums(operand, "axes") / Constant("count")


def _over(value: Term, deviation: Term) -> Term:
    """A value by its deviation, which stands along `axes`; or times its inverse."""
    one = Constant(value=1.0)
    return Either(
        value / Spread(deviation, "axes"),
        value * Spread(one / deviation, "axes"),
        value * (one / Spread(deviation, "axes")),
    )


def _affine(normal: Term) -> Iterator[Term]:
    """With gain and bias, with one of them, with none."""
    gain, bias = Spread(Variable("gain"), "gain axes"), Spread(Variable("bias"), "bias axes")
    for term in normal.terms if isinstance(normal, Either) else (normal,):
        yield from (term * gain + bias, term * gain, term + bias, term)


def _forms() -> Iterator[Form]:
    x = Variable("operand")
    mean = _mean(x).named("mean")
    centred = x - Spread(mean, "axes")
    variance = _mean(centred * centred).named("variance")
    deviation = Instruction(Sqrt, variance + Constant("epsilon")).named("deviation")
    for term in _affine(_over(centred, deviation)):
        yield Form(term, _by_row_or_batch)
    root = Instruction(Sqrt, _mean(x * x) + Constant("epsilon")).named("deviation")
    for term in _affine(_over(x, root)):
        yield Form(term, _root_mean_square)
    given = Instruction(Sqrt, Variable("variance") + Constant("epsilon"))
    for term in _affine(_over(x - Spread(Variable("mean"), "axes"), given)):
        yield Form(term, _inference)


def _told(kind: str, formula: str, columns: Columns, found: Found) -> Told | None:
    """The kind where each sum was divided by as many terms as it has."""
    shape, axes = columns.rows[found.facts["operand"]].shape, found.facts["axes"]
    count = found.facts.get("count")
    if count is not None and count != prod(shape[axis] for axis in axes):
        return None
    return Told(kind, formula, {"axes": axes, "epsilon": found.facts["epsilon"]})


def _affine_axes(found: Found) -> set[tuple[int, ...]]:
    """The axes along which gain and bias, where they are there, repeat."""
    return {found.facts[name] for name in ("gain axes", "bias axes") if name in found.facts}


def _features(columns: Columns, found: Found) -> tuple[int, ...]:
    """The axes that are not summed."""
    rank = columns.rows[found.facts["operand"]].shape.rank
    return tuple(axis for axis in range(rank) if axis not in found.facts["axes"])


def _is_by_row(columns: Columns, found: Found) -> bool:
    """Whether each row has statistics of its own: gain and bias, if any, are one row; the batch axis is not summed."""
    others = _features(columns, found)
    affine = _affine_axes(found)
    return affine == {others} if affine else not others or 0 in others


def _is_by_channel(columns: Columns, found: Found) -> bool:
    """Whether each channel has statistics, gain and bias of its own, over an axis of batches among others."""
    return (
        len(_features(columns, found)) == 1
        and 0 in found.facts["axes"]
        and _affine_axes(found) <= {found.facts["axes"]}
    )


def _by_row_or_batch(columns: Columns, row: int, found: Found) -> Told | None:
    if _is_by_row(columns, found):
        return _told("layer norm", "LAYER_NORM", columns, found)
    if _is_by_channel(columns, found):
        return _told("batch norm training", "BATCH_NORM_TRAINING", columns, found)
    return None


def _root_mean_square(columns: Columns, row: int, found: Found) -> Told | None:
    return _told("RMS norm", "RMS_NORM", columns, found) if _is_by_row(columns, found) else None


def _inference(columns: Columns, row: int, found: Found) -> Told | None:
    """The statistics are given: sources, not something that was worked out in another way."""
    given = all(columns.rows[found.facts[name]].opcode.is_source for name in ("mean", "variance"))
    if not given or not _is_by_channel(columns, found):
        return None
    return _told("batch norm inference", "BATCH_NORM_INFERENCE", columns, found)


FORMS = tuple(_forms())
