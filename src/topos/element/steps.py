"""Steps that the elementary functions share: polynomials, sums in two parts, and powers of two from bits.

Every body is written over the vocabulary of `vocabulary.py`; `m` is its reading.
"""

from __future__ import annotations

from topos.element.vocabulary import Body, Value, Vocabulary

INFINITY = float("inf")
NAN = float("nan")
ROUND = 6755399441055744.0
"""1.5 * 2^52: `(x + ROUND) - ROUND` is `x` rounded to an integer, and the low bits of `x + ROUND` are that integer."""
BIAS = 1023.0
"""What binary64 adds to an exponent."""
ROUND_BIASED = ROUND + BIAS
"""As `ROUND`, for numbers that become exponents."""
ROUND_BITS = 0x4338000000000000
"""The bits of `ROUND`."""
TWO_52 = 4503599627370496.0


def in_two_roundings(addend: Value, left: Value, right: Value) -> Value:
    """`addend + left * right`."""
    return left * right + addend


def polynomial(coefficients: tuple[float, ...], x: Value, add_product: Body = in_two_roundings) -> Value:
    """`c[0] + c[1] x + c[2] x^2 + ...` by Horner's rule, two roundings a step, or one where `add_product` has one."""
    total = add_product(coefficients[-2], x, coefficients[-1])
    for coefficient in coefficients[-3::-1]:
        total = add_product(coefficient, total, x)
    return total


def fast_two_sum(large: Value, small: Value) -> tuple[Value, Value]:
    """The sum and its rounding error, where `large` is zero or not the smaller in magnitude (Dekker 1971)."""
    total = large + small
    return total, (large - total) + small


def two_sum(left: Value, right: Value) -> tuple[Value, Value]:
    """The sum and its rounding error (Knuth, TAOCP 2, section 4.2.2)."""
    total = left + right
    part = total - left
    return total, (left - (total - part)) + (right - part)


def clamp(m: Vocabulary, x: Value, low: float, high: float) -> Value:
    """`x` held within `[low, high]`; NaN stays."""
    x = m.select(x < low, low, x)
    return m.select(x > high, high, x)


def power_of_two(m: Vocabulary, shifted: Value) -> Value:
    """`2^k` in binary64 from `shifted = k + ROUND_BIASED`, for `-1022 <= k <= 1023`."""
    return m.real(m.bits(shifted) << 52)


def scaled(m: Vocabulary, y: Value, shifted: Value) -> Value:
    """`y * 2^k` from `shifted = k + ROUND`, for `|k| <= 2044`, in two steps that only the last of can round.

    `y` lies near one; halves of `k` keep the middle result normal, so a subnormal result is rounded once more and only
    there.
    """
    k = (m.bits(shifted) << 48) >> 48
    half = k >> 1
    return (y * m.real((half + 1023) << 52)) * m.real((k - half + 1023) << 52)
