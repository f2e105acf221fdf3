"""Hypothesis strategies: shapes, numbers, arrays of any strides, tensors and selections. Needs hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st

from topos.element import Element, f32, f64
from topos.element.element import Array
from topos.shape import Shape
from topos.tensor import Tensor

T = TypeVar("T")

_SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 3.0, float("inf"), float("-inf"), float("nan"))


class Drawn:
    """Decides by a hypothesis draw what the table of instructions leaves open."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def integer(self, least: int, most: int) -> int:
        """An integer, both limits included."""
        return self._draw(st.integers(least, most))

    def one(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[self._draw(st.integers(0, len(options) - 1))]


def extremes(element: Element) -> tuple[float, ...]:
    """The smallest subnormal, a larger one, the smallest normal number and the largest, of either sign."""
    if element is f64:
        tiny, normal, large = 2.0**-1074, 2.0**-1022, float(np.finfo(np.float64).max)
    else:  # bf16 has the range of f32
        subnormal, top = (-149, 2.0**128 - 2.0**104) if element is f32 else (-133, 2.0**128 - 2.0**120)
        tiny, normal, large = 2.0**subnormal, 2.0**-126, top
    return tuple(sign * number for number in (tiny, 3 * tiny, normal, large) for sign in (1.0, -1.0))


def shapes(min_rank: int = 0, max_rank: int = 4, max_extent: int = 4) -> st.SearchStrategy[Shape]:
    """Shapes, extents of 0 and 1 among them."""
    return st.lists(st.integers(0, max_extent), min_size=min_rank, max_size=max_rank).map(Shape)


def numbers(element: Element = f32, *, finite: bool = False) -> st.SearchStrategy[float]:
    """Numbers of an element as Python floats: ordinary, extreme and, unless `finite`, infinite and NaN."""
    special = [number for number in (*_SPECIAL, *extremes(element)) if not finite or np.isfinite(number)]
    ordinary = st.floats(-8.0, 8.0, width=64 if element is f64 else 32).map(lambda number: _of_element(number, element))
    return st.one_of(st.sampled_from(special), ordinary)


def _of_element(number: float, element: Element) -> float:
    return float(element.round(np.array(number)))


@st.composite
def arrays(
    draw: st.DrawFn, element: Element = f32, shape: Sequence[int] | None = None, *, finite: bool = False
) -> Array:
    """A dense array of an element's dtype, of a drawn shape unless one is given."""
    extents = draw(shapes()) if shape is None else Shape(shape)
    flat = draw(st.lists(numbers(element, finite=finite), min_size=extents.volume, max_size=extents.volume))
    with np.errstate(all="ignore"):
        return np.asarray(element.round(np.array(flat, np.float64))).reshape(extents)


@st.composite
def views(
    draw: st.DrawFn, element: Element = f32, shape: Sequence[int] | None = None, *, finite: bool = False
) -> Array:
    """An array that is a view of another: any of broadcast, transposed, narrowed, strided and reversed axes."""
    extents = draw(shapes()) if shape is None else Shape(shape)
    order = draw(st.permutations(extents.axes))
    kinds = [draw(st.sampled_from(("whole", "narrowed", "strided", "reversed", "repeated"))) for _ in extents]
    base = draw(arrays(element, [_base_extent(extents[axis], kinds[axis]) for axis in order], finite=finite))
    view = base.transpose([order.index(axis) for axis in extents.axes])
    view = view[tuple(_part(kind, extent) for kind, extent in zip(kinds, extents, strict=True))]
    return np.broadcast_to(view, extents)


def _base_extent(extent: int, kind: str) -> int:
    return {"narrowed": extent + 2, "strided": 2 * extent, "repeated": 1}.get(kind, extent)


def _part(kind: str, extent: int) -> slice:
    parts = {
        "narrowed": slice(1, 1 + extent),
        "strided": slice(0, 2 * extent, 2),
        "reversed": slice(None, None, -1),
    }
    return parts.get(kind, slice(None))


def tensors(
    element: Element = f32, shape: Sequence[int] | None = None, *, finite: bool = False
) -> st.SearchStrategy[Tensor]:
    """Tensors dense, over a view, or filled with one number."""
    dense = arrays(element, shape, finite=finite)
    over_view = views(element, shape, finite=finite)
    extents = shapes() if shape is None else st.just(Shape(shape))
    constant = st.builds(lambda s, n: Tensor.filled(s, n, element), extents, numbers(element, finite=finite))
    return st.one_of(
        dense.map(lambda array: Tensor(array, element)),
        over_view.map(lambda array: Tensor.of(array, element)),
        constant,
    )


@st.composite
def selections(draw: st.DrawFn, shape: Sequence[int] | None = None) -> Tensor:
    """One-hot rows `[count, vocab]`, absent ones among them."""
    count, vocab = (draw(st.integers(0, 4)), draw(st.integers(0, 4))) if shape is None else shape
    ids = draw(st.lists(st.integers(-1, vocab - 1), min_size=count, max_size=count))
    return Tensor.selection(np.array(ids, np.int64), vocab, absent=-1)
