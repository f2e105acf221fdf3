"""The fused multiply-add against exact rational arithmetic, and against the processor's own where llvmlite is there."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topos.element.element import Array
from topos.element.fma import fma32, fma64, round_to_odd, split, two_product, two_sum

FORMATS = {np.dtype(np.float32): (24, -126, 127), np.dtype(np.float64): (53, -1022, 1023)}
FUSED: dict[np.dtype[Any], Callable[[Array, Array, Array], Array]] = {
    np.dtype(np.float32): fma32,
    np.dtype(np.float64): fma64,
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def same(left: Array, right: Array) -> Array:
    """Equal bits lane by lane, any NaN equal to any NaN."""
    bits = np.dtype(f"i{left.dtype.itemsize}")
    return np.asarray((left.view(bits) == right.view(bits)) | (np.isnan(left) & np.isnan(right)))


def rounded(exact: Fraction, dtype: np.dtype[Any]) -> float:
    """A rational number rounded to nearest even in the format, by integer arithmetic."""
    precision, least, greatest = FORMATS[dtype]
    if exact == 0:
        return 0.0
    sign, exact = (-1.0, -exact) if exact < 0 else (1.0, exact)
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
    if exact < Fraction(2) ** exponent:
        exponent -= 1
    unit = max(exponent, least) - precision + 1
    scaled = exact / Fraction(2) ** unit
    count = round(scaled)  # Python rounds a Fraction to nearest even
    if count >= 2 ** (greatest + 1 - unit):
        return sign * math.inf
    return sign * math.ldexp(count, unit)


def expected(a: float, b: float, c: float, dtype: np.dtype[Any]) -> float:
    """IEEE fusedMultiplyAdd of three Python floats."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return float(np.float64(a) * np.float64(b) + np.float64(c))
    if not math.isfinite(c):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0 and Fraction(c) == 0 and (a == 0 or b == 0):
        return math.copysign(0.0, a) * math.copysign(1.0, b) + c
    if exact == 0:
        return 0.0
    return math.copysign(rounded(exact, dtype), -1.0 if exact < 0 else 1.0)


def adversarial(rng: np.random.Generator, count: int, dtype: np.dtype[Any]) -> tuple[Array, Array, Array]:
    """Operands in eight families that reach cancellation, midpoints, specks, subnormal results and overflow."""
    bits, fraction, bias = (32, 23, 127) if dtype == np.float32 else (64, 52, 1023)
    unsigned = np.dtype(f"u{bits // 8}")

    def anything() -> Array:
        return rng.integers(0, 2**bits - 1, count, np.uint64, endpoint=True).astype(unsigned).view(dtype)

    def between(low: int, high: int) -> Array:
        """Exponents in the range; significands random, or ending in a run of zeros or ones."""
        significand = rng.integers(0, 2**fraction, count, dtype=np.uint64)
        run = ~np.uint64(0) << rng.integers(0, fraction + 1, count).astype(np.uint64)
        kind = rng.integers(0, 3, count)
        ones = (significand | ~run) & np.uint64(2**fraction - 1)
        significand = np.where(kind == 1, significand & run, np.where(kind == 2, ones, significand))
        exponent = rng.integers(low + bias, high + bias, count).clip(0, 2 * bias).astype(np.uint64)
        sign = rng.integers(0, 2, count).astype(np.uint64)
        encoded = (sign << np.uint64(bits - 1)) | (exponent << np.uint64(fraction)) | significand
        return encoded.astype(unsigned).view(dtype)

    def beside(number: Array) -> Array:
        return (number.view(unsigned) + rng.integers(0, 3, count).astype(unsigned) - unsigned.type(1)).view(dtype)

    half = bias // 2
    near, tiny = (between(-10, 10), between(-10, 10)), (between(-half - 40, -half + 4), between(-half - 12, -half + 4))
    families = [
        (anything(), anything(), anything()),
        (between(-10, 10), between(-10, 10), between(-40, 40)),
        (*near, beside(-(near[0] * near[1]))),
        (*tiny, between(-bias - 20, -bias + 8)),
        (*tiny, beside(-(tiny[0] * tiny[1]))),
        (between(half - 3, half + 4), between(half - 3, half + 4), between(bias - 6, bias + 1)),
        (between(-10, 10), between(-10 - 2 * fraction, 10), between(-10, 30)),
        (between(-10, 10), between(-3, 3), between(-bias - 20, -30)),
    ]
    limits = np.finfo(dtype)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, limits.max, limits.tiny, limits.smallest_subnormal]
    a, b, c = (np.concatenate([family[i] for family in families]) for i in range(3))
    for operand in (a, b, c):
        where = rng.integers(0, operand.size, operand.size // 100)
        operand[where] = rng.choice(np.array(special, dtype), where.size)
    return a, b, c


def check_exactly(dtype: np.dtype[Any], a: Array, b: Array, c: Array) -> None:
    result = FUSED[dtype](a, b, c)
    assert result.dtype == dtype
    right = [expected(*operands, dtype) for operands in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)]
    wrong = np.flatnonzero(~same(result, np.array(right).astype(dtype)))
    assert wrong.size == 0, [(a[i], b[i], c[i], result[i], right[i]) for i in wrong[:3]]


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_equals_the_rational_result(dtype: np.dtype[Any]) -> None:
    check_exactly(dtype, *adversarial(np.random.default_rng(1), 1500, dtype))


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_every_combination_of_special_values(dtype: np.dtype[Any]) -> None:
    limits = np.finfo(dtype)
    positive = [0.0, limits.smallest_subnormal, limits.tiny, 0.5, 1.0, 3.0, limits.max, np.inf]
    values = np.array([*positive, *(-x for x in positive), np.nan], dtype)
    a, b, c = (x.reshape(-1) for x in np.meshgrid(values, values, values))
    check_exactly(dtype, a, b, c)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_equals_the_rational_result_at_length(dtype: np.dtype[Any]) -> None:
    check_exactly(dtype, *adversarial(np.random.default_rng(2), 40000, dtype))


@given(*[st.floats(width=32)] * 3)
def test_any_f32(a: float, b: float, c: float) -> None:
    with np.errstate(all="ignore"):
        check_exactly(np.dtype(np.float32), *(np.array([x], np.float32) for x in (a, b, c)))


@given(*[st.floats()] * 3)
def test_any_f64(a: float, b: float, c: float) -> None:
    with np.errstate(all="ignore"):
        check_exactly(np.dtype(np.float64), *(np.array([x]) for x in (a, b, c)))


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_operands_broadcast_and_views_give_the_bits_of_copies(dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(3)
    a, b, c = (rng.standard_normal(shape).astype(dtype) for shape in ((5, 1), (7, 2), ()))
    result = FUSED[dtype](a, b[::-1, 1], c)
    assert result.shape == (5, 7)
    full = (np.ascontiguousarray(x) for x in np.broadcast_arrays(a, b[::-1, 1], c))
    assert same(result, FUSED[dtype](*full)).all()
    alone = FUSED[dtype](c, c, c)
    assert isinstance(alone, np.ndarray) and alone.shape == ()


def test_a_double_rounding_is_repaired() -> None:
    """1 + 2^-24 is a tie between two f32; a speck of 2^-70 above it must decide, though f64 cannot hold both."""
    a, speck = np.float32([1 + 2.0**-12]), np.float32([2.0**-70])
    # (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24
    assert fma32(a, a, speck)[0] == np.float32(1 + 2.0**-11 + 2.0**-23)
    assert fma32(a, a, -speck)[0] == np.float32(1 + 2.0**-11)


def test_error_free_transformations_are_error_free() -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(500) * 2.0 ** rng.integers(-60, 60, 500) for _ in range(2))
    for transformation, operation in ((two_sum, Fraction.__add__), (two_product, Fraction.__mul__)):
        for x, y, value, error in zip(a, b, *transformation(a, b), strict=True):
            assert Fraction(value) + Fraction(error) == operation(Fraction(x), Fraction(y))
    high, low = split(a)
    assert (high + low == a).all()


def test_round_to_odd_picks_the_odd_neighbour() -> None:
    s, e = np.array([1.0, 1.0, -1.0, np.nextafter(1, 2), 2.0]), np.array([2.0**-60, -(2.0**-60), 2.0**-60, 1e-30, 0.0])
    odd = [np.nextafter(1, 2), np.nextafter(1, 0), -np.nextafter(1, 0), np.nextafter(1, 2), 2.0]
    assert round_to_odd(s, e).tolist() == odd


def test_the_comparison_sees_one_flipped_bit() -> None:
    x = np.array([1.0, np.nan, -0.0], np.float32)
    flipped = (x.view(np.int32) ^ np.array([1, 0, 0], np.int32)).view(np.float32)
    assert same(x, x).all()
    assert same(x, flipped).tolist() == [False, True, True]
    assert not same(x, np.array([1.0, np.nan, 0.0], np.float32)).all()


def hardware_fma(dtype: np.dtype[Any]) -> Callable[[Array, Array, Array], Array]:
    """`llvm.fma`, compiled for this host, over three flat arrays."""
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    kind, suffix = ("float", "f32") if dtype == np.float32 else ("double", "f64")
    loads = "\n".join(
        f"  %p{i} = getelementptr {kind}, {kind}* %{name}, i64 %i\n  %v{i} = load {kind}, {kind}* %p{i}"
        for i, name in enumerate("abc")
    )
    text = f"""
declare {kind} @llvm.fma.{suffix}({kind}, {kind}, {kind})
define void @fused({kind}* %a, {kind}* %b, {kind}* %c, {kind}* %out, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
{loads}
  %r = call {kind} @llvm.fma.{suffix}({kind} %v0, {kind} %v1, {kind} %v2)
  %p3 = getelementptr {kind}, {kind}* %out, i64 %i
  store {kind} %r, {kind}* %p3
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}"""
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=llvm.get_host_cpu_name(), opt=2)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64)(engine.get_function_address("fused"))

    def fused(a: Array, b: Array, c: Array) -> Array:
        out = np.empty_like(a)
        function(a.ctypes.data, b.ctypes.data, c.ctypes.data, out.ctypes.data, a.size)
        return out

    fused.engine = engine  # type: ignore[attr-defined]  # keeps the machine code alive
    return fused


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_equals_the_hardware(dtype: np.dtype[Any]) -> None:
    fused = hardware_fma(dtype)
    for seed in range(8):
        a, b, c = adversarial(np.random.default_rng(seed), 1 << 17, dtype)
        wrong = np.flatnonzero(~same(FUSED[dtype](a, b, c), fused(a, b, c)))
        assert wrong.size == 0, [(a[i], b[i], c[i]) for i in wrong[:3]]
