"""`exp`, `expm1` and `tanh`, once each for binary32 and binary64.

All reduce as `x = k ln(2) + r` with a whole `k` (Cody and Waite, "Software Manual for the Elementary Functions",
chapter 6) and evaluate a minimax polynomial in `r`. The binary32 forms work in binary64 and round once: within 0.5007
ulp. The binary64 forms take `ln(2)` in two parts, so that `r` comes with its own rounding error.
"""

from __future__ import annotations

from topos.element import coefficients as c
from topos.element.steps import (
    BIAS,
    ROUND,
    ROUND_BIASED,
    clamp,
    fast_two_sum,
    in_two_roundings,
    polynomial,
    power_of_two,
    scaled,
    two_sum,
)
from topos.element.vocabulary import Body, Value, Vocabulary


# binary32, through binary64
def exp_shifted(m: Vocabulary, x: Value, shifted: Value, add_product: Body = in_two_roundings) -> Value:
    """`exp(x)` for a binary64 `|x| < 256`, relative error below 2^-34; `shifted` is `x / ln(2) + ROUND`.

    The polynomial's exponent and `k` are added, which leaves the rest of its bits alone.
    """
    r = m.add_exact(x, shifted - ROUND, -c.LN2_SHORT)
    return m.real(m.bits(polynomial(c.EXPONENTIAL_F32, r, add_product)) + (m.bits(shifted) << 52))


def exp_wide(m: Vocabulary, x: Value, add_product: Body = in_two_roundings) -> Value:
    """`exp(x)` for a binary64 `|x| < 256`, relative error below 2^-34: enough for one rounding to binary32."""
    return exp_shifted(m, x, x * c.LOG2_E + ROUND, add_product)


def exp_f32(m: Vocabulary, x: Value) -> Value:
    """`exp(x)`, within 0.5007 ulp."""
    wide = m.widen(clamp(m, x, -128.0, 128.0))
    return m.narrow(exp_shifted(m, wide, m.add_exact(ROUND, wide, c.LOG2_E_SHORT), m.add_product))


def expm1_f32(m: Vocabulary, x: Value) -> Value:
    """`exp(x) - 1`, within 0.5001 ulp; keeps the sign of zero."""
    wide = m.widen(clamp(m, x, -40.0, 128.0))
    shifted = m.add_exact(ROUND_BIASED, wide, c.LOG2_E_SHORT)
    r = m.add_exact(wide, shifted - ROUND_BIASED, -c.LN2_SHORT)
    scale = power_of_two(m, shifted)
    return m.copysign(m.narrow(m.add_product(scale - 1.0, scale, r * polynomial(c.EXPM1_F32, r, m.add_product))), x)


def tanh_f32(m: Vocabulary, x: Value) -> Value:
    """`tanh(x) = ((1 - s) + t (1 + s)) / ((1 + s) + t (1 - s))` with the sign of `x`; within 0.5001 ulp.

    Here `|x| = k ln(2) / 2 + r`, `s = 2^-k` and `t = tanh(r)`: the sum of two angles, with
    `tanh(k ln(2) / 2) = (1 - s) / (1 + s)`. Near zero `k = 0`, and that is `t`. From 12 on it is one.
    """
    a = m.absolute(x)
    a = m.widen(m.select(a > 12.0, 12.0, a))
    shifted = m.add_exact(ROUND_BIASED, a, -2.0 * c.LOG2_E_SHORT)
    r = m.add_exact(a, shifted - ROUND_BIASED, 0.5 * c.LN2_SHORT)
    s = power_of_two(m, shifted)
    t = polynomial(c.TANH_F32, r * r, m.add_product) * r
    more, less = 1.0 + s, 1.0 - s
    return m.copysign(m.narrow(m.add_product(less, more, t) / m.add_product(more, less, t)), x)


# binary64
def reduced(x: Value, tail: Value | None = None) -> tuple[Value, Value, Value]:
    """`k + ROUND`, `r` and the rest of `r`, where `x + tail = k ln(2) + r + rest`.

    `k LN2_HIGH` is exact for `|k| < 2^12`, and so is its difference from `x`.
    """
    shifted = x * c.LOG2_E + ROUND
    k = shifted - ROUND
    high = x - k * c.LN2_HIGH
    low = k * c.LN2_LOW if tail is None else k * c.LN2_LOW - tail
    r = high - low
    return shifted, r, (high - r) - low


def exp_reduced(r: Value, rest: Value) -> tuple[Value, Value]:
    """`exp(r + rest)` as a rounded sum `1 + r` and a correction, 0.1 ulp off before they are added."""
    correction = r * r * polynomial(c.EXPONENTIAL_F64, r) + (rest * r + rest)
    total, error = fast_two_sum(1.0, r)
    return total, error + correction


def expm1_reduced(m: Vocabulary, r: Value, rest: Value) -> tuple[Value, Value]:
    """`exp(r + rest) - 1` as `r + r^2/2`, rounded, and a correction; `r^2` and the sum keep their rounding errors."""
    square, square_error = m.two_product(r, r)
    tail = r * (square * polynomial(c.EXPM1_F64, r) + rest) + (square_error * 0.5 + rest)
    head, head_error = fast_two_sum(r, square * 0.5)
    return head, head_error + tail


def exp_f64(m: Vocabulary, x: Value) -> Value:
    """`exp(x)`, within 0.7 ulp where the result is normal and 0.85 ulp where it is subnormal."""
    shifted, r, rest = reduced(clamp(m, x, -760.0, 720.0))
    total, correction = exp_reduced(r, rest)
    return scaled(m, total + correction, shifted)


def expm1_f64(m: Vocabulary, x: Value) -> Value:
    """`exp(x) - 1`, within 0.66 ulp; keeps the sign of zero.

    `2^k (1 + head + tail) - 1` with `2^k - 1` and its sum with `2^k head` each kept with its rounding error. Everything
    is 2^-8 times its size until the end, so that `k = 1024` needs no case of its own.
    """
    shifted, r, rest = reduced(clamp(m, x, -40.0, 710.0))
    head, tail = expm1_reduced(m, r, rest)
    scale = power_of_two(m, shifted + (BIAS - 8.0))
    base, base_error = two_sum(scale, -0.00390625)
    total, error = two_sum(base, scale * head)
    y = (total + ((error + base_error) + scale * tail)) * 256.0
    return m.select(m.absolute(x) < 1e-300, x, y)


def tanh_f64(m: Vocabulary, x: Value) -> Value:
    """`tanh(x) = t / (t + 2)`, `t = exp(2 |x|) - 1` in two parts, and the quotient corrected by its remainder.

    Within 0.62 ulp; one from 20 on; keeps the sign of zero.
    """
    a = m.absolute(x)
    a = m.select(a > 20.0, 20.0, a)
    shifted, r, rest = reduced(a + a)
    head, tail = expm1_reduced(m, r, rest)
    scale = power_of_two(m, shifted + BIAS)
    t, error = fast_two_sum(scale - 1.0, scale * head)
    t, t_low = fast_two_sum(t, error + scale * tail)
    divisor, divisor_error = two_sum(t, 2.0)
    divisor_low = divisor_error + t_low
    inverse = 1.0 / divisor
    quotient = t * inverse
    product, product_error = m.two_product(quotient, divisor)
    remainder = (((t - product) - product_error) + t_low) - quotient * divisor_low
    return m.copysign(quotient + remainder * inverse, x)
