"""`sin` and `cos`, once each for binary32 and binary64, over the whole range.

`x = q pi/2 + r` with `|r| <= pi/4`, and a polynomial picked by `q mod 4`. Up to about 10^6 the reduction subtracts `q
pi/2` in parts (Cody and Waite, "Software Manual for the Elementary Functions", chapter 8); beyond, it multiplies the
mantissa by those bits of `2/pi` that matter for the exponent (Payne and Hanek, "Radian reduction for trigonometric
functions", 1983): bits worth multiples of four turn quarters are dropped, the next ones come from tables in pieces
whose products are exact.
"""

from __future__ import annotations

from topos.element import coefficients as c
from topos.element.steps import INFINITY, ROUND, TWO_52, fast_two_sum, polynomial, two_sum
from topos.element.vocabulary import Table, Value, Vocabulary

MANTISSA = 0x000FFFFFFFFFFFFF
ONE_BITS = 0x3FF0000000000000
STORED = 1280
"""Bits after the point in `TWO_OVER_PI_BITS`."""


def pieces(first: int, last: int, exponents: int, top: int) -> tuple[float, ...]:
    """Bits of weight `2^first > w >= 2^last` of `2/pi * 2^e mod 2^top`, as numbers, for `e = 0 .. exponents - 1`."""
    entries = []
    for e in range(exponents):
        shift = STORED - e
        kept = c.TWO_OVER_PI_BITS & ((1 << (min(first, top) + shift)) - 1)
        entries.append(float(kept >> (last + shift)) * 2.0**last)
    return tuple(entries)


WIDE_TABLES = [
    Table("two_over_pi_f64_0", lambda: pieces(54, 1, 1024, 54)),
    Table("two_over_pi_f64_1", lambda: pieces(1, -52, 1024, 54)),
    Table("two_over_pi_f64_2", lambda: pieces(-52, -105, 1024, 54)),
    Table("two_over_pi_f64_3", lambda: pieces(-105, -158, 1024, 54)),
]
NARROW_TABLES = [
    Table("two_over_pi_f32_0", lambda: pieces(25, -4, 128, 25)),
    Table("two_over_pi_f32_1", lambda: pieces(-4, -33, 128, 25)),
    Table("two_over_pi_f32_2", lambda: pieces(-33, -86, 128, 25)),
]


def turned(m: Vocabulary, sine: Value, cosine: Value, quadrant: Value) -> Value:
    """`sin(r + q pi/2)` from the sine and cosine of `r`: bit 0 of `q` picks one, bit 1 its sign."""
    picked = m.select((quadrant & 1) == 0, sine, cosine)
    return m.real(m.bits(picked) ^ ((quadrant & 2) << 62))


def split_exponent(m: Vocabulary, a: Value) -> tuple[Value, Value]:
    """A positive finite binary64 `>= 1` as its mantissa in `[1, 2)` and its exponent (in range whatever `a` is)."""
    pattern = m.bits(a)
    return m.real((pattern & MANTISSA) | ONE_BITS), ((pattern >> 52) - 1023) & 1023


# binary32, through binary64
def turn_wide(m: Vocabulary, r: Value, quadrant: Value) -> Value:
    """The polynomials in plain binary64."""
    z = r * r
    sine = m.add_product(r, r * z, polynomial(c.SINE_F32, z, m.add_product))
    cosine = m.add_product(m.add_exact(1.0, z, -0.5), z * z, polynomial(c.COSINE_F32, z, m.add_product))
    return turned(m, sine, cosine, quadrant)


def payne_hanek_f32(m: Vocabulary, a: Value) -> tuple[Value, Value]:
    """`r` and `q` (low bits) of a binary32 `a >= 1`, widened: 24 bits times pieces of 29 are exact."""
    mantissa, e = split_exponent(m, a)
    e = e & 127
    first = mantissa * m.lookup(NARROW_TABLES[0], e)
    second = mantissa * m.lookup(NARROW_TABLES[1], e)
    shifted = (first + second) + ROUND
    r = (first - (shifted - ROUND)) + second + mantissa * m.lookup(NARROW_TABLES[2], e)
    return r * c.HALF_PI, m.bits(shifted)


def sin_cos_f32(m: Vocabulary, x: Value, quarters: int) -> Value:
    """`sin(x + quarters pi/2)` of `|x|`, in binary64 for one rounding; the sign of `x` is the caller's."""
    a = m.absolute(m.widen(x))
    shifted = a * c.TWO_OVER_PI + ROUND
    k = shifted - ROUND
    r = (a - k * c.HALF_PI_1) - k * c.HALF_PI_AFTER_1
    y = turn_wide(m, r, m.bits(shifted) + quarters)

    def large(m: Vocabulary, a: Value) -> Value:
        r, quadrant = payne_hanek_f32(m, a)
        return turn_wide(m, r, quadrant + quarters)

    y = m.rare((a > 1e6) & (a < INFINITY), large, (a,), y)
    return m.select(a < INFINITY, y, a - a)


def sin_f32(m: Vocabulary, x: Value) -> Value:
    """`sin(x)`, within 0.5001 ulp; keeps the sign of zero; NaN at infinity."""
    y = m.narrow(sin_cos_f32(m, x, 0))
    return m.real(m.bits(y) ^ (m.bits(x) & -0x80000000))


def cos_f32(m: Vocabulary, x: Value) -> Value:
    """`cos(x)`, within 0.5001 ulp; NaN at infinity."""
    return m.narrow(sin_cos_f32(m, x, 1))


# binary64
def turn_f64(m: Vocabulary, r: Value, rest: Value, quadrant: Value) -> Value:
    """The polynomials at `r + rest`, the rest to first order."""
    z = r * r
    half = z * 0.5
    w = 1.0 - half
    sine = r + (r * z * polynomial(c.SINE_F64, z) + rest * w)
    cosine = w + (((1.0 - w) - half) + (z * z * polynomial(c.COSINE_F64, z) - r * rest))
    return turned(m, sine, cosine, quadrant)


def cody_waite_f64(m: Vocabulary, a: Value) -> tuple[Value, Value, Value]:
    """`r`, its rest and `q` of `0 <= a < 2^20`: 33-bit pieces of `pi/2` make the products exact."""
    shifted = a * c.TWO_OVER_PI + ROUND
    k = shifted - ROUND
    first, first_error = two_sum(a - k * c.HALF_PI_1, -(k * c.HALF_PI_2))
    second, second_error = two_sum(first, -(k * c.HALF_PI_3))
    r, rest = fast_two_sum(second, (first_error + second_error) - k * c.HALF_PI_4)
    return r, rest, m.bits(shifted)


def payne_hanek_f64(m: Vocabulary, a: Value) -> tuple[Value, Value, Value]:
    """`r`, its rest and `q` (low bits) of `a >= 1`.

    Four products of the 53-bit mantissa with 53-bit pieces of `2/pi`, each with its error: `p0 + e0 + p1 + ...`. The
    integer part leaves twice, once from `p0` alone and once from the sum; a final pass gathers what is left into two
    numbers.
    """
    mantissa, e = split_exponent(m, a)
    p0, e0 = m.two_product(mantissa, m.lookup(WIDE_TABLES[0], e))
    p1, e1 = m.two_product(mantissa, m.lookup(WIDE_TABLES[1], e))
    p2, e2 = m.two_product(mantissa, m.lookup(WIDE_TABLES[2], e))
    p3 = mantissa * m.lookup(WIDE_TABLES[3], e)
    p0 = p0 - ((p0 * 0.25 + TWO_52) - TWO_52) * 4.0
    shifted = (p0 + e0) + ROUND
    s, low = two_sum(p0 - (shifted - ROUND), e0)
    s, error = two_sum(s, p1)
    low, left = two_sum(low, error)
    low, more = two_sum(low, e1)
    s, low = two_sum(s, low)
    low, most = two_sum(low, p2)
    s, low = two_sum(s, low)
    low, last = two_sum(low, ((left + more) + most) + (e2 + p3))
    s, low = two_sum(s, low)
    again = s + ROUND
    s, low = fast_two_sum(s - (again - ROUND), low + last)
    r, error = m.two_product(s, c.HALF_PI)
    r, rest = fast_two_sum(r, error + (s * c.HALF_PI_TAIL + low * c.HALF_PI))
    return r, rest, m.bits(shifted) + m.bits(again)


def sin_cos_f64(m: Vocabulary, x: Value, quarters: int) -> Value:
    """`sin(|x| + quarters pi/2)`."""
    a = m.absolute(x)
    r, rest, quadrant = cody_waite_f64(m, a)
    y = turn_f64(m, r, rest, quadrant + quarters)

    def large(m: Vocabulary, a: Value) -> Value:
        r, rest, quadrant = payne_hanek_f64(m, a)
        return turn_f64(m, r, rest, quadrant + quarters)

    y = m.rare((a > 1e6) & (a < INFINITY), large, (a,), y)
    return m.select(a < INFINITY, y, a - a)


def sin_f64(m: Vocabulary, x: Value) -> Value:
    """`sin(x)`, within 0.82 ulp; keeps the sign of zero; NaN at infinity."""
    return m.real(m.bits(sin_cos_f64(m, x, 0)) ^ (m.bits(x) & -0x8000000000000000))


def cos_f64(m: Vocabulary, x: Value) -> Value:
    """`cos(x)`, within 0.82 ulp; NaN at infinity."""
    return sin_cos_f64(m, x, 1)
