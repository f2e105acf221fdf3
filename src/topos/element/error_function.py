"""`erf` and its derivative, once each for binary32 and binary64.

Up to one, `erf(x) = x + x p(x^2)`. Beyond, `erf(x) = 1 - exp(-x^2) q(t)` with `t = (x - 2) / (x + 2)`, a fit of the
scaled complement `exp(x^2) erfc(x)` in a variable that flattens its tail (Cody 1969 uses the same scaling).
"""

from __future__ import annotations

from topos.element import coefficients as c
from topos.element.exponential import exp_reduced, exp_wide, reduced
from topos.element.steps import BIAS, fast_two_sum, polynomial, power_of_two, scaled, two_sum
from topos.element.vocabulary import Value, Vocabulary


def erf_f32(m: Vocabulary, x: Value) -> Value:
    """`erf(x)`, within 0.5001 ulp; one from 4 on; keeps the sign of zero."""
    a = m.absolute(m.widen(x))
    a = m.select(a > 4.0, 4.0, a)
    z = a * a
    near = m.add_product(a, a, polynomial(c.ERROR_NEAR_F32, z, m.add_product))
    scaled_complement = polynomial(c.ERROR_FAR_F32, (a - 2.0) / (a + 2.0), m.add_product)
    far = m.add_product(1.0, -exp_wide(m, -z, m.add_product), scaled_complement)
    return m.copysign(m.narrow(m.select(a < 1.0, near, far)), x)


def erf_derivative_f32(m: Vocabulary, x: Value) -> Value:
    """`2 / sqrt(pi) * exp(-x^2)`, within 0.5007 ulp; the square of a binary32 is exact in binary64."""
    a = m.absolute(m.widen(x))
    a = m.select(a > 16.0, 16.0, a)
    return m.narrow(exp_wide(m, -(a * a), m.add_product) * c.TWO_OVER_ROOT_PI)


def erf_f64(m: Vocabulary, x: Value) -> Value:
    """`erf(x)`, within 0.78 ulp; one from 6 on; keeps the sign of zero."""
    a = m.absolute(x)
    a = m.select(a > 6.0, 6.0, a)
    square, square_error = m.two_product(a, a)
    near = erf_near(m, a, square, square_error)
    far = erf_far(m, a, square, square_error)
    return m.copysign(m.select(a < 1.0, near, far), x)


def erf_near(m: Vocabulary, a: Value, square: Value, square_error: Value) -> Value:
    """`a + a p(a^2)`; the two leading coefficients and steps of Horner's rule keep their rounding errors.

    So does the last product; a tiny `a` is scaled by 2^200, so that neither it nor its error underflows before the end.
    """
    first, second = c.ERROR_NEAR_F64[:2]
    first_tail, second_tail = c.ERROR_NEAR_F64_TAILS
    h = square * polynomial(c.ERROR_NEAR_F64[2:], square)
    u = h + second
    u_low = ((second - u) + h) + second_tail
    product, product_error = m.two_product(u, square)
    v, v_low = two_sum(product, first)
    low = (v_low + first_tail) + (product_error + (u_low * square + u * square_error))
    tiny = a < 1e-240
    a = m.select(tiny, a * 1.6069380442589903e60, a)
    step, step_error = m.two_product(a, v)
    total, error = fast_two_sum(a, step)
    y = total + (error + (step_error + a * low))
    return m.select(tiny, y * 6.223015277861142e-61, y)


def erf_far(m: Vocabulary, a: Value, square: Value, square_error: Value) -> Value:
    """`1 - exp(-a^2) q(t)`; the product is kept in two parts, since its size reaches 0.16 where `erf` is 0.84."""
    shifted, r, rest = reduced(-square, -square_error)
    e, e_low = fast_two_sum(*exp_reduced(r, rest))
    t = (a - 2.0) / (a + 2.0)
    q, q_low = fast_two_sum(c.ERROR_FAR_F64[0], t * polynomial(c.ERROR_FAR_F64[1:], t))
    q_low = q_low + c.ERROR_FAR_F64_TAILS[0]
    product, product_error = m.two_product(e, q)
    scale = power_of_two(m, shifted + BIAS)
    complement, lost = fast_two_sum(1.0, -(product * scale))
    return complement + (lost - (product_error + (e * q_low + e_low * q)) * scale)


def erf_derivative_f64(m: Vocabulary, x: Value) -> Value:
    """`2 / sqrt(pi) * exp(-x^2)`, within 0.7 ulp where the result is normal and 0.85 ulp where it is subnormal.

    The square, the exponential and the constant are each kept in two parts; the power of two comes last.
    """
    a = m.absolute(x)
    a = m.select(a > 28.0, 28.0, a)
    square, square_error = m.two_product(a, a)
    shifted, r, rest = reduced(-square, -square_error)
    e, e_low = fast_two_sum(*exp_reduced(r, rest))
    y, y_error = m.two_product(e, c.TWO_OVER_ROOT_PI)
    low = y_error + (e_low * c.TWO_OVER_ROOT_PI + e * c.TWO_OVER_ROOT_PI_TAIL)
    return scaled(m, y + low, shifted)
