"""Whether this thread's processor computes the promised bits."""

from __future__ import annotations

import struct

from topos.errors import ExactnessError

# Binary64 that the compiler cannot fold: the processor's flags are the same for every width.
_one, _half, _speck = 1.0, 0.5, 2.0**-60
_least_normal = 2.0**-1022
(_least,) = struct.unpack("<d", (1).to_bytes(8, "little"))  # its bits: arithmetic at import may be what flushes


def check_arithmetic() -> None:
    """Raises `ExactnessError` where a foreign library has set flush-to-zero or another rounding in this thread."""
    if not (_least_normal * _half and _least * _one):
        raise ExactnessError(
            "run: this thread flushes subnormal numbers to zero (some library set the processor flag), so the promised "
            "bits cannot be computed; run in another thread or process, or find the library built with -ffast-math"
        )
    if _one + _speck != _one or _one - _speck != _one:
        raise ExactnessError(
            "run: this thread does not round to nearest (some library set the processor's rounding), so the promised "
            "bits cannot be computed; restore it (fesetround), or run in another thread or process"
        )
