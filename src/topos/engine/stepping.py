"""Several steps in one call: how many are asked for, and their results side by side."""

from __future__ import annotations

from typing import Any

import numpy as np

from topos.engine.entry import Entry
from topos.errors import FeedError, ShapeError
from topos.graph.spec import Spec
from topos.shape import Shape
from topos.tensor import Tensor


def checked_steps(spec: Spec, entry: Entry, steps: Any) -> int:
    """The number of steps that an `advance` asks for.

    Raises `FeedError` where that is none, `ShapeError` where no run of several steps has such results.
    """
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise FeedError(f"advance: steps must be an integer of at least 1, got {steps!r}")
    if entry.backward:
        raise ShapeError("advance: a run of several steps retains no values; lower without backward()")
    if any(spec.is_selection(symbol.index) for symbol in entry.results):
        raise ShapeError("advance: a selection is no result of several steps")
    count = int(steps)
    for symbol in entry.results:
        Shape((count, *spec.rows[symbol.index].shape))  # which raises where it is too large
    return count


def stacked(tensors: list[Tensor]) -> Tensor:
    """A result of every step, along a leading axis."""
    element = tensors[0].element
    assert element is not None  # a selection is refused before the first step
    return Tensor.of(np.stack([tensor.dense(element) for tensor in tensors]), element)
