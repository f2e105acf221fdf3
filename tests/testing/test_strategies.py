"""The strategies draw what they promise."""

from typing import Any

import numpy as np
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from topos import Element, Tensor, bf16, f32, f64
from topos.op import Cast, Gather, Scatter
from topos.testing import assert_same_bits
from topos.testing.programs import MOST, Call, Program, Source, programs
from topos.testing.strategies import arrays, extremes, numbers, selections, shapes, tensors, views

each_element = pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
SEARCH = settings(max_examples=2000, database=None, derandomize=True)


@each_element
@pytest.mark.parametrize(
    "wanted",
    [
        np.isinf,
        np.isnan,
        lambda x: x == 0 and np.signbit(x),
        lambda x: x == 0 and not np.signbit(x),
        lambda x: 0.1 < x < 0.4,
    ],
    ids=["inf", "nan", "-0.0", "0.0", "ordinary"],
)
def test_every_kind_of_number_is_drawn(wanted: Any, element: Element) -> None:
    find(numbers(element), wanted, settings=SEARCH)


@each_element
def test_the_extremes_are_the_elements_own(element: Element) -> None:
    values = np.array(extremes(element))
    rounded = element.round(values)
    assert_same_bits(rounded.astype(np.float64), values)
    bits = rounded.view(f"u{element.dtype.itemsize}")
    assert int(bits[0]) == 1
    assert np.isfinite(values).all()
    with np.errstate(over="ignore"):
        doubled = element.mul(rounded[-2:], element.round(np.array([2.0, 2.0])))
    assert np.isinf(doubled.astype(np.float64)).all()
    find(numbers(element, finite=True), lambda x: x == values[0], settings=SEARCH)


@each_element
@given(data=st.data())
def test_arrays_are_of_the_elements_dtype_and_shape(element: Element, data: st.DataObject) -> None:
    shape = data.draw(shapes())
    for strategy in (arrays(element, shape), views(element, shape)):
        array = data.draw(strategy)
        assert array.dtype == element.dtype
        assert array.shape == shape
    finite = data.draw(arrays(element, shape, finite=True))
    assert np.isfinite(finite.astype(np.float64)).all()


@pytest.mark.parametrize(
    "wanted",
    [
        lambda a: a.size > 3 and any(stride < 0 for stride in a.strides),
        lambda a: a.size > 3 and 0 in a.strides,
        lambda a: a.ndim > 1 and min(a.shape) > 1 and not a.flags.c_contiguous and a.T.flags.c_contiguous,
        lambda a: a.ndim > 0 and a.shape[-1] > 1 and a.strides[-1] == 2 * a.itemsize,
        lambda a: a.flags.c_contiguous and a.size > 3,
        lambda a: a.ndim == 0,
        lambda a: a.size == 0 and a.ndim > 1,
    ],
    ids=["reversed", "repeated", "transposed", "strided", "dense", "scalar", "empty"],
)
def test_views_of_every_kind_are_drawn(wanted: Any) -> None:
    find(views(f32), wanted, settings=SEARCH)


def test_tensors_of_every_representation_are_drawn() -> None:
    find(tensors(f64), lambda t: t.as_constant() is not None and t.shape.volume > 1, settings=SEARCH)
    find(tensors(f64), lambda t: t.as_constant() is None and t.shape.volume > 1, settings=SEARCH)
    assert find(tensors(bf16), lambda t: t.shape.rank > 0, settings=SEARCH).element is bf16
    find(selections(), lambda t: bool((t.ids < 0).any()) and bool((t.ids > 0).any()), settings=SEARCH)


@given(programs())
@settings(max_examples=50)
def test_programs_are_whole(program: Program) -> None:
    last = program.lines[-1]
    assert last.shape == ()
    assert last.element is program.element
    assert all(line.shape.volume <= max(MOST, 5 * MOST) for line in program.lines)
    tape, recorded = program.record()
    assert len(tape) == len(program.lines) == len(recorded.values)
    for value, line in zip(recorded.values, program.lines, strict=True):
        assert (value.shape, value.element) == (line.shape, line.element)
    assert repr(program).count("\n") >= len(program.lines)


@given(programs(element=f64, elements=[f64], tame=True, without=[Cast, Gather, Scatter]))
@settings(max_examples=50)
def test_programs_keep_to_what_is_asked(program: Program) -> None:
    assert program.element is f64
    for line in program.lines:
        if isinstance(line.made, Source) and line.element is not None:
            assert line.element is f64
            assert np.isfinite(line.made.payload.numpy()).all()
        if isinstance(line.made, Call):
            assert not isinstance(line.made.opcode, Gather | Scatter)


def test_sources_of_every_kind_are_drawn() -> None:
    for kind in ("leaf", "parameter", "input", "selection"):
        find(
            programs(), lambda p, kind=kind: any(getattr(m, "kind", "") == kind for m, _, _ in p.lines), settings=SEARCH
        )
    strided = find(
        programs(), lambda p: any(_is_strided(getattr(m, "fed", None)) for m, _, _ in p.lines), settings=SEARCH
    )
    assert isinstance(strided, Program)


def _is_strided(fed: Any) -> bool:
    return isinstance(fed, np.ndarray) and fed.size > 1 and not fed.flags.c_contiguous


def test_a_tensor_of_a_view_reads_as_the_view() -> None:
    array = np.arange(6.0)[::-2]
    assert_same_bits(Tensor.of(array, f64), array)
