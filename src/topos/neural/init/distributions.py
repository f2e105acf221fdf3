"""Initialisers that draw each number by itself, on a scale that is given."""

from __future__ import annotations

from topos.errors import SettingError
from topos.neural.init.seeded import Seeded
from topos.neural.limits import expect_number, expect_positive, expect_share
from topos.neural.stream import expect_seed

LEAST = 0.001
"""The least limit of a truncated normal: below it nearly every draw is passed over, and what is left is uniform."""


def uniform(seed: int, scale: float = 1.0) -> Seeded:
    """Even over `[-scale, scale)`: `(2 * u - 1) * scale` of the next real `u` (rounding may reach `scale`)."""
    seed, scale = expect_seed(seed), expect_number("init.uniform", "scale", scale)
    return Seeded("uniform", seed, lambda stream, shape: stream.signed(shape.volume) * scale)


def normal(seed: int, scale: float = 1.0) -> Seeded:
    """Normal about 0 with the standard deviation `scale`: a standard normal times `scale`."""
    seed, scale = expect_seed(seed), expect_number("init.normal", "scale", scale)
    return Seeded("normal", seed, lambda stream, shape: stream.normals(shape.volume) * scale)


def truncated_normal(seed: int, scale: float = 1.0, limit: float = 2.0) -> Seeded:
    """Normal within `limit` times `scale` of 0: what is drawn beyond is passed over.

    What is left deviates by less than `scale` (0.88 of it for a limit of 2). Raises `SettingError` for a limit that is
    below 0.001, where nearly all of them would be passed over.
    """
    seed, scale = expect_seed(seed), expect_number("init.truncated_normal", "scale", scale)
    limit = expect_positive("init.truncated_normal", "limit", limit)
    if limit < LEAST:
        raise SettingError(f"init.truncated_normal: limit must be at least {LEAST}, got {limit!r}; see init.uniform")
    return Seeded("truncated_normal", seed, lambda stream, shape: stream.truncated_normals(shape.volume, limit) * scale)


def dropout(seed: int, rate: float) -> Seeded:
    """Masks: 0 where the next real is below `rate`, else `1 / (1 - rate)`, so that a mean stays what it was.

    Such a mask is what a dropout is fed. Raises `SettingError` for a rate outside `[0, 1)`.
    """
    seed, rate = expect_seed(seed), expect_share("init.dropout", "rate", rate)
    kept = 1.0 / (1.0 - rate)
    return Seeded("dropout", seed, lambda stream, shape: (stream.reals(shape.volume) >= rate) * kept)
