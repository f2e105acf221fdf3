"""Every way into a tensor and out of one."""

import copy
import mmap
import pickle
from collections import UserList, deque
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topos import Element, ElementError, FeedError, RecordedError, ShapeError, Tape, Tensor, bf16, f32, f64
from topos.testing import assert_same_bits
from topos.testing.strategies import arrays, tensors, views

bfloat16 = np.dtype(ml_dtypes.bfloat16)
each_element = pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)


# which element
@pytest.mark.parametrize(
    ("payload", "element"),
    [
        (1, f32),
        (1.5, f32),
        (True, f32),
        ([1, 2.5], f32),
        ((1.0, 2.0), f32),
        ([], f32),
        ([[], []], f32),
        ([np.float64(0.1), 0.2], f32),
        (np.float64(0.1), f64),
        (np.float32(0.1), f32),
        (np.float16(0.1), f32),
        (ml_dtypes.bfloat16(0.1), bf16),
        (np.array([0.1]), f64),
        (np.array([0.1], "f4"), f32),
        (np.array([0.1], bfloat16), bf16),
        (np.array([0.1], "f2"), f32),
        (np.array([0.1], np.longdouble), f32),
        (np.array([0.1], ">f8"), f64),
        (np.array([0.1], ">f4"), f32),
        (np.array([True]), f32),
        (np.array([1], "i8"), f32),
        (np.array([1], "u1"), f32),
    ],
    ids=repr,
)
def test_arrays_of_f64_and_bf16_stay_and_everything_else_is_f32(payload: Any, element: Element) -> None:
    tensor = Tensor(payload)
    assert tensor.element is element
    assert tensor.numpy().dtype == element.dtype
    assert tensor.numpy().dtype.isnative
    assert tensor.shape == np.shape(payload)


@each_element
@pytest.mark.parametrize(
    "dtype",
    ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "g", ">i4", ">f4", ">f8", ">i8", bfloat16],
    ids=str,
)
def test_every_dtype_of_numbers_becomes_every_element(dtype: Any, element: Element) -> None:
    array = np.array([[0, 1, 2], [3, 100, 1]]).astype(dtype)
    tensor = Tensor(array, element)
    assert tensor.element is element
    assert tensor.numpy().dtype == element.dtype
    assert tensor.tolist() == array.astype(np.float64).tolist()


@each_element
def test_each_number_is_rounded_once(element: Element) -> None:
    bits = {f32: 24, f64: 53, bf16: 8}[element]
    # A hair above the middle of two neighbours; through an intermediate format it would become the middle, and go down.
    above_middle = Fraction(1) + Fraction(1, 2**bits) + Fraction(1, 2**50 if bits < 50 else 2**62)
    neighbour = 1.0 + 2.0 ** (1 - bits)
    wide = np.longdouble(1) + np.longdouble(2) ** -bits + np.longdouble(2) ** (-50 if bits < 50 else -62)
    if np.finfo(np.longdouble).nmant >= 62:
        assert Tensor(np.array([wide]), element).tolist() == [neighbour]
    if bits < 50:
        assert Tensor(float(above_middle), element).tolist() == neighbour
        assert Tensor([float(above_middle)], element).tolist() == [neighbour]
        assert Tensor(np.array([float(above_middle)]), element).tolist() == [neighbour]


def test_numbers_beyond_the_range_become_infinite_without_a_warning() -> None:
    assert Tensor(1e300).tolist() == float("inf")
    assert Tensor(np.array([-1e300]), bf16).tolist() == [-float("inf")]
    assert Tensor(np.array([1e39]), f32).tolist() == [float("inf")]


@each_element
@given(data=st.data())
def test_a_view_of_any_strides_is_taken_as_it_stands(element: Element, data: st.DataObject) -> None:
    array = data.draw(views(element))
    tensor = Tensor(array, element)
    assert_same_bits(tensor, np.array(array))
    assert tensor.numpy().flags.c_contiguous or not array.size
    assert not np.may_share_memory(tensor.numpy(), array)


def test_arrays_of_every_layout() -> None:
    base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    read_only = base.copy()
    read_only.flags.writeable = False
    for array in (
        base,
        np.asfortranarray(base),
        base[::-1, :, ::-1],
        base[:, 1:2, ::2],
        base.T,
        np.broadcast_to(base[0, 0, 0], (2, 3)),
        np.broadcast_to(base, (5, 2, 3, 4)),
        read_only,
        base[0, 0, 0, ...],
        base[0, 0, 0],
        base[:, :0],
        np.zeros((0,), np.float32),
        np.zeros((3, 0, 2), np.float32),
        np.float32(2.5),
        np.array(2.5, np.float32),
    ):
        assert_same_bits(Tensor(array), np.array(array))


def test_lists_of_every_shape() -> None:
    assert Tensor([]).shape == (0,)
    assert Tensor([[], []]).shape == (2, 0)
    assert Tensor([[[1.0], [2]]]).shape == (1, 2, 1)
    assert Tensor((1, (2))).tolist() == [1.0, 2.0]
    assert Tensor(range(3)).tolist() == [0.0, 1.0, 2.0]
    assert Tensor([np.array([1.0, 2.0]), np.array([3.0, 4.0])]).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert Tensor([Tensor(1.0), 2.0]).tolist() == [1.0, 2.0]
    assert Tensor(2.5).shape == ()


def test_whole_numbers_are_exact_or_refused() -> None:
    assert Tensor(2**24).tolist() == 2.0**24
    assert Tensor(-(2**60)).tolist() == -(2.0**60)
    assert Tensor([0.5, 2**24, -(2**60)]).tolist() == [0.5, 2.0**24, -(2.0**60)]
    assert Tensor(2**53 + 2, f64).tolist() == 2.0**53 + 2
    assert Tensor(np.array([2**63], np.uint64), f64).tolist() == [2.0**63]
    assert Tensor(np.array([-(2**63)])).tolist() == [-(2.0**63)]
    cases: list[tuple[Any, Element, str]] = [
        (2**24 + 1, f32, "f32: cannot hold the integer 16777217 exactly; f32 has 24 bits"),
        ([0, -(2**24) - 1], f32, "f32: cannot hold the integer -16777217 exactly; f32 has 24 bits"),
        (np.array([2**53 + 1]), f64, "f64: cannot hold the integer 9007199254740993 exactly; f64 has 53 bits"),
        (np.array([257], np.uint16), bf16, "bf16: cannot hold the integer 257 exactly; bf16 has 8 bits"),
        (257, bf16, "bf16: cannot hold the integer 257 exactly; bf16 has 8 bits"),
        ([0.5, 257], bf16, "bf16: cannot hold the integer 257 exactly; bf16 has 8 bits"),
        (([0.5, 1], [2**24 + 1, 0.5]), f32, "f32: cannot hold the integer 16777217 exactly; f32 has 24 bits"),
        ([-1, 2**64 - 1], f64, "f64: cannot hold the integer 18446744073709551615 exactly; f64 has 53 bits"),
    ]
    for payload, element, message in cases:
        with pytest.raises(ElementError) as caught:
            Tensor(payload, element)
        assert str(caught.value) == message


def test_an_integer_of_more_than_64_bits_is_refused() -> None:
    for number in (2**100, 2**100 + 1, -(2**70) - 1):
        with pytest.raises(ElementError) as caught:
            Tensor(number, f64)
        assert str(caught.value) == f"payload: an integer of more than 64 bits, {number}; write it as a float"
    with pytest.raises(ElementError, match="^payload: cannot read numbers from list"):
        Tensor([2**100], f64)


REFUSED: list[tuple[Any, type[Exception]]] = [
    (None, ElementError),
    ("text", ElementError),
    (b"bytes", ElementError),
    (["a", "b"], ElementError),
    (np.array(["a"]), ElementError),
    (np.array([b"a"]), ElementError),
    (1j, ElementError),
    ([1.0, 2j], ElementError),
    (np.array([1j]), ElementError),
    (np.complex64(1), ElementError),
    (object(), ElementError),
    ([object()], ElementError),
    (np.array([object()]), ElementError),
    (np.array([1.0, 2.0], object), ElementError),
    ([None, 1.0], ElementError),
    ([[1.0], [1.0, 2.0]], ElementError),
    ({"a": 1.0}, ElementError),
    ({1.0, 2.0}, ElementError),
    (np.array(["2020-01-01"], "M8[D]"), ElementError),
    (np.array([1], "m8[s]"), ElementError),
    (np.zeros(2, [("a", "f4"), ("b", "f4")]), ElementError),
    (Fraction(1, 3), ElementError),
    (float, ElementError),
    (lambda: 1.0, ElementError),
    (slice(1), ElementError),
    (np.zeros(1, ml_dtypes.float8_e4m3fn), ElementError),
]


@each_element
@pytest.mark.parametrize(
    ("payload", "error"), REFUSED, ids=[f"{at} {type(payload).__name__}" for at, (payload, _) in enumerate(REFUSED)]
)
def test_what_holds_no_numbers_is_refused(payload: Any, error: type[Exception], element: Element) -> None:
    for call in (lambda: Tensor(payload), lambda: Tensor(payload, element)):
        with pytest.raises(error) as caught:
            call()
        assert "\n" not in str(caught.value)
    tape = Tape(element)
    for record in (tape.leaf, tape.parameter):
        with pytest.raises(error):
            record(payload)
    assert len(tape) == 0


def test_a_recorded_value_is_no_payload() -> None:
    value = Tape().input(shape=(2,))
    with pytest.raises(RecordedError) as caught:
        Tensor(value)
    assert str(caught.value) == "payload: wants numbers, got a Value; read one with run.of(symbol)"
    for nested in ([value], [[value, 1.0]]):
        with pytest.raises((RecordedError, ElementError)):
            Tensor(nested)


def test_an_element_is_no_dtype() -> None:
    for wrong in ("f32", np.float32, np.dtype("f4"), float, 32):
        with pytest.raises(ElementError) as caught:
            Tensor([1.0], wrong)  # type: ignore[arg-type]
        assert str(caught.value) == f"payload: wants an element such as f32, got {wrong!r}"
        for call in (Tensor([1.0]).convert, Tensor([1.0]).to):
            with pytest.raises(ElementError) as caught:
                call(wrong)  # type: ignore[arg-type]
            assert str(caught.value) == f"to: wants an element such as f32, got {wrong!r}"


def test_a_tensor_is_itself_or_of_another_element() -> None:
    tensor = Tensor([1.0])
    assert Tensor(tensor) is tensor
    assert Tensor(tensor, f32) is tensor
    with pytest.raises(ElementError) as caught:
        Tensor(tensor, f64)
    assert str(caught.value) == "payload: wants element f64, got a tensor of f32; see tensor.convert"


# DLPack
class Exporter:
    """Another library's array: only the protocol."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4", "i8", "u1", "?"])
def test_dlpack_in(dtype: str) -> None:
    array = np.array([[1, 0], [1, 1]], dtype)
    for given_array in (array, array.T, array[::-1], array[:, :0]):
        tensor = Tensor(Exporter(given_array))
        assert tensor.tolist() == given_array.tolist()
        assert tensor.element is (f64 if dtype == "f8" else f32)
    tensor = Tensor(Exporter(array))
    array[0, 0] = 0
    assert tensor.tolist()[0][0] == 1


def test_dlpack_in_of_a_read_only_array() -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    assert Tensor(Exporter(array)).tolist() == [0.0, 1.0, 2.0]


def test_dlpack_in_that_fails_is_named() -> None:
    class Broken(Exporter):
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("on another device")

    with pytest.raises(ElementError) as caught:
        Tensor(Broken(np.zeros(1)))
    assert str(caught.value) == "payload: cannot read numbers from Broken: on another device"


@pytest.mark.parametrize("element", [f32, f64], ids=str)
def test_dlpack_out(element: Element) -> None:
    tensor = Tensor([[1.0, 2.0], [3.0, 4.0]], element)
    for view in (tensor, tensor.transpose(), tensor[1:], Tensor.filled((2, 3), 1.5, element), tensor[:0]):
        array = np.from_dlpack(view)
        assert_same_bits(array, view.numpy())
        with pytest.raises((ValueError, RuntimeError)):
            array[...] = 0
        assert view.__dlpack_device__() == (1, 0)


def test_an_old_dlpack_consumer_gets_a_copy_that_it_may_write() -> None:
    class Old(Exporter):
        """Asks as before DLPack 1.0, which cannot say read-only."""

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__()

    tensor = Tensor([1.0, 2.0])
    array = np.from_dlpack(Old(tensor))  # type: ignore[arg-type]
    assert not np.may_share_memory(array, tensor.numpy())
    if array.flags.writeable:
        array[...] = 9.0
    assert tensor.tolist() == [1.0, 2.0]


def test_dlpack_of_bf16_is_refused_with_the_way_out() -> None:
    with pytest.raises(BufferError) as caught:
        Tensor([1.0], bf16).__dlpack__()
    assert str(caught.value) == "dlpack: NumPy cannot export bf16; export tensor.convert(f32)"
    assert np.from_dlpack(Tensor([1.0], bf16).convert(f32)).tolist() == [1.0]


class Duck:
    """Speaks `__array__` alone."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array([1.0, 2.0], dtype)


def test_whatever_answers_as_an_array_is_taken() -> None:
    assert Tensor(Duck()).element is f64
    assert Tensor(Duck()).tolist() == [1.0, 2.0]
    assert Tensor(memoryview(np.array([1, 2], "f4"))).tolist() == [1.0, 2.0]
    assert Tensor(bytearray(b"\x01\x02")).tolist() == [1.0, 2.0]


# immutability
@each_element
def test_later_edits_of_the_callers_array_change_nothing(element: Element) -> None:
    array = np.ones(3, element.dtype)
    tensor = Tensor(array)
    array[...] = 2.0
    assert tensor.tolist() == [1.0, 1.0, 1.0]
    numbers = [1.0, 2.0]
    listed = Tensor(numbers)
    numbers[0] = 5.0
    assert listed.tolist() == [1.0, 2.0]


@each_element
def test_nobody_writes_through_an_array_that_came_out(element: Element) -> None:
    for tensor in (
        Tensor([1.0, 2.0], element),
        Tensor([1.0, 2.0], element) + Tensor([1.0, 2.0], element),
        Tensor.filled((2,), 1.0, element),
        Tensor([[1.0], [2.0]], element).transpose()[0],
        Tensor([1.0, 2.0], element).stop(),
        Tensor(1.0, element),
        Tensor([1.0], element).zero_like(),
    ):
        for array in (tensor.numpy(), np.asarray(tensor), np.array(tensor, copy=None)):
            assert not array.flags.writeable
            with pytest.raises(ValueError):
                array[...] = 0
        kept = tensor.tolist()
        for array in (np.array(tensor), np.asarray(tensor, copy=True), np.array(tensor, dtype=np.float64)):
            array[...] = 9
        assert tensor.tolist() == kept


def test_attributes_are_fixed() -> None:
    tensor = Tensor([1.0])
    with pytest.raises(AttributeError):
        tensor.unknown = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        tensor[0] = 2.0  # type: ignore[index]


def test_asking_for_no_copy_of_another_dtype_is_refused() -> None:
    with pytest.raises(ValueError) as caught:
        np.asarray(Tensor([1.0]), dtype=np.float64, copy=False)
    assert str(caught.value) == "a float32 tensor as float64 needs a copy"
    assert np.asarray(Tensor([1.0]), dtype=np.float32, copy=False).tolist() == [1.0]
    assert np.asarray(Tensor([1.5]), dtype=np.int32).tolist() == [1]


# frozen
@each_element
def test_frozen_keeps_a_read_only_array(element: Element) -> None:
    array = np.ones((2, 3), element.dtype)
    view = array.T
    view.flags.writeable = False
    tensor = Tensor.frozen(view)
    assert tensor.element is element
    assert tensor.shape == (3, 2)
    assert np.shares_memory(tensor.numpy(), array)


def test_frozen_refuses_what_it_would_have_to_copy() -> None:
    cases: list[tuple[Any, str]] = [
        (np.ones(2), "frozen: the array must be read-only (array.flags.writeable = False); Tensor copies it"),
        (np.ones(2, "i4"), "frozen: wants an array of f32, got int32; Tensor(array) converts"),
        (np.ones(2, ">f4"), "frozen: wants an array of f32, got >f4; Tensor(array) converts"),
        (np.ones(2, "f2"), "frozen: wants an array of f32, got float16; Tensor(array) converts"),
    ]
    for array, message in cases:
        with pytest.raises(ElementError) as caught:
            Tensor.frozen(array)
        assert str(caught.value) == message
    for wrong in ([1.0], 1.0, Tensor([1.0])):
        with pytest.raises(ElementError):
            Tensor.frozen(wrong)  # type: ignore[arg-type]


def test_frozen_reads_a_memory_map(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    np.arange(4, dtype=np.float32).tofile(path)
    tensor = Tensor.frozen(np.memmap(path, np.float32, mode="r"))
    assert tensor.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert (tensor + 1).tolist() == [1.0, 2.0, 3.0, 4.0]
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        again = Tensor(np.frombuffer(mapped, np.float32))
        assert again.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_subclasses_of_arrays_are_plain_arrays_inside(tmp_path: Path) -> None:
    class Mine(np.ndarray):
        def __getitem__(self, index: Any) -> Any:
            raise AssertionError("a subclass is not indexed")

    tensor = Tensor(np.arange(4.0).view(Mine))
    assert tensor[1:].tolist() == [1.0, 2.0, 3.0]
    array = np.arange(4.0).view(Mine)
    array.flags.writeable = False
    assert Tensor.frozen(array)[1:].tolist() == [1.0, 2.0, 3.0]
    assert type(Tensor.frozen(array).numpy()) is np.ndarray


# copies
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))], ids=["copy", "deep", "pickle"]
)
@given(data=st.data())
def test_copies_have_the_same_bits(copied: Callable[[Tensor], Tensor], data: st.DataObject) -> None:
    element = data.draw(st.sampled_from([f32, f64, bf16]))
    tensor = data.draw(tensors(element))
    again = copied(tensor)
    assert_same_bits(again, tensor)
    assert again.element is element
    assert again.shape == tensor.shape
    assert not again.numpy().flags.writeable


def test_a_pickled_view_does_not_take_its_whole_buffer_along() -> None:
    whole = Tensor(np.zeros(100_000, np.float32))
    assert len(pickle.dumps(whole[:2])) < 1000


def test_a_constant_is_a_constant_after_pickling_too() -> None:
    constant = Tensor.filled((100, 100), 0.1)
    again = pickle.loads(pickle.dumps(constant))
    assert_same_bits(again, constant)


# constants
@each_element
def test_filled_stores_one_number(element: Element) -> None:
    tensor = Tensor.filled((1000, 1000, 1000), 0.1, element)
    assert tensor.shape == (1000, 1000, 1000)
    constant = tensor.as_constant()
    assert constant is not None
    assert constant.shape == ()
    assert_same_bits(constant, Tensor(0.1, element))
    assert tensor.numpy().strides == (0, 0, 0)


def test_what_is_a_constant() -> None:
    assert Tensor.filled((2, 0), 1.0).as_constant() is None
    assert Tensor.filled((), 2.0).as_constant() is not None
    assert Tensor([1.0, 1.0]).as_constant() is None
    assert Tensor([3.0]).as_constant() is not None
    assert Tensor(3.0).as_constant() is not None
    assert Tensor.filled((4,), 2.0)[1:3].as_constant() is not None
    assert Tensor.filled((2, 3), 2.0).transpose().as_constant() is not None
    assert Tensor([1.0, 2.0]).zero_like().as_constant() is not None
    assert Tensor(2.0).broadcast((2, 2)).as_constant() is not None
    assert Tensor([1.0, 2.0]).broadcast_along(0, 2).as_constant() is None
    assert Tensor.selection([0, 0], 1).as_constant() is None


def test_filled_takes_one_number_and_a_shape() -> None:
    assert Tensor.filled([2], np.float64(0.5)).tolist() == [0.5, 0.5]
    assert Tensor.filled([2], Tensor(0.5)).tolist() == [0.5, 0.5]
    with pytest.raises(ShapeError) as caught:
        Tensor.filled([2], [1.0, 2.0])
    assert str(caught.value) == "filled: wants one number, got shape [2]"
    with pytest.raises(ShapeError):
        Tensor.filled(2, 1.0)  # type: ignore[arg-type]
    with pytest.raises(ShapeError):
        Tensor.filled([-1], 1.0)
    with pytest.raises(ElementError):
        Tensor.filled([2], 2**24 + 1)


@each_element
def test_counted_zero_and_one_are_of_the_same_shape_and_element(element: Element) -> None:
    tensor = Tensor([[1.0, 2.0]], element)
    for constant, number in ((tensor.zero_like(), 0.0), (tensor.one_like(), 1.0), (tensor.counted(3), 3.0)):
        assert constant.element is element
        assert constant.tolist() == [[number, number]]
    assert tensor.counted(2**24 + 1).tolist()[0][0] == {f32: 2.0**24, f64: 2.0**24 + 1, bf16: 2.0**24}[element]
    assert tensor.counted(10**400).tolist()[0][0] == float("inf")


# out
@given(arrays(f32))
def test_out_and_in_again(array: np.ndarray) -> None:
    tensor = Tensor(array)
    assert_same_bits(Tensor(tensor.tolist()).reshape(array.shape), tensor)
    assert_same_bits(np.asarray(tensor), array)


def test_one_number_out() -> None:
    assert Tensor([[2.5]]).scalar() == np.float32(2.5)
    assert type(Tensor(2.5).scalar()) is np.float32
    assert type(Tensor(2.5, f64).scalar()) is np.float64
    assert type(Tensor(2.5, bf16).scalar()) is ml_dtypes.bfloat16
    assert float(Tensor([2.5], bf16)) == 2.5
    assert float(Tensor.filled((1, 1), 2.0)) == 2.0
    assert Tensor(2.5, bf16).tolist() == 2.5
    assert type(Tensor(2.5, bf16).tolist()) is float
    assert type(Tensor([2.5], bf16).tolist()[0]) is float
    assert repr(Tensor([1.0, 0.5])) == "Tensor([1. , 0.5], f32)"
    for call in (Tensor([1.0, 2.0]).scalar, Tensor([1.0, 2.0]).__float__, Tensor([]).scalar):
        with pytest.raises(ShapeError, match="^scalar: wants volume 1, got "):
            call()


def test_length_and_the_questions_without_an_answer() -> None:
    tensor = Tensor([[1.0, 2.0, 3.0]])
    assert len(tensor) == 1
    assert len(tensor[0]) == 3
    assert len(Tensor([])) == 0
    with pytest.raises(RecordedError) as caught:
        len(Tensor(1.0))
    assert str(caught.value) == "len: a tensor of rank 0 has no length"
    for call in (
        lambda: iter(tensor),
        lambda: bool(tensor),
        lambda: tensor < 1.0,
        lambda: tensor >= tensor,
    ):
        with pytest.raises(RecordedError):
            call()
    with pytest.raises(TypeError):
        int(tensor)  # type: ignore[call-overload]


def test_equality_is_identity_and_a_tensor_is_hashable() -> None:
    tensor, other = Tensor([1.0]), Tensor([1.0])
    assert tensor == tensor
    assert tensor != other
    assert len({tensor, other}) == 2


@pytest.mark.parametrize(("source", "target"), [(a, b) for a in (f32, f64, bf16) for b in (f32, f64, bf16)], ids=str)
def test_convert_rounds_once(source: Element, target: Element) -> None:
    numbers = [0.1, 1.0, -0.0, float("inf"), float("nan"), 1e-42, 3.0e38, 1.00390625001]
    tensor = Tensor(numbers, source)
    converted = tensor.convert(target)
    assert converted.element is target
    with np.errstate(all="ignore"):
        expected = target.round(np.array(tensor.numpy().astype(np.float64)))
    assert_same_bits(converted, expected)
    assert (converted is tensor) == (source is target)


def test_f64_to_bf16_rounds_once_and_not_through_f32() -> None:
    above_middle = 1.0 + 2.0**-8 + 2.0**-40
    assert Tensor([above_middle], f64).convert(bf16).tolist() == [1.0 + 2.0**-7]
    assert Tensor([above_middle], f64).convert(f32).convert(bf16).tolist() == [1.0]


def test_a_selection_is_named_in_errors_of_ids() -> None:
    cases: list[tuple[Any, int, Any, str]] = [
        ([0, 3], 3, None, "selection: id 3 at [1] is not one of the vocab's 0 .. 2"),
        ([[0, 1], [-1, 0]], 3, None, "selection: id -1 at [1, 0] is not one of the vocab's 0 .. 2"),
        ([0, -2], 3, -1, "selection: id -2 at [1] is not one of the vocab's 0 .. 2"),
        (5, 3, None, "selection: id 5 at [] is not one of the vocab's 0 .. 2"),
        ([0.0], 3, None, "selection: ids must be integers, got float64"),
        ([True], 3, None, "selection: ids must be integers, got bool"),
        (
            np.array([2**63], np.uint64),
            3,
            None,
            "selection: id 9223372036854775808 at [0] is not one of the vocab's 0 .. 2",
        ),
        ([0], 0, None, "selection: id 0 at [0] is not one of the vocab's 0 .. -1"),
    ]
    for ids, vocab, absent, message in cases:
        with pytest.raises(FeedError) as caught:
            Tensor.selection(ids, vocab, absent=absent)
        assert str(caught.value) == message


def test_integers_of_numpy_beside_floats_are_exact_or_refused() -> None:
    lost = 2**24 + 1
    for payload in (
        [np.int64(lost), 0.5],
        [np.array([lost]), np.array([0.5])],
        deque([lost, 0.5]),
        UserList([np.uint32(lost), 0.5]),
        [[0.5], (np.int32(lost),)],
        [np.uint64(2**63 + 1), np.int64(-1)],
    ):
        with pytest.raises(ElementError, match="f32: cannot hold the integer"):
            Tensor(payload)
    assert Tensor([np.int64(2**24), np.array(2), 0.5]).tolist() == [2.0**24, 2.0, 0.5]


def test_whatever_lists_numbers_becomes_the_common_element() -> None:
    for payload in ([0.5], (0.5,), deque([0.5]), UserList([0.5])):
        assert Tensor(payload).element is f32


def test_places_without_a_number_are_refused() -> None:
    holes = np.ma.array([1.0, 2.0], mask=[False, True])
    for payload in (holes, [holes, holes], np.ma.masked):
        with pytest.raises(ElementError, match="payload: a masked array has places without a number; see array.filled"):
            Tensor(payload)
    with pytest.raises(ElementError, match="payload: a masked array"):
        Tensor.selection(np.ma.array([1, 0], mask=[False, True]), 3)
    assert Tensor(np.ma.array([1.0, 2.0])).tolist() == [1.0, 2.0]
    assert Tensor(holes.filled(0.0)).tolist() == [1.0, 0.0]
