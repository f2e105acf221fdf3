"""The bodies read a second time, over typed scalars and exact rational products: the bits of the NumPy reading."""

from __future__ import annotations

import ast
import operator
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import topos.element
from topos.element.floating import Floating
from topos.element.functions import F32_BODIES, F64_BODIES
from topos.element.vocabulary import Body, Table

KINDS: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "mask": np.bool_}
BODY_FILES = ["exponential", "logarithm", "trigonometric", "error_function", "power", "steps", "functions"]


class Scalar:
    """One typed value: constants take its type, two values must agree in type, and nothing turns into a Python bool."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, kind: str, value: Any) -> None:
        self.kind = kind
        self.value = KINDS[kind](value)

    def _pair(self, other: Any) -> Scalar:
        if not isinstance(other, Scalar):
            assert type(other) in (int, float)
            assert not (self.kind.startswith("i") and type(other) is float)
            return Scalar(self.kind, other)
        assert self.kind == other.kind, (self.kind, other.kind)
        return other

    def _apply(self, operation: Callable[..., Any], other: Any, kinds: str) -> Scalar:
        assert self.kind[0] in kinds, (operation, self.kind)
        return Scalar(self.kind, operation(self.value, self._pair(other).value))

    def _compare(self, operation: Callable[..., Any], other: Any) -> Scalar:
        assert self.kind != "mask"
        return Scalar("mask", operation(self.value, self._pair(other).value))

    def __bool__(self) -> bool:
        raise AssertionError("a body branched on a value")

    def __add__(self, other: Any) -> Scalar:
        return self._apply(operator.add, other, "fi")

    __radd__ = __add__

    def __sub__(self, other: Any) -> Scalar:
        return self._apply(operator.sub, other, "fi")

    def __rsub__(self, other: Any) -> Scalar:
        return self._pair(other) - self

    def __mul__(self, other: Any) -> Scalar:
        return self._apply(operator.mul, other, "f")

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Scalar:
        return self._apply(operator.truediv, other, "f")

    def __rtruediv__(self, other: Any) -> Scalar:
        return self._pair(other) / self

    def __neg__(self) -> Scalar:
        assert self.kind[0] == "f"
        return Scalar(self.kind, -self.value)

    def __and__(self, other: Any) -> Scalar:
        return self._apply(operator.and_, other, "im")

    def __or__(self, other: Any) -> Scalar:
        return self._apply(operator.or_, other, "im")

    def __xor__(self, other: Any) -> Scalar:
        return self._apply(operator.xor, other, "i")

    def __lshift__(self, other: Any) -> Scalar:
        return self._apply(operator.lshift, other, "i")

    def __rshift__(self, other: Any) -> Scalar:
        return self._apply(operator.rshift, other, "i")

    def __invert__(self) -> Scalar:
        assert self.kind == "mask"
        return Scalar("mask", not self.value)

    def __lt__(self, other: Any) -> Scalar:
        return self._compare(operator.lt, other)

    def __le__(self, other: Any) -> Scalar:
        return self._compare(operator.le, other)

    def __gt__(self, other: Any) -> Scalar:
        return self._compare(operator.gt, other)

    def __ge__(self, other: Any) -> Scalar:
        return self._compare(operator.ge, other)

    def __eq__(self, other: Any) -> Scalar:  # type: ignore[override]
        return self._compare(operator.eq, other)

    def __ne__(self, other: Any) -> Scalar:  # type: ignore[override]
        return self._compare(operator.ne, other)


class ScalarReading:
    """The vocabulary over `Scalar`, in which a rare body runs whatever the mask says."""

    def select(self, mask: Scalar, chosen: Any, other: Any) -> Scalar:
        assert mask.kind == "mask"
        like = chosen if isinstance(chosen, Scalar) else other
        chosen, other = like._pair(chosen), like._pair(other)
        return chosen if mask.value else other

    def sqrt(self, x: Scalar) -> Scalar:
        return Scalar(x.kind, np.sqrt(x.value))

    def widen(self, x: Scalar) -> Scalar:
        assert x.kind == "f32"
        return Scalar("f64", x.value)

    def narrow(self, x: Scalar) -> Scalar:
        assert x.kind == "f64"
        return Scalar("f32", x.value)

    def bits(self, x: Scalar) -> Scalar:
        assert x.kind[0] == "f"
        kind = "i" + x.kind[1:]
        return Scalar(kind, x.value.view(KINDS[kind]))

    def real(self, pattern: Scalar) -> Scalar:
        assert pattern.kind[0] == "i"
        kind = "f" + pattern.kind[1:]
        return Scalar(kind, pattern.value.view(KINDS[kind]))

    def absolute(self, x: Scalar) -> Scalar:
        return Scalar(x.kind, np.abs(x.value))

    def copysign(self, magnitude: Scalar, sign: Scalar) -> Scalar:
        assert magnitude.kind == sign.kind
        return Scalar(sign.kind, np.copysign(magnitude.value, sign.value))

    def two_product(self, left: Any, right: Any) -> tuple[Scalar, Scalar]:
        like = left if isinstance(left, Scalar) else right
        left, right = like._pair(left), like._pair(right)
        assert like.kind == "f64"
        product = left * right
        if not (np.isfinite(product.value) and np.isfinite(left.value) and np.isfinite(right.value)):
            return product, Scalar("f64", np.nan)
        exact = Fraction(float(left.value)) * Fraction(float(right.value)) - Fraction(float(product.value))
        return product, Scalar("f64", float(exact))

    def add_exact(self, addend: Any, left: Any, right: float) -> Scalar:
        like = left if isinstance(left, Scalar) else addend
        addend, left = like._pair(addend), like._pair(left)
        assert like.kind == "f64"
        product = left * right
        if np.isfinite(left.value):
            assert Fraction(float(left.value)) * Fraction(right) == Fraction(float(product.value)), (left.value, right)
        return addend + product

    def add_product(self, addend: Any, left: Any, right: Any) -> Scalar:
        like = left if isinstance(left, Scalar) else right
        assert like.kind == "f64"
        return left * right + addend

    def lookup(self, table: Table, index: Scalar) -> Scalar:
        assert index.kind == "i64"
        assert len(table.values) & (len(table.values) - 1) == 0
        return Scalar("f64", table.values[int(index.value) % len(table.values)])

    def rare(self, mask: Scalar, body: Body, operands: tuple[Scalar, ...], default: Scalar) -> Scalar:
        return self.select(mask, body(self, *operands), default)


def samples(kind: str) -> Any:
    """Numbers of every size, and the special ones."""
    g = np.random.default_rng(9)
    with np.errstate(over="ignore"):
        patterns = g.integers(0, 2 ** (32 if kind == "f32" else 64), 150, dtype=np.uint64)
        anything = patterns.astype(np.uint32 if kind == "f32" else np.uint64).view(KINDS[kind])
        special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.0**-149, 1e-310, 2.0, 0.5, 1e6, 3e6, 1e22])
        middling = np.concatenate([g.uniform(-8, 8, 150), g.uniform(-750, 750, 100), 10 ** g.uniform(-40, 38, 100)])
        return np.concatenate([anything, special.astype(KINDS[kind]), middling.astype(KINDS[kind])])


@pytest.mark.parametrize("element", [topos.element.f32, topos.element.f64], ids=repr)
@pytest.mark.parametrize("function", F64_BODIES)
def test_second_reading_has_the_same_bits(function: str, element: Floating) -> None:
    kind, body, reading = element.name, element.bodies[function], ScalarReading()
    x = samples(kind)
    operands = (x, np.roll(x[::-1], 3)) if function == "powf" else (x,)
    expected = getattr(element, function)(*operands)
    for i, wanted in enumerate(expected):
        result = body(reading, *(Scalar(kind, values[i]) for values in operands))
        assert result.kind == kind
        same = result.value.tobytes() == wanted.tobytes() or (np.isnan(result.value) and np.isnan(wanted))
        assert same, (function, [values[i] for values in operands], result.value, wanted)


def test_both_widths_define_the_same_functions() -> None:
    assert list(F32_BODIES) == list(F64_BODIES)


@pytest.mark.parametrize("name", BODY_FILES)
def test_bodies_reach_for_nothing_but_the_vocabulary(name: str) -> None:
    source = Path(topos.element.__file__).with_name(f"{name}.py").read_text()
    modules = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(str(node.module))
    outside = {m for m in modules if not m.startswith("topos.element")}
    assert outside <= {"__future__", "collections.abc", "types"}
    assert "topos.element.numpy_reading" not in modules


def test_import_is_lean() -> None:
    heavy = ["mpmath", "scipy", "jax", "llvmlite", "gmpy2", "hypothesis"]
    code = f"import sys, topos.element; sys.exit(any(name in sys.modules for name in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}).returncode == 0
