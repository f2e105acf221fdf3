"""Attention, and masks of what may be attended."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from topos.element import Element, f32
from topos.errors import ShapeError
from topos.graph import Symbol, Value
from topos.neural.options import extent, operand, refusing
from topos.op import where as chosen
from topos.tensor import Tensor


def causal_mask(extent: int, fill: float | None = None, *, element: Element = f32) -> Tensor:
    """What each of `extent` places may attend, `[extent, extent]`: itself and what is before it.

    Without `fill`, one where it may and zero where not: the `where` of an attention. With `fill`, zero where it may and
    `fill` where not: an addend, its `mask`.

    >>> causal_mask(2).tolist(), causal_mask(2, float("-inf")).tolist()
    ([[1.0, 0.0], [1.0, 1.0]], [[0.0, -inf], [0.0, 0.0]])
    """
    extent = _extent(extent)
    seen = np.tril(np.ones((extent, extent)))
    return Tensor(seen if fill is None else np.where(seen > 0, 0.0, fill), element)


def scaled_dot_product(
    query: Value, key: Value, value: Value, mask: Any = None, scale: float | None = None, where: Any = None
) -> Value:
    """`softmax(query @ key^T * scale + mask) @ value` (Vaswani et al. 2017, section 3.2.1).

    Queries are `[..., tokens, width]`, keys `[..., places, width]`, values `[..., places, outputs]`, with equal leading
    axes. `scale` is `1 / sqrt(width)` unless given. `mask` is added; `where` chooses: a score counts where it is
    nonzero and is `-inf` elsewhere, which lets a plan skip it. Both are values or payloads that spread to
    `[..., tokens, places]`. A row of scores with no place to attend is NaN. Raises `ShapeError`.
    """
    _fit(query, key, value)
    scores = query @ key.transpose() * (1 / sqrt(query.shape[-1]) if scale is None else scale)
    if mask is not None:
        scores = scores + _beside(scores, mask, "mask")
    if where is not None:
        scores = chosen(_beside(scores, where, "where"), scores, float("-inf"))
    return scores.softmax(-1) @ value


def _fit(query: Value, key: Value, value: Value) -> None:
    refuse = refusing("scaled_dot_product")
    for given in (query, key, value):
        operand(refuse, given)
    shapes = query.shape, key.shape, value.shape
    if any(shape.rank < 2 or shape[:-2] != query.shape[:-2] for shape in shapes):
        raise refuse(f"wants two axes or more and equal leading ones, got query, key and value of {_listed(shapes)}")
    if query.shape[-1] != key.shape[-1] or not query.shape[-1]:
        raise refuse(f"wants queries and keys of one width, got {query.shape} and {key.shape}")
    if key.shape[-2] != value.shape[-2]:
        raise refuse(f"wants a value for each key, got {key.shape} and {value.shape}")


def _listed(shapes: Any) -> str:
    return ", ".join(map(str, shapes))


def _beside(scores: Any, mask: Any, name: str) -> Any:
    """A mask of the scores' shape and element; where these are recorded a payload becomes a constant."""
    if isinstance(mask, Symbol) and isinstance(scores, Value):
        mask = scores.tape.resolve(mask)
    beside: Any
    if isinstance(mask, Value):
        beside = mask.to(scores.element)
    else:
        numbers = mask.convert(scores.element) if isinstance(mask, Tensor) else Tensor(mask, scores.element)
        beside = scores.tape.leaf(numbers, element=scores.element) if isinstance(scores, Value) else numbers
    try:
        return beside.broadcast_to(scores.shape)
    except ShapeError:
        wanted = f"wants a {name} that spreads to [..., tokens, places], {scores.shape}, got {beside.shape}"
        raise refusing("scaled_dot_product")(wanted) from None


def _extent(given: int) -> int:
    return extent(refusing("causal_mask"), "extent", given, 0)
