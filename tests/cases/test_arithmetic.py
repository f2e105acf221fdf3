"""Plain arithmetic: each value used as often as it is, each operation rounded on its own, nothing regrouped."""

from __future__ import annotations

import ctypes
import mmap
import platform
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from topos import ExactnessError, Tape, Tensor, detach, f32, f64
from topos.testing import assert_same_bits

Array = np.ndarray[Any, np.dtype[Any]]


def f(number: Any) -> Array:
    return np.array(number, np.float32)


def test_c20_a_value_used_twice(values, gradients):
    """A node's cotangent is complete only when all its users have spoken: a sweep in any other order loses some."""

    def doubled_twice(a):
        b = a + a
        return b + b

    assert_same_bits(values(doubled_twice, 1), f(4))
    assert_same_bits(gradients(doubled_twice, 1), f(4))

    def mixed(a, b):
        c, d = a + b, a * b
        return (c + d) + c * d

    assert_same_bits(values(mixed, 3, 5), f(8 + 15 + 8 * 15))
    assert_same_bits(gradients(mixed, 3, 5), (f(61), f(43)))
    assert_same_bits(gradients(lambda w: w * 3 + w, 2), f(4))


@pytest.mark.parametrize("length", [None, 1, 7, 8, 17])
def test_c21_fused_multiply_add_changes_a_cancellation(values, length):
    """Products round before they are subtracted, in a scalar as in any lane of a vector: no contraction."""
    shape = () if length is None else (length,)
    large, tenth = np.full(shape, 4097, np.float32), np.full(shape, 0.1, np.float32)
    zero = np.zeros(shape, np.float32)
    assert_same_bits(values(lambda a, b, c, d: a * d - b * c, large, large, large, large), zero)
    assert_same_bits(values(lambda x, y: x * x - y * y, tenth, tenth), zero)
    assert_same_bits(values(lambda x: x * x, large), np.full(shape, 16785408, np.float32))


def test_c22_reassociation(values):
    """A huge constant that cancels to zero where it stands takes everything with it where it is moved."""

    def shifted(s, m):
        t = s + (m.one_like() - m) * -1e30
        return t - t.max_along(0).broadcast_along(0, 2)

    assert_same_bits(values(shifted, f([0.25, 0.125]), f([1, 1])), f([0, -0.125]))


def test_c23_nan_and_infinity_are_kept(values, hexed):
    """The identities of real numbers (0*x is 0, x-x is 0, x+0 is x) do not hold for floats and are not applied.

    There is no `isnan`: `1 - x.step(x)` is one exactly where x is NaN.
    """

    def is_nan(x):
        return 1 - x.step(x)

    def program(zero, infinity, negative):
        u = zero / zero
        return u, is_nan(u), zero * u + 1, zero * infinity, infinity - infinity, is_nan(infinity), negative + 0.0

    u, nan_u, one_plus, product, difference, nan_infinity, positive = values(program, f(0), f(np.inf), f(-0.0))
    assert np.isnan([u, one_plus, product, difference]).all()
    assert_same_bits((nan_u, nan_infinity), (f(1), f(0)))
    assert hexed(positive) == "0x00000000"
    # The identities that do hold keep a negative zero.
    for kept in (lambda x: x * 1, lambda x: x - 0.0, lambda x: x + -0.0, lambda x: x / 1):
        assert hexed(values(kept, f(-0.0))) == "0x80000000"
    # A NaN is nonzero as a mask, and differs from itself.
    assert_same_bits(values(lambda x: x.select(x.one_like(), x.zero_like()), f(np.nan)), f(1))
    with pytest.raises(AttributeError, match="isnan"):
        Tensor(1).isnan()
    with pytest.raises(TypeError):
        np.isnan(Tensor(1))


def test_c24_subnormals_are_numbers(values, hexed, of_bits):
    """The smallest number is not zero, survives arithmetic, and a program leaves NumPy's arithmetic as it found it."""

    def program(x, normal):
        return x, x.select(x.one_like(), x.zero_like()), x * 1, x * 2, normal / 2

    answers = values(program, of_bits(1), f(1.1754944e-38))
    assert [hexed(answer) for answer in answers] == [
        "0x00000001",
        "0x3f800000",
        "0x00000001",
        "0x00000002",
        "0x00400000",
    ]
    assert hexed(values(lambda x: x.sum(), of_bits(1, 1, 1))) == "0x00000003"
    assert hexed(values(lambda x: x.reshape([1, 3]) @ x.one_like().reshape([3, 1]), of_bits(1, 1, 1))) == [
        ["0x00000003"]
    ]
    assert hexed(np.float32(1e-45) * np.float32(2)) == "0x00000002"


def _mxcsr() -> tuple[Any, Any, Any]:
    """Machine code that stores and loads this thread's floating-point control word, and what keeps it alive."""
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("0fae1fc3 0fae17c3"))  # stmxcsr [rdi]; ret; ldmxcsr [rdi]; ret
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    return kind(address), kind(address + 4), code


@pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.system() != "Linux", reason="sets the control word of an x86-64"
)
@pytest.mark.parametrize("flag", [0x8000, 0x0040], ids=["results flushed", "operands flushed"])
def test_c24_a_thread_that_flushes_subnormals_is_refused(flag):
    """Under a foreign library's flush-to-zero a run raises, and leaves the flag to its owner."""
    tape = Tape()
    x = tape.parameter(1e-45)
    y = detach(x * 2)
    network = tape.into_network()
    entry = network.entry([y]).backward()
    before, resident = network.forward(network.parameters()), Tensor(1e-45)
    store, load, _code = _mxcsr()

    def under_flag() -> tuple[list[str], bool]:
        word, seen = ctypes.c_uint32(), ctypes.c_uint32()
        store(ctypes.addressof(word))
        flushing = ctypes.c_uint32(word.value | flag)
        load(ctypes.addressof(flushing))
        try:
            refusals = []
            for attempt in (
                lambda: network.forward(network.parameters()),
                lambda: entry.interpret(network.parameters()),
                lambda: entry.lower().forward(network.parameters()),
                lambda: before.backward(y),
                lambda: resident * 2,
                lambda: Tensor([1e-45]),
                lambda: Tape().parameter(1e-45),
            ):
                with pytest.raises(ExactnessError) as refused:
                    attempt()
                refusals.append(str(refused.value).split(";")[0])
            store(ctypes.addressof(seen))
        finally:
            load(ctypes.addressof(word))
        return refusals, bool(seen.value & flag)

    with ThreadPoolExecutor(1) as pool:  # the word is the thread's own
        refusals, left_alone = pool.submit(under_flag).result()
    assert set(refusals) == {
        "run: this thread flushes subnormal numbers to zero (some library set the processor flag), so the promised "
        "bits cannot be computed"
    }
    assert left_alone
    assert_same_bits(entry.interpret(network.parameters()).of(y), np.float32(1e-45) * np.float32(2))


@pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.system() != "Linux", reason="sets the control word of an x86-64"
)
@pytest.mark.parametrize("rounding", [0x2000, 0x4000, 0x6000], ids=["down", "up", "towards zero"])
def test_c24_a_thread_that_rounds_another_way_is_refused(rounding):
    """The same for a rounding that is not to nearest."""
    network, y = Tape.record(lambda tape: tape.parameter(1.0) / 3)
    resident = Tensor(1.0)
    store, load, _code = _mxcsr()

    def under_rounding() -> list[str]:
        word = ctypes.c_uint32()
        store(ctypes.addressof(word))
        other = ctypes.c_uint32(word.value | rounding)
        load(ctypes.addressof(other))
        try:
            refusals = []
            for attempt in (
                lambda: network.forward(network.parameters()),
                lambda: network.entry(y).lower().forward(network.parameters()),
                lambda: resident / 3,
                lambda: Tensor([0.1]),
            ):
                with pytest.raises(ExactnessError) as refused:
                    attempt()
                refusals.append(str(refused.value).split(" (")[0])
        finally:
            load(ctypes.addressof(word))
        return refusals

    with ThreadPoolExecutor(1) as pool:
        assert set(pool.submit(under_rounding).result()) == {"run: this thread does not round to nearest"}


def test_c29_maxima_with_nan(values, gradients):
    """A NaN wins every comparison of two, from either side, whatever the order of evaluation.

    Convention: there is no argmax; asking for it is an AttributeError.
    """
    nan, one = f(np.nan), f(1)
    for compared in (
        lambda n, x: n.maximum(x),
        lambda n, x: x.maximum(n),
        lambda n, x: n.minimum(x),
        lambda n, x: x.minimum(n),
        lambda n, x: n.relu(),
        lambda n, x: n.clip(0, 1),
        lambda n, x: x.clip(n, 2),
        lambda n, x: x.clip(0, n),
        lambda n, x: abs(n),
    ):
        assert np.isnan(values(compared, nan, one))
    with pytest.raises(AttributeError, match="argmax"):
        Tensor([1, np.nan, 2]).argmax()
    with pytest.raises(AttributeError, match="argmax"):
        Tape().input([1, np.nan, 2]).argmax()
    # In the gradient too, the NaN is where it came in: no tie is met, nothing is passed on.
    assert_same_bits(gradients(lambda x: x.max_along(0), f([1, 2, 2])), f([0, 0.5, 0.5]))


@pytest.mark.parametrize("element", [f32, f64], ids=str)
@pytest.mark.parametrize("length", range(1, 34))
def test_c29_one_nan_anywhere_is_the_maximum(values, length, element):
    """One row per place of the NaN: tails and whole vectors must find it alike, along either axis."""
    rows = np.arange(length * length, dtype=element.dtype).reshape(length, length)
    rows[np.arange(length), np.arange(length)] = np.nan
    assert np.isnan(values(lambda x: x.max_along(1), rows)).all()
    assert np.isnan(values(lambda x: x.max_along(0), rows)).all()
    finite = np.arange(-length, 0, dtype=element.dtype)
    assert_same_bits(values(lambda x: x.max_along(0), finite), np.array(-1, element.dtype))
