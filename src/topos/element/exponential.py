"""`exp`, `expm1` and `tanh`, once each for binary32 and binary64.

All reduce as `x = k ln(2) + r` (Cody and Waite, "Software Manual for the Elementary Functions", chapter 6) and evaluate
a minimax polynomial in `r`. The binary32 forms work in binary64 and round once: within 0.5005 ulp. Their `k` is a
multiple of 1/16, so that `|r| <= ln(2) / 32` and four steps do; `2^k` comes from a table of sixteen (Tang,
"Table-driven implementation of the exponential function", 1989). The binary64 forms have a whole `k`, and take `ln(2)`
in two parts, so that `r` comes with its own rounding error.
"""

from __future__ import annotations

from topos.element import coefficients as c
from topos.element.powers import STEP_ROUND, power_of_two_by_steps, steps
from topos.element.steps import (
    ROUND,
    clamp,
    fast_two_sum,
    in_two_roundings,
    polynomial,
    power_of_two,
    quadratics,
    scaled,
    two_sum,
)
from topos.element.vocabulary import Body, Value, Vocabulary

# binary32, through binary64
EXP_STEPS = steps("exp_steps", c.EXPONENTIAL_F32_SCALE)
EXPM1_STEPS = steps("expm1_steps", 1.0)
TANH_STEPS = steps("tanh_steps", 1.0 / c.TANH_F32_SCALE)


def exp_stepped(m: Vocabulary, x: Value, shifted: Value, add_product: Body = in_two_roundings) -> Value:
    """`exp(x)` for a binary64 `|x| <= 128`, relative error below 2^-35; `shifted` is `x / ln(2) + STEP_ROUND`."""
    r = m.add_exact(x, shifted - STEP_ROUND, -c.LN2_SHORT)
    return power_of_two_by_steps(m, EXP_STEPS, shifted) * quadratics(c.EXPONENTIAL_F32, r, add_product)


def exp_wide(m: Vocabulary, x: Value) -> Value:
    """`exp(x)` for a binary64 `|x| < 256`, relative error below 2^-34: enough for one rounding to binary32."""
    return exp_stepped(m, x, x * c.LOG2_E + STEP_ROUND)


def exp_f32(m: Vocabulary, x: Value) -> Value:
    """`exp(x)`, within 0.5005 ulp."""
    wide = m.widen(clamp(m, x, -128.0, 128.0))
    shifted = m.add_exact(STEP_ROUND, wide, c.LOG2_E_SHORT)
    return m.narrow(exp_stepped(m, wide, shifted, m.add_product))


def expm1_f32(m: Vocabulary, x: Value) -> Value:
    """`exp(x) - 1`, within 0.5005 ulp; keeps the sign of zero."""
    wide = m.widen(clamp(m, x, -40.0, 128.0))
    shifted = m.add_exact(STEP_ROUND, wide, c.LOG2_E_SHORT)
    r = m.add_exact(wide, shifted - STEP_ROUND, -c.LN2_SHORT)
    scale = power_of_two_by_steps(m, EXPM1_STEPS, shifted)
    return m.copysign(m.narrow(scale * (r * polynomial(c.EXPM1_F32, r)) + (scale - 1.0)), x)


def tanh_f32(m: Vocabulary, x: Value) -> Value:
    """`tanh(x) = (e - s) / (e + s)` with `e = exp(2 r)`, `s = 2^-k`, and the sign of `x`; within 0.5001 ulp.

    Here `2 |x| = k ln(2) + 2 r`. `e` and `s` are in units of the polynomial's scale; near zero `k = 0`, and `e - s` is
    that of `exp(2 r) - 1`. One from 12 on.
    """
    a = m.absolute(x)
    a = m.widen(m.select(a > 12.0, 12.0, a))
    shifted = m.add_exact(STEP_ROUND, a, -2.0 * c.LOG2_E_SHORT)
    r = m.add_exact(a, shifted - STEP_ROUND, 0.5 * c.LN2_SHORT)
    s = power_of_two_by_steps(m, TANH_STEPS, shifted)
    difference = m.add_product(1.0 / c.TANH_F32_SCALE - s, r, quadratics(c.TANH_F32, r, m.add_product))
    return m.copysign(m.narrow(difference / m.add_exact(difference, s, 2.0)), x)


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
    scale = power_of_two(m, shifted - 8.0)
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
    scale = power_of_two(m, shifted)
    t, error = fast_two_sum(scale - 1.0, scale * head)
    t, t_low = fast_two_sum(t, error + scale * tail)
    divisor, divisor_error = two_sum(t, 2.0)
    divisor_low = divisor_error + t_low
    inverse = 1.0 / divisor
    quotient = t * inverse
    product, product_error = m.two_product(quotient, divisor)
    remainder = (((t - product) - product_error) + t_low) - quotient * divisor_low
    return m.copysign(quotient + remainder * inverse, x)
