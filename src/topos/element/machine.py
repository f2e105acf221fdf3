"""Whether this thread's processor computes the promised bits."""

from __future__ import annotations

import numpy as np

from topos.errors import ExactnessError

_tiny = np.array([np.float32(2.0**-126), np.float32(2.0**-149)], np.float32)
_half = np.array([0.5, 1.0], np.float32)


def check_subnormals() -> None:
    """Raises `ExactnessError` where a foreign library has set flush-to-zero in this thread."""
    if not (_tiny * _half).all():
        raise ExactnessError(
            "run: this thread flushes subnormal numbers to zero (some library set the processor flag), so the promised "
            "bits cannot be computed; run in another thread or process, or find the library built with -ffast-math"
        )
