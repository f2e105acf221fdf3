"""`powf`, the `pow` of IEEE 754-2019 section 9.2.1, once each for binary32 and binary64.

`|x|^y = exp(y ln|x|)`; the binary64 form needs the logarithm to about 2^-67, since its relative error is multiplied
by up to 745: it is a sum of two numbers, from a table of logarithms (Tang, "Table-driven implementation of the
logarithm function", 1990) and a short series. Zeros and infinities of `|x|` are given the logarithms minus and plus
infinity, which leaves only signs, odd integers and the cases that are one to `finish`.
"""

from __future__ import annotations

from topos.element import coefficients as c
from topos.element.exponential import exp_reduced, exp_wide, reduced
from topos.element.logarithm import SQRT_HALF_BITS, log_wide, parts
from topos.element.steps import INFINITY, NAN, ROUND, ROUND_BITS, TWO_52, clamp, fast_two_sum, polynomial, scaled
from topos.element.vocabulary import Table, Value, Vocabulary

LOG_HIGH = Table("power_log_high", lambda: c.POWER_LOG_HIGH)
LOG_LOW = Table("power_log_low", lambda: c.POWER_LOG_LOW)
FIRST_ENTRY = 181
"""`256 / m` for `m` just below `sqrt(2)`, rounded: the first index of the tables."""


def finish(m: Vocabulary, power: Value, x: Value, y: Value) -> Value:
    """`x^y` from `power = |x|^y`: the sign, and the cases that the logarithm cannot tell (operands in binary64).

    An odd integer exponent passes the sign of `x` on, zeros and infinities included. A finite negative base with a
    fractional exponent is NaN. NaN goes through, but one to any power and anything to the power zero are one, and so
    is minus one to an infinite power.
    """
    a, b = m.absolute(x), m.absolute(y)
    half = b * 0.5
    whole = (b >= TWO_52) | ((b + TWO_52) - TWO_52 == b)
    odd = whole & (b < TWO_52 * 2.0) & ((half + TWO_52) - TWO_52 != half)
    negative = m.bits(x) < 0
    power = m.select(negative & odd, -power, power)
    power = m.select((x < 0.0) & (a < INFINITY) & ~whole, NAN, power)
    power = m.select((x != x) | (y != y), x + y, power)
    return m.select((x == 1.0) | (b == 0.0) | ((x == -1.0) & (b == INFINITY)), 1.0, power)


def powf_f32(m: Vocabulary, x: Value, y: Value) -> Value:
    """`x^y`, within 0.5007 ulp."""
    wide_x, wide_y = m.widen(x), m.widen(y)
    a = m.absolute(wide_x)
    k, f, _ = parts(m, a)
    log = log_wide(f, k, c.LOGARITHM_F64)
    log = m.select(a == 0.0, -INFINITY, m.select(a < INFINITY, log, a))
    power = exp_wide(m, clamp(m, log * wide_y, -128.0, 128.0))
    return m.narrow(finish(m, power, wide_x, wide_y))


def log_two_parts(m: Vocabulary, a: Value) -> tuple[Value, Value]:
    """`ln(a)` of a positive finite `a` as a rounded sum and its rest, relative error about 2^-67.

    `a = 2^k m`. With `n = 256 / m` rounded to an integer, `r = m n / 256 - 1` is at most 2^-8.5 and exact in binary64
    (it is a multiple of 2^-60 for `m >= 1`, of 2^-61 for `m < 1`, where it stays below 2^-8), and `ln(a) = k ln(2) -
    ln(n / 256) + ln(1 + r)`. The heads of the first two share the grid 2^-42, so their sum is exact; near one `n =
    256` and both vanish.
    """
    subnormal = a < 2.2250738585072014e-308
    pattern = m.bits(m.select(subnormal, a * 18014398509481984.0, a))
    exponent = (pattern - SQRT_HALF_BITS) >> 52
    mantissa = m.real(pattern - (exponent << 52))
    k = m.real(exponent + ROUND_BITS) - ROUND
    k = m.select(subnormal, k - 54.0, k)
    shifted = 256.0 / mantissa + ROUND
    index = m.bits(shifted) - FIRST_ENTRY
    product, error = m.two_product(mantissa, (shifted - ROUND) * 0.00390625)
    r = (product - 1.0) + error
    square, square_error = m.two_product(r, r * -0.5)
    head, first = fast_two_sum(k * c.LN2_HIGH + m.lookup(LOG_HIGH, index), r)
    head, second = fast_two_sum(head, square)
    low = square_error + (k * c.LN2_LOW + m.lookup(LOG_LOW, index)) + (r * r) * (r * polynomial(c.LOGARITHM_POWER, r))
    return fast_two_sum(head, first + second + low)


def powf_f64(m: Vocabulary, x: Value, y: Value) -> Value:
    """`x^y`, within 0.7 ulp where the result is normal and 0.85 ulp where it is subnormal.

    `y` is held within 2^66: the logarithm of any `|x|` but one is above 2^-54, so the power over- or underflows there
    already. The product `y ln|x|` is kept in two parts; its rest is dropped where the exponential is certain to leave
    the range.
    """
    a = m.absolute(x)
    log, log_low = log_two_parts(m, a)
    log = m.select(a == 0.0, -INFINITY, m.select(a < INFINITY, log, a))
    exponent = clamp(m, y, -7.378697629483821e19, 7.378697629483821e19)
    product, error = m.two_product(log, exponent)
    held = clamp(m, product, -760.0, 720.0)
    rest = m.select(held == product, error + log_low * exponent, 0.0)
    shifted, r, tail = reduced(held, rest)
    total, correction = exp_reduced(r, tail)
    return finish(m, scaled(m, total + correction, shifted), x, y)
