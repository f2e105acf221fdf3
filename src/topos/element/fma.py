"""The fused multiply-add `a * b + c`, rounded once, from the rounded `+ - *` alone: the same bits with and without FMA.

The error-free transformations are Knuth's two-sum and Dekker's product with Veltkamp's splitting (Muller et al.,
Handbook of Floating-Point Arithmetic, 2nd ed., 4.3.2 and 4.4); the fused sum by rounding to odd is Boldo and Melquiond,
"Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", IEEE Trans. Comput. 57(4), 2008.
Callers hold `np.errstate(all="ignore")`.
"""

from __future__ import annotations

import numpy as np

from topos.element.element import Array

_SPLITTER = 2.0**27 + 1.0
_DROPPED = np.int64(0x1FFFFFFF)  # the 29 bits of an f64 significand that an f32 has no room for
_MIDPOINT = np.int64(0x10000000)  # they read so exactly half way between two f32
_FAR = -300  # an operand this many binades below the other is a sticky speck, wherever it lies


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """`(s, e)` with `s = fl(a + b)` and `s + e = a + b` exactly, in any magnitude order, short of overflow."""
    s = np.asarray(a + b)
    shadow = s - a
    return s, np.asarray((a - (s - shadow)) + (b - shadow))


def split(a: Array) -> tuple[Array, Array]:
    """`(high, low)` with `high + low = a`, 26 significant bits each, for f64 below 2^990 in magnitude (Veltkamp)."""
    scaled = a * _SPLITTER
    high = scaled - (scaled - a)
    return np.asarray(high), np.asarray(a - high)


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """`(p, e)` with `p = fl(a * b)` and `p + e = a * b` exactly, in f64 (Dekker).

    Exact while `|a|, |b| < 2^990` and the product is zero or between 2^-960 and 2^1020 in magnitude.
    """
    p = np.asarray(a * b)
    a_high, a_low = split(a)
    b_high, b_low = split(b)
    return p, np.asarray(((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low)


def round_to_odd(s: Array, e: Array) -> Array:
    """`s + e` rounded to odd, given the nearest f64 `s` and its exact error `e`.

    Where the error is nonzero and `s` is even, the odd one of the two f64 that enclose the sum. A NaN error (beside an
    infinite `s`) leaves `s` alone.
    """
    bits = s.view(np.int64)
    adjust = (np.abs(e) > 0) & ((bits & 1) == 0)
    away_from_zero = (e > 0) == (s > 0)
    # The encoding is sign and magnitude: one more in the integer is one step away from zero, for either sign.
    return np.asarray(bits + np.where(adjust, np.where(away_from_zero, 1, -1), 0)).view(np.float64)


def may_round_twice(wide: Array) -> Array:
    """Where an f64 rounded to f32 may differ from the exact number that was rounded to this f64: a mask.

    On an f32 midpoint, or where the f32 is subnormal and its midpoints lie elsewhere.
    """
    midpoint = (wide.view(np.int64) & _DROPPED) == _MIDPOINT
    return np.asarray(midpoint | ((np.abs(wide) < 2.0**-125) & (wide != 0)))


def fma32(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` of f32 arrays that broadcast, correctly rounded, every special case included.

    The f64 product is exact, so the f64 sum is rounded once and its f32 a second time. The lanes where the second
    rounding may err are rounded to odd first, after which rounding again is innocent.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    wide = np.array(a, np.float64, order="C")
    wide *= b
    wide += c
    narrow = wide.astype(np.float32)
    suspect = may_round_twice(wide)
    if suspect.any():
        product = a[suspect].astype(np.float64) * b[suspect]
        narrow[suspect] = round_to_odd(*two_sum(product, c[suspect].astype(np.float64))).astype(np.float32)
    return narrow


def fma64(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` of f64 arrays that broadcast, correctly rounded, every special case included.

    Boldo and Melquiond's sum of three where no intermediate can over- or underflow; the other lanes are brought near 1
    first and rounded again by hand where the result is subnormal.
    """
    a, b, c = (np.array(x, np.float64, order="C") for x in np.broadcast_arrays(a, b, c))
    product = np.asarray(a * b)
    trivial = (a == 0) | (b == 0) | ~np.isfinite(a) | ~np.isfinite(b) | ~np.isfinite(c)
    magnitude = np.abs(product)
    moderate = (np.abs(a) < 2.0**990) & (np.abs(b) < 2.0**990) & (np.abs(c) < 2.0**1000)
    # Above 2^-900 every partial product is exact, and a cancellation leaves a multiple of 2^-1006: never subnormal.
    moderate &= (magnitude > 2.0**-900) & (magnitude < 2.0**1000)
    high, odd = _fused(a, b, c)
    result = np.asarray(high + odd)
    if trivial.any():
        # A finite product that overflows must not meet an infinite addend of the other sign.
        finite = np.isfinite(a) & np.isfinite(b)
        result[trivial] = np.where(finite & ~np.isfinite(c), c, product + c)[trivial]
    rare = ~(moderate | trivial)
    if rare.any():
        result[rare] = _fused_rescaled(a[rare], b[rare], c[rare])
    return result


def _fused(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """`(high, odd)`: their f64 sum is `a * b + c` rounded once, while nothing over- or underflows."""
    product, product_error = two_product(a, b)
    middle, low = two_sum(c, product_error)
    high, high_error = two_sum(product, middle)
    return high, round_to_odd(*two_sum(low, high_error))


def _fused_rescaled(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` of finite lanes with a nonzero product, whatever their exponents."""
    a_part, a_exponent = np.frexp(a)
    b_part, b_exponent = np.frexp(b)
    c_part, c_exponent = np.frexp(c)
    exponent = a_exponent + b_exponent
    c_exponent = np.where(c == 0, exponent + _FAR, c_exponent)
    scale = np.maximum(exponent, c_exponent)
    near = np.ldexp(a_part, np.maximum(exponent - scale, _FAR))
    addend = np.ldexp(c_part, np.maximum(c_exponent - scale, _FAR))
    high, odd = _fused(near, b_part, addend)
    normal = np.ldexp(high + odd, scale)  # exact when normal, infinite when it overflows
    subnormal = (np.abs(normal) < 2.0**-1022) & ((high != 0) | (odd != 0))
    # Adding 2^52 times the least subnormal, in the scaled units, leaves room for exactly the bits that a subnormal
    # keeps: the final sum rounds there, once, and taking the constant off again is exact.
    # (Below scale -2000 the result is a zero under any constant, so the bound only keeps this one finite.)
    anchor = np.copysign(np.ldexp(1.0, np.where(subnormal, np.minimum(-1022 - scale, 1000), 0)), normal)
    anchored, anchored_error = two_sum(anchor, high)
    rest = round_to_odd(*two_sum(anchored_error, odd))
    tiny = np.copysign(np.ldexp((anchored + rest) - anchor, scale), normal)
    return np.asarray(np.where(subnormal, tiny, normal))
