"""The posture of an entry: which departures from the defining bits it permits."""

from __future__ import annotations

from enum import Enum


class Numerics(Enum):
    """`EXACT` promises the defining bits whatever is enabled; `FAST`, the default, also admits stated envelopes.

    The interpreter computes the defining bits under both.
    """

    EXACT = "exact"
    FAST = "fast"
