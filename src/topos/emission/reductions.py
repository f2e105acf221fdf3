"""Reductions along axes, in the accumulator's type, and what is composed of them."""

from __future__ import annotations

from collections.abc import Callable

from topos.emission.indexing import scattered
from topos.emission.movement import window_places
from topos.emission.site import Site
from topos.emission.text import Named
from topos.errors import EmissionError
from topos.op import Fold, LogSoftmax, LogSumExp, MaxAlong, Reduction, Sum, SumAlong


def total(site: Site) -> Named:
    """The sum over all axes."""
    x = site.words.convert(site.dense(), site.accumulator)
    return site.demoted(reduced(site, x, "add", 0.0, list(range(len(x.shape)))))


def sum_along(site: Site) -> Named:
    """The sum along one axis."""
    x = site.words.convert(site.dense(), site.accumulator)
    return site.demoted(reduced(site, x, "add", 0.0, [site.opcode.axis]))


def max_along(site: Site) -> Named:
    """The largest along one axis, or NaN, plus zero."""
    if "maximum" in site.contract.bodies:
        raise EmissionError(f"element {site.element} has a maximum of its own, which no reduction of StableHLO is")
    return _largest(site, site.dense())


def logsumexp(site: Site) -> Named:
    """`m + ln(sum(exp(x - m)))`."""
    highest, _, sums = _shifted(site)
    return site.demoted(site.words.add(highest, site.words.ln(sums)))


def log_softmax(site: Site) -> Named:
    """`(x - m) - ln(sum(exp(x - m)))`."""
    _, shifted, sums = _shifted(site)
    logarithm = site.words.spread(site.words.ln(sums), _others(site, shifted), shifted.shape)
    return site.demoted(site.words.sub(shifted, logarithm))


def fold(site: Site) -> Named:
    """Windows added back at their places."""
    axis = site.opcode.axis
    x = site.words.convert(site.dense(), site.accumulator)
    places = window_places(site, x.shape[axis])
    others = [position for position in range(len(x.shape)) if position not in (axis, axis + 1)]
    return site.demoted(scattered(site, x, places, others, axis, 2))


def reduced(site: Site, x: Named, operation: str, start: float, axes: list[int]) -> Named:
    """Axes taken together by an operation, from a start."""
    words = site.words
    seed = words.scalar(start, x.type)
    shape = [extent for axis, extent in enumerate(x.shape) if axis not in axes]
    result = words.writer.named("total", shape, x.type)
    text = f"stablehlo.reduce({x.name} init: {seed.name}) applies stablehlo.{operation} across dimensions = {axes}"
    return words.writer.line(result, f"{text} : {words.writer.signature([x, seed], result)}")


def _largest(site: Site, x: Named) -> Named:
    largest = reduced(site, x, "maximum", float("-inf"), [site.opcode.axis])
    return site.words.add(largest, site.words.number(0.0, largest, "zero"))


def _shifted(site: Site) -> tuple[Named, Named, Named]:
    """`m`, the largest or zero where that is not finite; `x - m`; and `sum(exp(x - m))`."""
    words = site.words
    x = words.convert(site.dense(), site.accumulator)
    largest = _largest(site, x)
    finite = words.writer.operation("is_finite", [largest], largest.shape, "i1", called="finite")
    highest = words.chosen(finite, largest, words.number(0.0, largest, "zero"))
    shifted = words.sub(x, words.spread(highest, _others(site, x), x.shape))
    return highest, shifted, reduced(site, words.exp(shifted), "add", 0.0, [site.opcode.axis])


def _others(site: Site, x: Named) -> tuple[int, ...]:
    return tuple(axis for axis in range(len(x.shape)) if axis != site.opcode.axis)


REDUCTIONS: dict[type[Reduction], Callable[[Site], Named]] = {
    Sum: total,
    SumAlong: sum_along,
    MaxAlong: max_along,
    LogSumExp: logsumexp,
    LogSoftmax: log_softmax,
    Fold: fold,
}
"""What emits each kind of reduction."""
