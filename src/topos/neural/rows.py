"""Values as rows along their last axis: what dense layers, tables that score and norms over features share."""

from __future__ import annotations

from topos.graph import Value
from topos.neural.options import Refuse


def expect_width(refuse: Refuse, x: Value, width: int) -> None:
    """Refuses what has no last axis of `width`."""
    if not x.shape.rank or x.shape[-1] != width:
        raise refuse(f"wants a last axis of {width}, got {x.shape}")


def flat(x: Value) -> Value:
    """`[..., width]` as `[rows, width]`: the leading axes as one; itself where it is so."""
    return x if x.shape.rank == 2 else x.reshape([x.shape.without_axis(-1).volume, x.shape[-1]])


def unflat(rows: Value, like: Value) -> Value:
    """Rows with the leading axes of what they were made of."""
    return rows if like.shape.rank == 2 else rows.reshape([*like.shape[:-1], rows.shape[-1]])
