"""`ln` and `log1p`, once each for binary32 and binary64.

`x = 2^k m` with `m` between `sqrt(1/2)` and `sqrt(2)`, `f = m - 1`, `s = f / (f + 2)`, and `ln(m) = ln((1 + s) / (1 -
s))` as an odd polynomial in `s` (Muller, "Elementary Functions", section on logarithms). In binary64 the leading
terms `k ln(2) + f - f^2/2` are summed with their rounding errors, using `ln(m) = f - f^2/2 + s (f^2/2 + z L(z))`, `z
= s^2`.
"""

from __future__ import annotations

from topos.element import coefficients as c
from topos.element.steps import INFINITY, NAN, ROUND, ROUND_BITS, fast_two_sum, in_two_roundings, polynomial
from topos.element.vocabulary import Body, Value, Vocabulary

SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
"""The bits of `sqrt(1/2)` in binary64."""
TINY = 1e-300
"""Below it `log1p(x)` rounds to `x`."""


def parts(m: Vocabulary, x: Value) -> tuple[Value, Value, Value]:
    """A positive normal binary64 as `2^k (1 + f)`: `k`, `f` (exactly) and `k` in the place of the exponent."""
    pattern = m.bits(x)
    k = (pattern - SQRT_HALF_BITS) >> 52
    exponent = k << 52
    return m.real(k + ROUND_BITS) - ROUND, m.real(pattern - exponent) - 1.0, exponent


def edges(m: Vocabulary, y: Value, x: Value, zero: float) -> Value:
    """`y`, but minus infinity at the pole `x = zero`, NaN below it, and `x` where `x` is infinite or NaN."""
    y = m.select(x < INFINITY, y, x + x)
    y = m.select(x < zero, NAN, y)
    return m.select(x == zero, -INFINITY, y)


def log_wide(
    f: Value, k: Value, terms: tuple[float, ...], tail: Value | None = None, add_product: Body = in_two_roundings
) -> Value:
    """`k ln(2) + ln(1 + f) + tail` in plain binary64."""
    s = f / (f + 2.0)
    z = s * s
    y = add_product(s + s, s * z, polynomial(terms, z, add_product))
    return k * c.LN2 + (y if tail is None else y + tail)


def ln_f32(m: Vocabulary, x: Value) -> Value:
    """`ln(x)`, within 0.5001 ulp."""
    k, f, _ = parts(m, m.widen(x))
    return edges(m, m.narrow(log_wide(f, k, c.LOGARITHM_F32, add_product=m.add_product)), x, 0.0)


def log1p_f32(m: Vocabulary, x: Value) -> Value:
    """`ln(1 + x)`, within 0.5001 ulp; keeps the sign of zero. What `1 + x` loses comes back as `lost / (1 + x)`."""
    wide = m.widen(x)
    u = wide + 1.0
    k, f, _ = parts(m, u)
    y = m.narrow(log_wide(f, k, c.LOGARITHM_F32, (wide - (u - 1.0)) / u, m.add_product))
    return m.select(x == 0.0, x, edges(m, y, x, -1.0))


def log_sum(m: Vocabulary, f: Value, k: Value, tail: Value | None = None) -> Value:
    """`k ln(2) + ln(1 + f) + tail` within 0.66 ulp."""
    s = f / (f + 2.0)
    z = s * s
    half_square, half_square_error = m.two_product(f * 0.5, f)
    h = f - half_square
    h_low = ((f - h) - half_square) - half_square_error
    total, error = fast_two_sum(k * c.LN2_HIGH, h)
    rest = s * (half_square + z * polynomial(c.LOGARITHM_F64, z)) + k * c.LN2_LOW
    return total + (error + (rest + (h_low if tail is None else h_low + tail)))


def ln_f64(m: Vocabulary, x: Value) -> Value:
    """`ln(x)`, within 0.66 ulp; a subnormal is scaled by 2^54 first."""
    subnormal = x < 2.2250738585072014e-308
    k, f, _ = parts(m, m.select(subnormal, x * 18014398509481984.0, x))
    return edges(m, log_sum(m, f, m.select(subnormal, k - 54.0, k)), x, 0.0)


def log1p_f64(m: Vocabulary, x: Value) -> Value:
    """`ln(1 + x)`, within 0.68 ulp; keeps the sign of zero.

    `1 + x` is kept as a rounded sum and its error; the error, scaled like the mantissa, enters to first order.
    """
    u = x + 1.0
    part = u - 1.0
    lost = (1.0 - (u - part)) + (x - part)
    k, f, exponent = parts(m, u)
    matters = (m.absolute(k) < 1000.0) & (m.absolute(x) < INFINITY)
    lost = m.select(matters, lost * m.real(0x3FF0000000000000 - exponent), 0.0)
    y = edges(m, log_sum(m, f, k, lost / (f + 1.0)), x, -1.0)
    return m.select(m.absolute(x) < TINY, x, y)
