"""One limit for all gradients together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple, TypeVar

from topos.element import Element
from topos.errors import KinshipError
from topos.graph import Adjoints, Parameters, Value
from topos.neural.limits import expect_positive
from topos.neural.plans import computed
from topos.neural.rule import live_pairs, widest
from topos.tensor import Tensor

Gradients = TypeVar("Gradients", Parameters, Adjoints)


def clip_by_global_norm(gradients: Gradients, limit: float) -> Gradients:
    """The gradients, made shorter where the root of the sum of all their squares is above `limit`.

    Over a table it computes, over adjoints (before they are detached) it records, with the same bits. Where nothing
    has to be made shorter every bit stays. Neither overflows nor underflows: gradients are divided by the largest
    magnitude among them before they are squared, `gradient / largest * (limit / length)` with the length of what was
    so divided. Zeros stay zeros. One NaN or infinity among them makes all of them NaN, which no step hides.

    Each gradient's squares are one sum, and these are added in the parameters' recording order, in the widest
    accumulator there is. Adjoints come back in that order, each once. Raises `SettingError` where the limit is not
    above 0.

    >>> from topos import Tape, clip_by_global_norm
    >>> network, weight = Tape.record(lambda tape: tape.parameter([4e30, 4e30, -4e30, 4e30]))
    >>> clip_by_global_norm(network.parameters(), limit=1).of(weight)
    Tensor([ 0.5,  0.5, -0.5,  0.5], f32)
    """
    limit = expect_positive("clip_by_global_norm", "limit", limit)
    if isinstance(gradients, Adjoints):
        return _recorded(gradients, limit)
    if not isinstance(gradients, Parameters):
        kind = type(gradients).__name__
        raise KinshipError(f"clip_by_global_norm: wants Parameters or Adjoints, got {kind}")
    found: list[Tensor] = [tensor for tensor in gradients.payloads() if tensor is not None]
    wide = widest(found)
    tensors = [Tensor(limit, wide), *found]
    answers = computed(gradients.family, "clip_by_global_norm", tensors, partial(_all, wide))
    if answers is not None:
        return _replaced(gradients, iter(answers))
    clip = _clip(lambda part: [t for t in gradients.map(part).payloads() if t is not None], wide, limit)
    return gradients.map(lambda tensor: _clipped(tensor, clip))


def _all(wide: Element, values: Sequence[Any]) -> list[Any]:
    """What all gradients together become; the limit comes before them."""
    limit, *parts = values
    clip = _clip(lambda part: list(map(part, parts)), wide, limit)
    return [_clipped(part, clip) for part in parts]


def _replaced(gradients: Parameters, answers: Iterator[Tensor]) -> Parameters:
    """The table with other tensors where it has one."""
    pairs = {symbol.index: None if tensor is None else next(answers) for symbol, tensor in gradients}
    return Parameters(gradients.family, pairs)


def _recorded(adjoints: Adjoints, limit: float) -> Adjoints:
    target = adjoints.target
    if not isinstance(target, Value):
        raise KinshipError("clip_by_global_norm: wants adjoints with live values; clip them before they are detached")
    pairs = live_pairs(target.tape, adjoints, "clip_by_global_norm")
    gradients = [gradient for _, gradient in pairs]
    with target.tape.transaction():
        shortened = _all(widest(gradients), [limit, *gradients])
        return Adjoints(target, [(wrt, part) for (wrt, _), part in zip(pairs, shortened, strict=True)])


class _Clip(NamedTuple):
    """What all gradients are clipped by, of rank 0: by what they are divided, then multiplied, and whether at all."""

    scale: Any
    factor: Any
    is_short: Any


def _clip(of_each: Callable[[Callable[[Any], Any]], list[Any]], wide: Element, limit: Any) -> _Clip | None:
    """`None` where there is no gradient; `of_each` makes a number of every gradient, in recording order."""
    magnitudes = of_each(lambda part: _largest(part.to(wide)))
    if not magnitudes:
        return None
    largest = reduce(lambda left, right: left.maximum(right), magnitudes)
    scale = largest.select(largest, 1.0)
    length = reduce(add, of_each(lambda part: _squares(part.to(wide), scale))).sqrt()
    return _Clip(scale, limit / length, (limit / scale).step(length))


def _clipped(part: Any, clip: _Clip | None) -> Any:
    if clip is None:
        return part
    scale, factor, is_short = (number.broadcast(part.shape) for number in clip)
    shortened = part.to(clip.scale.element) / scale * factor
    return is_short.to(part.element).select(part, shortened.to(part.element))


def _largest(part: Any) -> Any:
    """The largest magnitude; NaN where there is one, and zero of nothing."""
    volume = part.shape.volume
    return part.maximum(-part).reshape([volume]).max_along(0) if volume else part.sum()


def _squares(part: Any, scale: Any) -> Any:
    scaled = part / scale.broadcast(part.shape)
    return (scaled * scaled).sum()
