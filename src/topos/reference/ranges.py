"""What the operands of a product say of its terms before any is computed."""

from __future__ import annotations

import numpy as np

from topos.element.element import Array


def significant_bits(x: Array, fraction_bits: int) -> int:
    """A bound on the significant bits of every number in `x`, from the bits that any of the significands has set."""
    unsigned = np.uint32 if fraction_bits == 23 else np.uint64
    together = int(np.bitwise_or.reduce(x.view(unsigned), axis=None)) | (1 << fraction_bits)
    return fraction_bits + 1 - ((together & -together).bit_length() - 1)


def least_magnitude(x: Array) -> float:
    """The smallest nonzero magnitude of an f32 array, as an f64; zero if there is none."""
    # Without the sign and less one, zero becomes the largest of all integers.
    bits = ((x.view(np.uint32) << np.uint32(1)) - np.uint32(1)).min()
    return float(((bits + np.uint32(1)) >> np.uint32(1)).view(np.float32))


def moderate(left: Array, right: Array) -> bool:
    """Whether all is finite and no product, partial product or sum of 512 leaves the range of exact transformations."""
    least, greatest = 1.0, 1.0
    for x in (left, right):
        magnitude = np.abs(x)
        top = float(magnitude.max(initial=0.0))
        if not top < 2.0**490:
            return False
        least *= float(np.min(magnitude, where=magnitude > 0, initial=2.0**490))
        greatest *= top
    return least > 2.0**-900
