"""Ids that stand for one-hot rows: what is accepted, and how a bad one is named."""

from __future__ import annotations

from typing import Any

import numpy as np

from topos.element.element import Array
from topos.errors import FeedError
from topos.tensor.payload import as_array


def checked_ids(indices: Any, vocab: int, absent: int | None, rule: str) -> Array:
    """Integer ids of any shape as int64 of the same shape, `absent` ones as -1.

    Raises `FeedError` that names the first bad id, its position and the vocab.
    """
    ids = as_array(indices)
    if ids.size == 0 and not isinstance(indices, np.ndarray):
        ids = ids.astype(np.int64)
    if ids.dtype.kind not in "iu":
        raise FeedError(f"{rule}: ids must be integers, got {ids.dtype}")
    result = ids.astype(np.int64)
    if absent is None and (not ids.size or np.maximum.reduce(result.view(np.uint64), axis=None) < vocab):
        return result  # one look at all: a negative one is a large one without its sign
    chosen = (ids >= 0) & (ids < vocab)
    if absent is not None:
        chosen |= ids == absent
    if not chosen.all():
        position = np.argwhere(~np.atleast_1d(chosen))[0].tolist()[: ids.ndim]
        bad = int(ids[tuple(position)])
        raise FeedError(f"{rule}: id {bad} at {position} is not one of the vocab's 0 .. {vocab - 1}")
    if absent is not None:
        result[ids == absent] = -1
    return result
