"""Elements, drawn numbers, and the rules of accumulation written out one scalar at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from topos.element.element import Array, Element
from topos.element.fma import fma32, fma64


class Plain(Element):
    """IEEE arithmetic of a NumPy dtype, without a word about it: the kernels take their general paths."""

    def __init__(self, name: str, dtype: Any, ieee: bool = False) -> None:
        self.name, self.dtype, self.ieee = name, np.dtype(dtype), ieee

    def round(self, numbers: Array) -> Array:
        return np.asarray(numbers.astype(self.dtype))

    def add(self, left: Array, right: Array) -> Array:
        return np.asarray(left + right)

    def sub(self, left: Array, right: Array) -> Array:
        return np.asarray(left - right)

    def fma(self, left: Array, right: Array, addend: Array) -> Array:
        return (fma32 if self.dtype == np.float32 else fma64)(left, right, addend)

    def maximum(self, left: Array, right: Array) -> Array:
        return np.where(np.isnan(left) | (left >= right), left, right)

    def exp(self, x: Array) -> Array:
        return np.asarray(np.exp(x))

    def ln(self, x: Array) -> Array:
        return np.asarray(np.log(x))


class Half(Plain):
    """bfloat16 that accumulates in a given f32 element; maxima go through it too."""

    def __init__(self, name: str, accumulator: Element) -> None:
        super().__init__(name, ml_dtypes.bfloat16)
        self._accumulator = accumulator

    @property
    def accumulator(self) -> Element:
        return self._accumulator

    def round(self, numbers: Array) -> Array:
        return self.demote(np.asarray(numbers.astype(np.float32)))

    def promote(self, array: Array) -> Array:
        return np.asarray(np.asarray(array).view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)

    def demote(self, array: Array) -> Array:
        bits = np.asarray(array).view(np.uint32)
        nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return np.asarray(np.where(np.isnan(array), 0x7FC0, nearest).astype(np.uint16)).view(self.dtype)


class Pair(Element):
    """Two f32 side by side in a structured dtype, each operation applied to both."""

    def __init__(self) -> None:
        self.name = "pair"
        self.dtype = np.dtype([("first", np.float32), ("second", np.float32)])
        self._plain = Plain("f32", np.float32)

    def both(self, operation: Callable[..., Array], *operands: Array) -> Array:
        first, second = (operation(*(np.asarray(x[part]) for x in operands)) for part in ("first", "second"))
        return self.join(first, second)

    def join(self, first: Array, second: Array) -> Array:
        out = np.empty(first.shape, self.dtype)
        out["first"], out["second"] = first, second
        return out

    @property
    def one(self) -> Array:
        return np.ones((), self.dtype)

    @property
    def lowest(self) -> Array:
        return np.full((), -np.inf, self.dtype)

    def add(self, left: Array, right: Array) -> Array:
        return self.both(self._plain.add, left, right)

    def sub(self, left: Array, right: Array) -> Array:
        return self.both(self._plain.sub, left, right)

    def fma(self, left: Array, right: Array, addend: Array) -> Array:
        return self.both(fma32, left, right, addend)

    def maximum(self, left: Array, right: Array) -> Array:
        return self.both(self._plain.maximum, left, right)

    def exp(self, x: Array) -> Array:
        return self.both(self._plain.exp, x)

    def ln(self, x: Array) -> Array:
        return self.both(self._plain.ln, x)


try:
    from topos.element import bf16, f32, f64
except ImportError:
    f32, f64 = Plain("f32", np.float32, ieee=True), Plain("f64", np.float64, ieee=True)
    bf16 = Half("bf16", f32)

_PLAIN32 = Plain("plain-f32", np.float32)
_ALL = [f32, f64, bf16, _PLAIN32, Plain("plain-f64", np.float64), Half("plain-bf16", _PLAIN32)]


class Literal:
    """The contract, read literally: one scalar of the accumulator's dtype at a time."""

    def __init__(self, element: Element) -> None:
        self.element = element
        self.accumulator = element.accumulator
        self.scalar = self.accumulator.dtype.type

    def up(self, array: Array) -> Array:
        return self.element.promote(np.array(array))

    def down(self, array: Any) -> Array:
        return self.element.demote(np.asarray(array, self.scalar))

    def s(self, terms: Sequence[Any]) -> Any:
        """`S` of scalars of the accumulator's dtype."""
        if len(terms) > 512:
            return self.s([self.s(terms[i : i + 512]) for i in range(0, len(terms), 512)])
        lanes = [self.scalar(0)] * 32
        for i, term in enumerate(terms):
            lanes[i % 32] = lanes[i % 32] + term
        for half in (16, 8, 4, 2, 1):
            for j in range(half):
                lanes[j] = lanes[j] + lanes[j + half]
        return lanes[0]

    def sum(self, array: Array) -> Array:
        return self.down(self.s(list(self.up(array).ravel())))

    def sum_along(self, array: Array, axis: int) -> Array:
        moved = np.moveaxis(self.up(array), axis, -1)
        result = np.empty(moved.shape[:-1], self.scalar)
        for index in np.ndindex(result.shape):
            result[index] = self.s(list(moved[index]))
        return self.down(result)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """One fused multiply-add by rational arithmetic."""
        if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
            with np.errstate(all="ignore"):
                return c if np.isfinite(a) and np.isfinite(b) else a * b + c
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        if exact == 0:
            return a * b + c if c == 0 and (a == 0 or b == 0) else self.scalar(0)
        limits = np.finfo(self.scalar)
        bits = exact.numerator.bit_length() - exact.denominator.bit_length()
        exponent = bits if abs(exact) >= Fraction(2) ** bits else bits - 1
        unit = max(exponent, int(limits.minexp)) - int(limits.nmant)
        count = round(exact / Fraction(2) ** unit)
        if abs(count) * Fraction(2) ** unit > Fraction(float(limits.max)):
            return self.scalar(math.copysign(math.inf, exact))
        return self.scalar(math.copysign(math.ldexp(abs(count), unit), exact))

    def matmul(self, left: Array, right: Array) -> Array:
        left, right = self.up(left), self.up(right)
        *batch, rows, terms = left.shape
        result = np.empty((*batch, rows, right.shape[-1]), self.scalar)
        for *lane, i, j in np.ndindex(result.shape):
            total = self.scalar(0)
            for start in range(0, terms, 512):
                chain = self.scalar(0)
                for k in range(start, min(start + 512, terms)):
                    chain = self.fma(left[(*lane, i, k)], right[(*lane, k, j)], chain)
                total = total + chain
            result[(*lane, i, j)] = total
        return self.down(result)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


@pytest.fixture(params=_ALL, ids=str)
def element(request: pytest.FixtureRequest) -> Element:
    found = request.param
    assert isinstance(found, Element)
    return found


@pytest.fixture
def literal(element: Element) -> Literal:
    return Literal(element)


@pytest.fixture
def single() -> Element:
    """f32."""
    return f32


@pytest.fixture
def double() -> Element:
    """f64."""
    return f64


@pytest.fixture
def half() -> Element:
    """bf16."""
    return bf16


@pytest.fixture
def pair() -> Pair:
    return Pair()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


@pytest.fixture
def numbers(element: Element, rng: np.random.Generator) -> Callable[..., Array]:
    """`numbers(shape, special=share)`: numbers of the element, a share of them of the special kinds."""

    def draw(shape: Sequence[int], special: float = 0.0) -> Array:
        values = rng.standard_normal(tuple(shape)) * 2.0 ** rng.integers(-6, 7, tuple(shape))
        array = element.round(np.asarray(values))
        limits = ml_dtypes.finfo(element.dtype)
        chosen = [0.0, -0.0, np.inf, -np.inf, np.nan, limits.smallest_subnormal, limits.tiny, limits.max, 1.0]
        where = rng.random(array.shape) < special
        array[where] = rng.choice(np.array(chosen).astype(element.dtype), int(where.sum()))
        return array

    return draw


def same(actual: Array, expected: Array) -> bool:
    """Equal shape, dtype and bits; any NaN equals any NaN."""
    if type(actual) is not np.ndarray or actual.shape != expected.shape or actual.dtype != expected.dtype:
        return False
    if actual.dtype.names:
        return all(same(actual[name], expected[name]) for name in actual.dtype.names)
    bits = np.dtype(f"u{actual.dtype.itemsize}")
    equal = np.ascontiguousarray(actual).view(bits) == np.ascontiguousarray(expected).view(bits)
    return bool((equal | ((actual != actual) & (expected != expected)).reshape(equal.shape)).all())


@pytest.fixture
def assert_same() -> Callable[[Array, Array], None]:
    def check(actual: Array, expected: Array) -> None:
        assert same(actual, expected), f"\n{actual!r}\n{expected!r}"

    return check
