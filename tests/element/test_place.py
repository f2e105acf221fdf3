"""A value has the same bits wherever it stands: alone, at any index, offset, stride, shape and block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos.element import bf16, f32, f64
from topos.element.numpy_reading import BLOCK

Array = np.ndarray[Any, np.dtype[Any]]
UNARY = ["exp", "ln", "sqrt", "tanh", "sin", "cos", "log1p", "expm1", "erf", "erf_derivative", "neg"]
VALUES = [0.0, -0.0, 1e-40, 0.3, -0.7, 1.0, 1.9, -3.5, 12.0, 88.0, -100.0, 2e6, -3e30, np.inf, -np.inf, np.nan]
ELEMENTS = [f32, f64, bf16]


def bits(array: Array) -> Array:
    """The bits, with every NaN alike."""
    wide = np.where(array == array, array.view(f"u{array.dtype.itemsize}"), 0xFFFF)
    return np.asarray(wide)


def rules(element: Any) -> list[Callable[[Array], Array]]:
    """Every function of one operand, and functions of more with the others derived from it."""
    found: list[Callable[[Array], Array]] = [getattr(element, name) for name in UNARY]
    found.append(lambda x: element.powf(x, element.one))
    found.append(lambda x: element.powf(element.exp(element.sin(x)), x))
    found.append(lambda x: element.add(element.mul(x, x), element.one))
    found.append(lambda x: element.maximum(x, element.one))
    found.append(lambda x: element.step(x, element.one))
    return found


@pytest.mark.parametrize("element", ELEMENTS, ids=repr)
def test_every_index_offset_and_stride(element: Any) -> None:
    values = element.round(np.array(VALUES))
    for rule in rules(element):
        alone = np.array([bits(rule(v.reshape(()))) for v in np.split(values, values.size)])
        for length in range(1, 41):
            chosen = np.arange(length) * 7 % values.size
            for stride in (1, 2, -1):
                offset = length % 8
                room = np.empty(offset + length * 2, values.dtype)
                view = room[offset : offset + length][::-1] if stride < 0 else room[offset::stride][:length]
                view[...] = values[chosen]
                assert np.array_equal(bits(rule(view)), alone[chosen])


@pytest.mark.parametrize("element", [f32, f64], ids=repr)
@pytest.mark.parametrize("offset", range(8))
def test_blocks(element: Any, offset: int) -> None:
    values = np.resize(element.round(np.array(VALUES)), 2 * BLOCK + 5 + offset)[offset:]
    for rule in rules(element):
        period = len(VALUES)
        whole = bits(rule(values))
        assert np.array_equal(whole, np.resize(bits(rule(values[:period])), whole.size))


@pytest.mark.parametrize("element", ELEMENTS, ids=repr)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (2, 3, 4), (1, 1)])
def test_shapes(element: Any, shape: tuple[int, ...]) -> None:
    x = element.round(np.full(shape, 0.75))
    for rule in [*rules(element), lambda x: element.sub(x, x), lambda x: element.div(x, x)]:
        result = rule(x)
        assert type(result) is np.ndarray
        assert result.shape == shape
        assert result.dtype == element.dtype


def test_layouts() -> None:
    base = np.linspace(-4, 4, 60).reshape(3, 4, 5)
    for view in (
        base.T,
        base[::-1, ::2],
        np.asfortranarray(base),
        base[:, None, 1, ::-1],
        np.broadcast_to(base, (2, 3, 4, 5)),
    ):
        assert np.array_equal(f64.tanh(view), f64.tanh(view.copy()))
        assert np.array_equal(f64.powf(np.abs(view), view), f64.powf(np.abs(view.copy()), view.copy()))


def test_operands_broadcast() -> None:
    base, exponent = np.linspace(0.1, 4, 20)[:, None], np.linspace(-3, 3, 7)
    grid = f64.powf(base, exponent)
    assert grid.shape == (20, 7)
    assert grid[3, 5] == f64.powf(base[3, 0].reshape(()), exponent[5].reshape(()))
    assert f64.powf(base, f64.one).shape == (20, 1)
    assert np.array_equal(f64.powf(base, np.array(2.0)), f64.powf(base, np.full((20, 1), 2.0)))


def test_operands_are_left_alone() -> None:
    x = np.linspace(-4, 4, 100)
    x.setflags(write=False)
    kept = x.copy()
    for rule in rules(f64):
        result = rule(x)
        assert not np.shares_memory(result, x)
        assert result.flags.writeable
        assert np.array_equal(x, kept)
