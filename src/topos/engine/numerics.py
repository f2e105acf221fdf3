"""The posture of an entry: which departures from the defining bits it permits."""

from __future__ import annotations

from contextlib import AbstractContextManager
from enum import Enum

from topos.tensor import services


class Numerics(Enum):
    """`EXACT` promises the defining bits whatever is enabled; `FAST`, the default, also admits stated envelopes.

    The interpreter computes the defining bits under both.
    """

    EXACT = "exact"
    FAST = "fast"

    @staticmethod
    def exactly() -> AbstractContextManager[None]:
        """Holds tensors that compute at once to `EXACT`: `with Numerics.exactly():`, in this thread."""
        return services.exactly()
