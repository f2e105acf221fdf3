"""The elementary functions: digits near zero, saturation at the ends, and the same bits at every place of a vector."""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from mpmath import mp

from topos import Tape, Tensor, bf16, detach, f32, f64, where
from topos.testing import assert_same_bits

Array = np.ndarray[Any, np.dtype[Any]]

UNARY = ("exp", "ln", "sqrt", "tanh", "sin", "cos", "log1p", "expm1", "erf", "erf_derivative")
COMPOSED = ("relu", "sigmoid", "silu", "gelu", "gelu_tanh", "softplus", "abs")


def f(number: Any) -> Array:
    return np.array(number, np.float32)


def d(number: Any) -> Array:
    return np.array(number, np.float64)


@pytest.mark.parametrize(
    ("x", "right"),
    [
        (1e-8, 0x3241DAA4),
        (1e-7, 0x33F2514D),
        (1e-5, 0x373D4F84),
        (1e-3, 0x3A93E61C),
        (0.5, 0x3F053F7B),
        (1, 0x3F57BB3D),
        (2, 0x3F7ECD71),
        (3, 0x3F7FFE8D),
        (3.8, 0x3F7FFFFF),
        (4, 0x3F800000),
    ],
)
def test_c25_erf_near_zero_and_in_the_tails(values, ulps, of_bits, x, right):
    """A bound on the absolute error says nothing near zero, where it may be larger than the value: 1 ulp everywhere."""
    positive = values(lambda x: x.erf(), f(x))
    assert ulps(positive, of_bits(right)) <= 1
    assert_same_bits(values(lambda x: x.erf(), f(-x)), -positive)


def test_c25_erf_of_a_negative_zero_and_in_f64(values, ulps, hexed, of_bits):
    """The sign of a zero is kept, and f64 is held to its own ulp."""
    assert hexed(values(lambda x: x.erf(), f([-0.0, 0.0]))) == ["0x80000000", "0x00000000"]
    assert hexed(values(lambda x: x.erf(), d([-0.0, 0.0]))) == ["0x8000000000000000", "0x0000000000000000"]
    assert_same_bits(values(lambda x: x.erf(), f([np.inf, -np.inf, np.nan])), f([1, -1, np.nan]))
    assert ulps(values(lambda x: x.erf(), d(0.5)), of_bits(0x3FE0A7EF5C18EDD2, dtype=np.float64)) <= 1


def test_c25_the_tail_of_gelu(values, gradients, ulps):
    """Convention: `gelu` is `x * (1 + erf(x / sqrt(2))) / 2`, as its docstring says, which is 0 far on the left in f32.

    The exact values there are -5.92e-9 at -6 and -7.62e-23 at -10. Whoever needs them takes the tail in f64, which has
    seven digits at -6 and none at -10.
    """
    left = values(lambda x: x.gelu(), f([-6, -10, -100, -np.inf]))
    assert_same_bits(left[:3], f([-0.0, -0.0, -0.0]))
    assert np.isnan(left[3])  # infinity times the zero that the tail has become
    assert "Far left" in Tensor.gelu.__doc__
    assert values(lambda x: x.gelu(), f(-5)) < 0
    wide = values(lambda x: x.to(f64).gelu().to(f32), f(-6))
    assert wide == pytest.approx(-5.91952587e-9, rel=1e-6)
    assert_same_bits(values(lambda x: x.gelu(), d(-10)), d(-0.0))
    slopes = gradients(lambda x: x.gelu(), f([-100, -10, -6, 0, 6, 100]))
    assert np.isfinite(slopes).all()
    assert_same_bits(slopes[[0, 3, 5]], f([0, 0.5, 1]))


@pytest.mark.parametrize(
    ("x", "right"),
    [
        (1e-10, 0x2EDBE6FF),
        (1e-4, 0x38D1B717),
        (0.5, 0x3EEC9A9F),
        (5, 0x3F7FFA0D),
        (8, 0x3F7FFFFC),
        (9, 0x3F7FFFFF),
    ],
)
def test_c26_tanh_tiny_and_middling(values, ulps, of_bits, x, right):
    """A tiny value is its own tanh, and the last places before 1 are told apart."""
    positive = values(lambda x: x.tanh(), f(x))
    assert ulps(positive, of_bits(right)) <= 1
    assert_same_bits(values(lambda x: x.tanh(), f(-x)), -positive)


def test_c26_tanh_saturates(values, gradients, hexed):
    """Forms with exp(2x) end in inf/inf: the value must reach 1 and the slope 0, without passing through NaN."""
    ends = f([9.02, 10, 44, 45, 89, 1e3, 3e38, np.inf])
    assert_same_bits(values(lambda x: x.tanh(), ends), np.ones_like(ends))
    assert_same_bits(values(lambda x: x.tanh(), -ends), -np.ones_like(ends))
    assert hexed(values(lambda x: x.tanh(), f(-0.0))) == "0x80000000"
    assert_same_bits(gradients(lambda x: x.tanh(), f([20, -20, np.inf, -np.inf])), f([0, 0, 0, 0]))
    assert gradients(lambda x: x.tanh(), f(9)) == pytest.approx(6.09e-8, abs=1e-7)
    slopes = gradients(lambda x: x.tanh(), np.linspace(-30, 30, 6001, dtype=np.float32))
    assert (slopes >= 0).all()  # NaN is not


@pytest.mark.parametrize(
    ("function", "x", "right"),
    [
        ("log1p", 1e-8, 0x322BCC77),
        ("log1p", -0.5, 0xBF317218),
        ("expm1", -8.742278e-08, 0xB3BBBD2D),
        ("expm1", 1e-8, 0x322BCC77),
        ("expm1", 1e-5, 0x3727C5E3),
        ("expm1", 0.5, 0x3F261299),
        ("expm1", 89, 0x7F800000),
    ],
)
def test_c27_log1p_and_expm1(values, ulps, of_bits, function, x, right):
    """Adding 1 and taking it off again leaves no digit of a small number."""
    assert ulps(values(lambda x: getattr(x, function)(), f(x)), of_bits(right)) <= 2


@pytest.mark.parametrize(
    ("x", "right"), [(-0.4, 0xBFE058AEFA811452), (-0.42, 0xBFE16E67AF787642), (-0.4142, 0xBFE11CE454454D68)]
)
def test_c27_log1p_in_f64(values, ulps, of_bits, x, right):
    """Around -0.41 the argument of the logarithm crosses sqrt(1/2), where a split of the range loses digits."""
    assert ulps(values(lambda x: x.log1p(), d(x)), of_bits(right, dtype=np.float64)) <= 2


def asinh(x):
    """The inverse hyperbolic sine, spelled so that no square overflows and no small digit is lost."""
    size = abs(x)
    large = size.step(1e9)
    near = large.select(size.one_like(), size)
    small = (near + near * near / (1 + (near * near + 1).sqrt())).log1p()
    far = size.ln() + math.log(2)
    return x.step(0).select(large.select(far, small), -large.select(far, small))


@pytest.mark.parametrize(
    ("x", "right"), [(3e22, 52.44863), (-8e23, -55.732044), (3e38, None), (1e-8, None), (0.5, None), (-2, None)]
)
def test_c27_asinh_is_composed(values, gradients, ulps, x, right):
    """There is no asinh here, and asking is an AttributeError; a composition that never squares a large number is.

    `x * x` overflows from 1.8e19 on: the logarithm's argument has to be built otherwise.
    """
    with pytest.raises(AttributeError, match="asinh"):
        Tensor(1).asinh()
    expected = f(float(mp.asinh(float(f(x)))) if right is None else right)
    assert ulps(values(asinh, f(x)), expected) <= 2
    assert gradients(asinh, f(x)) == pytest.approx(float(1 / mp.sqrt(1 + mp.mpf(float(f(x))) ** 2)), rel=1e-6)


@pytest.mark.parametrize(
    ("x", "right", "slope"),
    [
        (30, 0x41F00000, 0x3F800000),
        (90, 0x42B40000, 0x3F800000),
        (1000, 0x447A0000, 0x3F800000),
        (-20, 0x310DA433, 0x310DA433),
        (-100, 0x1B, 0x1B),
        (0, 0x3F317218, 0x3F000000),
    ],
)
def test_c28_softplus(values, gradients, ulps, of_bits, x, right, slope):
    """The exponential overflows from 88.7 on, and inf/inf in the backward sweep is NaN."""
    assert ulps(values(lambda x: x.softplus(), f(x)), of_bits(right)) <= 2
    assert ulps(gradients(lambda x: x.softplus(), f(x)), of_bits(slope)) <= 2


def test_c28_log_sigmoid_is_composed(values, gradients, hexed):
    """There is no log_sigmoid here; `-softplus(-x)` is it, without a logarithm of a sigmoid that has become 0."""
    with pytest.raises(AttributeError, match="log_sigmoid"):
        Tensor(1).log_sigmoid()

    def log_sigmoid(x):
        return -(-x).softplus()

    assert_same_bits(values(log_sigmoid, f([-300, 300])), f([-300, -0.0]))
    slopes = gradients(log_sigmoid, f([-300, 300]))
    assert hexed(slopes[0]) == "0x3f800000"
    assert slopes[1] == 0


def test_c28_the_slope_of_sigmoid(values, gradients, ulps, of_bits):
    """Far out the slope runs through the subnormal numbers to zero, and never meets an infinity."""
    slopes = gradients(lambda x: x.sigmoid(), f([-90, -200, 200, 0]))
    assert ulps(slopes[0], of_bits(0x8EC28)) <= 2
    assert (slopes[1:3] == 0).all()
    assert slopes[3] == 0.25
    scan = np.linspace(-250, 250, 5001, dtype=np.float32)
    for composed in ("sigmoid", "softplus", "silu"):
        value = values(lambda x, composed=composed: getattr(x, composed)(), scan)
        slope = gradients(lambda x, composed=composed: getattr(x, composed)(), scan)
        assert np.isfinite(value).all()
        assert np.isfinite(slope).all()


HARD = [0.3, -0.0, 1e-45, -88.7, 88.8, 0.4142, -0.5, 1e-8, 3.8, -1.0, 1e30, np.inf, -np.inf, np.nan, 7.25, 1.5, 2.0]


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
def test_c65_place_in_the_vector(element):
    """A function's value is that of its operand alone: not of its index, its array's length, address or stride."""
    functions = [*UNARY, *COMPOSED]
    hard = np.array(Tensor(HARD, element).numpy())
    fixed_y, fixed_z = (np.array(Tensor(number, element).numpy()) for number in (0.3, -0.09))

    def program(x, y, z):
        return [getattr(x, name)() for name in functions] + [x * y + z, x.powf(y), x / y]

    alone = [[tensor.numpy() for tensor in program(*(Tensor(n, element) for n in (h, fixed_y, fixed_z)))] for h in hard]
    expected = [np.array([row[column] for row in alone]) for column in range(len(alone[0]))]
    for length in range(1, 41):
        tape = Tape(element)
        x, y, z = (tape.input(shape=[length]) for _ in range(3))
        names, roots = detach([x, y, z], program(x, y, z))
        network = tape.into_network()
        plan, parameters = network.entry(roots).lower(), network.parameters()
        for offset in range(8):
            for stride in (1, 2, -1):
                which = (np.arange(length) * 5 + offset * 3 + stride) % len(hard)
                room = np.zeros(2 * length + 8, element.dtype)
                place = room[offset : offset + 2 * length : 2] if stride == 2 else room[offset : offset + length]
                place = place[::stride] if stride < 0 else place
                place[...] = hard[which]
                operands = place, *(np.full(length, number) for number in (fixed_y, fixed_z))
                actual = plan.forward(parameters, dict(zip(names, operands, strict=True))).of(roots)
                assert_same_bits(actual, [column[which] for column in expected])


def test_c64_no_function_of_a_library(values, monkeypatch):
    """Inside the promise nothing calls a transcendental function of C or NumPy: their bits differ by machine."""

    def refused(*arguments, **options):
        raise AssertionError("a library's function was called")

    transcendental = "exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sinh cosh arctanh arcsinh power float_power"
    for name in transcendental.split():
        monkeypatch.setattr(np, name, refused)
    for name in ["exp", "expm1", "log", "log1p", "log2", "sin", "cos", "tan", "tanh", "erf", "erfc", "pow"]:
        monkeypatch.setattr(math, name, refused)
    for number in (f(0.7), d(0.7), np.array(Tensor(0.7, bf16).numpy())):
        for name in (*UNARY, *COMPOSED):
            values(lambda x, name=name: getattr(x, name)(), number)
        values(lambda x: x.powf(x), number)
        values(lambda x: x.broadcast([3]).log_softmax(0).logsumexp(0), number)


PROGRAM = """
import hashlib
import numpy as np
import topos

def f(n):
    return np.array(n, np.float32)

digest = hashlib.sha256()
def take(tensor):
    digest.update(np.ascontiguousarray(tensor.numpy()).tobytes())

numbers = np.random.default_rng(7)
for element in (topos.f32, topos.f64):
    x = numbers.standard_normal(1001) * np.array([1e-3, 1, 10, 60] * 250 + [5.0])
    for name in "exp tanh sin cos expm1 erf erf_derivative sigmoid silu gelu softplus".split():
        take(getattr(topos.Tensor(x, element), name)())
    for name in "ln sqrt log1p".split():
        take(getattr(topos.Tensor(abs(x), element), name)())
    take(topos.Tensor(abs(x), element).powf(topos.Tensor(x / 30, element)))
    take(topos.Tensor(x, element).sum())
    wide = topos.Tensor(x[:1000].reshape(20, 50), element)
    take(wide.sum_along(0)), take(wide.sum_along(1)), take(wide.max_along(0)), take(wide.log_softmax(1))
    take(wide @ wide.transpose()), take((wide @ wide.transpose())[3:4])
print(digest.hexdigest())
"""


def test_c64_other_processors():
    """With NumPy's dispatch forced down to narrower instruction sets, one after another, the hash stays."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    optional = [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]
    digests = set()
    for disabled in ([], optional[len(optional) // 2 :], optional):
        environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": " ".join(disabled)}
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60
        )
        assert ran.returncode == 0, ran.stderr
        digests.add(ran.stdout)
    assert len(digests) == 1
    assert len(digests.pop().strip()) == hashlib.sha256().digest_size * 2


def test_c65_select_never_mixes(values):
    """A branch that is not taken leaves no trace, NaN and infinity included, at any place."""
    for length in (1, 7, 8, 17, 33):
        mask = np.zeros(length, np.float32)
        bad = np.full(length, np.nan, np.float32)
        kept = np.arange(length, dtype=np.float32)
        assert_same_bits(values(lambda m, a, b: where(m, a, b), mask, bad, kept), kept)
