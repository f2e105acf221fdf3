"""The first line of every shape and element error, whole."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import (
    ElementError,
    RecordedError,
    Shape,
    ShapeError,
    Tape,
    Tensor,
    bf16,
    concat,
    einsum,
    f32,
    f64,
    op,
    stack,
)
from topos import where as choose


def ones(*shape: int, element: Any = f32) -> Tensor:
    return Tensor.filled(shape, 1.0, element)


IDS = Tensor.selection([0, 2], 3)

SHAPES: list[tuple[Callable[[Any], Any], str]] = [
    # elementwise
    (
        lambda r: r(2, 3) + r(3),
        "add: shapes must be equal, got [2, 3] and [3]; spread it with right.broadcast_along(0, 2)",
    ),
    (
        lambda r: r(3) - r(3, 2),
        "sub: shapes must be equal, got [3] and [3, 2]; spread it with left.broadcast_along(1, 2)",
    ),
    (lambda r: r() * r(2, 3), "mul: shapes must be equal, got [] and [2, 3]; spread it with left.broadcast([2, 3])"),
    (lambda r: r(2, 3) / r(), "div: shapes must be equal, got [2, 3] and []; spread it with right.broadcast([2, 3])"),
    (lambda r: r(3).powf(r(3, 3)), "powf: shapes must be equal, got [3] and [3, 3]"),
    (lambda r: r(2, 3).maximum(r(2, 4)), "maximum: shapes must be equal, got [2, 3] and [2, 4]"),
    (lambda r: r(2).step(r(0)), "step: shapes must be equal, got [2] and [0]"),
    (lambda r: r(2).select(r(2), r(3)), "select: shapes must be equal, got [2], [2] and [3]"),
    (lambda r: r(2).select(r(3), r(2)), "select: shapes must be equal, got [2], [3] and [2]"),
    (lambda r: r(1, 2) + r(2, 1), "add: shapes must be equal, got [1, 2] and [2, 1]"),
    # products
    (lambda r: r(2) @ r(2, 3), "matmul: operands must have rank 2 or more, got left [2] and right [2, 3]"),
    (lambda r: r(2, 3) @ r(3), "matmul: operands must have rank 2 or more, got left [2, 3] and right [3]"),
    (lambda r: r(2, 3) @ r(4, 5), "matmul: inner axes must be equal, got 3 in left [2, 3] and 4 in right [4, 5]"),
    (
        lambda r: r(2, 2, 3) @ r(3, 3, 2),
        "matmul: leading axes must be equal, got left [2, 2, 3] and right [3, 3, 2]",
    ),
    (
        lambda r: r(2, 2, 3) @ r(3, 2),
        "matmul: leading axes must be equal, got left [2, 2, 3] and right [3, 2]; "
        "make one matrix of left with left.reshape([4, 3])",
    ),
    (
        lambda r: r(2, 3) @ r(5, 3, 2),
        "matmul: leading axes must be equal, got left [2, 3] and right [5, 3, 2]; "
        "spread it with left.broadcast_along(0, 5)",
    ),
    (
        lambda r: r(2, 3) @ r(4, 5, 3, 2),
        "matmul: leading axes must be equal, got left [2, 3] and right [4, 5, 3, 2]",
    ),
    # rows by ids
    (
        lambda r: r(4, 2).gather(IDS),
        "gather: wants a table [vocab, ...] and a selection [count, vocab], got [4, 2] and [2, 3]",
    ),
    (lambda r: r().gather(IDS), "gather: wants a table [vocab, ...] and a selection [count, vocab], got [] and [2, 3]"),
    (
        lambda r: r(3, 2).scatter(IDS),
        "scatter: wants rows [count, ...] and a selection [count, vocab], got [3, 2] and [2, 3]",
    ),
    # reductions
    (lambda r: r(2, 3).sum_along(2), "sum_along: no axis 2 in shape [2, 3] of rank 2"),
    (lambda r: r(2, 3).sum_along(-3), "sum_along: no axis -3 in shape [2, 3] of rank 2"),
    (lambda r: r().max_along(0), "max_along: no axis 0 in shape [] of rank 0"),
    (lambda r: r(2).logsumexp(1), "logsumexp: no axis 1 in shape [2] of rank 1"),
    (lambda r: r(2).log_softmax(-2), "log_softmax: no axis -2 in shape [2] of rank 1"),
    (lambda r: r(2).softmax(1), "softmax: no axis 1 in shape [2] of rank 1"),
    (lambda r: r(2).sum_along(0.5), "sum_along: an axis must be an integer, got 0.5"),
    (lambda r: r(2).mean_along("x"), "sum_along: an axis must be an integer, got 'x'"),
    (
        lambda r: r(3, 3).fold(0, 3, 1, 1, 6),
        "fold: axes 0 and 1 must be [4, 3], the windows of extent 6, got [3, 3]",
    ),
    (lambda r: r(3, 3).fold(0, 3, 1, 1, 2), "fold: a window of size 3 and dilation 1 spans 3, more than 2"),
    (lambda r: r(3, 3).fold(1, 3, 1, 1, 5), "fold: no axis 2 in shape [3, 3] of rank 2"),
    (lambda r: r(3, 3).fold(0, 0, 1, 1, 5), "fold: size must be at least 1, got 0"),
    (lambda r: r(3, 3).fold(0, 3, 1, 1, -5), "fold: extent must be at least 0, got -5"),
    # movement
    (lambda r: r(2).broadcast((2, 2)), "broadcast: the operand must have rank 0, got [2]; see broadcast_to"),
    (lambda r: r().broadcast((2, -1)), "shape: extents must not be negative, got [2, -1]"),
    (lambda r: r().broadcast(3), "shape: wants a sequence of extents, got 3; a vector of that length is [3]"),
    (lambda r: r(2).broadcast_along(2, 3), "broadcast_along: no place for a new axis 2 in [2]"),
    (lambda r: r(2).broadcast_along(-3, 3), "broadcast_along: axis must be at least -2, got -3"),
    (lambda r: r(2).broadcast_along(0, -1), "broadcast_along: extent must be at least 0, got -1"),
    (lambda r: r(2).broadcast_along(0, 1.0), "broadcast_along: extent must be an integer, got 1.0"),
    (lambda r: r(2, 3).reshape((4,)), "reshape: volumes must be equal, got 6 in [2, 3] and 4 in [4]"),
    (lambda r: r(2, 3).reshape((-1,)), "shape: extents must not be negative, got [-1]"),
    (lambda r: r(2, 3).reshape((6.0,)), "shape: extents must be integers, got (6.0,)"),
    (lambda r: r(2, 3).permute((0, 0)), "permute: order must name each axis of [2, 3] once, got [0, 0]"),
    (lambda r: r(2, 3).permute((0,)), "permute: order must name each axis of [2, 3] once, got [0]"),
    (lambda r: r(2, 3).permute((0, 2)), "permute: no axis 2 in shape [2, 3] of rank 2"),
    (lambda r: r(2, 3).narrow(1, 2, 2), "narrow: 2 to 4 is not inside axis 1 of extent 3 in [2, 3]"),
    (lambda r: r(2, 3).narrow(1, -1, 2), "narrow: start must be at least 0, got -1"),
    (lambda r: r(2, 3).narrow(1, 0, -1), "narrow: length must be at least 0, got -1"),
    (lambda r: r(2, 3).narrow(2, 0, 1), "narrow: no axis 2 in shape [2, 3] of rank 2"),
    (lambda r: r(2, 3).pad(1, 1, 3), "pad: 3 places from 1 do not fit in a full extent of 3, axis 1 of [2, 3]"),
    (lambda r: r(2, 3).pad(1, -1, 5), "pad: start must be at least 0, got -1"),
    (lambda r: r(2, 3).pad(1, 0, 5, "x"), "pad: fill must be a number, got 'x'"),
    (lambda r: r(2, 3).pad(1, 0, 5, True), "pad: fill must be a number, got True"),
    (lambda r: r(2, 3).pad(-3, 0, 5), "pad: no axis -3 in shape [2, 3] of rank 2"),
    (lambda r: r(5).unfold(0, 6), "unfold: a window of size 6 and dilation 1 spans 6, more than 5"),
    (lambda r: r(5).unfold(0, 3, 1, 3), "unfold: a window of size 3 and dilation 3 spans 7, more than 5"),
    (lambda r: r(5).unfold(0, 0), "unfold: size must be at least 1, got 0"),
    (lambda r: r(5).unfold(0, 1, 0), "unfold: step must be at least 1, got 0"),
    (lambda r: r(5).unfold(0, 1, 1, 0), "unfold: dilation must be at least 1, got 0"),
    (lambda r: r(5).unfold(1, 1), "unfold: no axis 1 in shape [5] of rank 1"),
    (lambda r: r(0).unfold(0, 1), "unfold: a window of size 1 and dilation 1 spans 1, more than 0"),
    # compositions
    (lambda r: r(2).transpose(), "transpose: wants rank 2 or more, got [2]"),
    (lambda r: r(2, 3).swap(0, 2), "swap: no axis 2 in shape [2, 3] of rank 2"),
    (lambda r: r(2, 3).squeeze(1), "squeeze: axis 1 of [2, 3] must have extent 1, got 3"),
    (lambda r: r(2, 3).squeeze(2), "squeeze: no axis 2 in shape [2, 3] of rank 2"),
    (lambda r: r(2, 3).unsqueeze(3), "unsqueeze: no place for a new axis 3 in [2, 3]"),
    (lambda r: r(2, 3).unsqueeze(-4), "unsqueeze: no place for a new axis -4 in [2, 3]"),
    (lambda r: r(2, 3).broadcast_to((3, 3)), "broadcast_to: [2, 3] does not spread to [3, 3]"),
    (lambda r: r(2, 3).broadcast_to((3,)), "broadcast_to: [2, 3] does not spread to [3]"),
    (
        lambda r: r(2, 3).minimum(r(3)),
        "maximum: shapes must be equal, got [2, 3] and [3]; spread it with right.broadcast_along(0, 2)",
    ),
    (
        lambda r: r(2, 1) * r(2, 3),
        "mul: shapes must be equal, got [2, 1] and [2, 3]; spread it with left.broadcast_to([2, 3])",
    ),
    (lambda r: r(2, 1) * r(1, 3), "mul: shapes must be equal, got [2, 1] and [1, 3]"),
    (lambda r: concat([], 0), "concat: wants at least one value"),
    (lambda r: concat([r(2, 3), r(2, 4)], 0), "concat: all axes but 0 must be equal, got [2, 3] and [2, 4]"),
    (lambda r: concat([r(2), r(2, 2)], 0), "concat: all axes but 0 must be equal, got [2] and [2, 2]"),
    (lambda r: concat([r(), r()], 0), "concat: no axis 0 in shape [] of rank 0"),
    (lambda r: stack([], 0), "stack: wants at least one value"),
    (lambda r: stack([r(2), r(3)], 0), "stack: shapes must be equal, got [2], [3]"),
    (lambda r: stack([r(2), r(2)], 2), "stack: no place for a new axis 2 in [2]"),
    (
        lambda r: einsum("ij,jk", r(2, 3), r(3, 2)),
        "einsum: 'ij,jk' must name the axes of 2 operands and, after ->, of the result",
    ),
    (
        lambda r: einsum("ij->i", r(2, 3), r(3)),
        "einsum: 'ij->i' must name the axes of 2 operands and, after ->, of the result",
    ),
    (
        lambda r: einsum("ij->ik", r(2, 3)),
        "einsum: axes of 'ij->ik' are letters, and the result's are named by an operand",
    ),
    (
        lambda r: einsum("i.->i", r(2, 3)),
        "einsum: axes of 'i.->i' are letters, and the result's are named by an operand",
    ),
    (
        lambda r: einsum(r(2, 3), r(3, 2)),
        "einsum: wants its axes first, as in 'ij,jk->ik'",
    ),
    (lambda r: einsum("ij->i", r(2)), "einsum: 'ij' names 2 axes of an operand of shape [2]"),
    (lambda r: einsum("ij,jk->ik", r(2, 3), r(4, 2)), "einsum: axis j has extents 3 and 4 in 'ij,jk->ik'"),
    (lambda r: einsum("ii->i", r(2, 2)), "einsum: 'ii' names an axis twice"),
    (lambda r: einsum("ij->ii", r(2, 2)), "einsum: 'ii' names an axis twice"),
    # indices
    (lambda r: r(2, 3)[2], "index: 2 is out of range for axis 0 of extent 2 in [2, 3]"),
    (lambda r: r(2, 3)[0, -4], "index: -4 is out of range for axis 1 of extent 3 in [2, 3]"),
    (lambda r: r(2, 3)[0, 0, 0], "index: 3 indices for shape [2, 3] of rank 2"),
    (lambda r: r(2, 3)[..., 0, ...], "index: at most one ellipsis"),
    (lambda r: r(2, 3)[::2], "index: a slice takes no step, got 2; see unfold"),
    (lambda r: r(2, 3)[::-1], "index: a slice takes no step, got -1; see unfold"),
    (lambda r: r(2, 3)[0.5:], "index: a slice's limits must be integers, got slice(0.5, None, None)"),
    (lambda r: r(2, 3)[True], "index: a bool is no index; choose with where(mask, a, b)"),
    (
        lambda r: r(2, 3)[None],
        "index: takes integers, slices and an ellipsis, got NoneType; rows by ids are table.gather(selection)",
    ),
    (
        lambda r: r(2, 3)[[0, 1]],
        "index: takes integers, slices and an ellipsis, got list; rows by ids are table.gather(selection)",
    ),
    (
        lambda r: r(2, 3)[1.0],
        "index: takes integers, slices and an ellipsis, got float; rows by ids are table.gather(selection)",
    ),
    (lambda r: r()[0], "index: 1 indices for shape [] of rank 0"),
]


@pytest.mark.parametrize(("call", "message"), SHAPES, ids=[message[:48] for _, message in SHAPES])
def test_a_shape_error_names_the_rule_and_the_shapes(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        call(ones)
    assert str(caught.value) == message
    tape = Tape()
    tape.input(shape=[1])
    text = tape.describe()
    operands: list[Any] = []

    def record(*shape: int) -> Any:
        operands.append(tape.input(shape=shape))
        return operands[-1]

    with pytest.raises(ShapeError) as caught:
        call(record)
    assert str(caught.value).partition("\n")[0] == message
    assert len(tape) == 1 + len(operands)
    assert tape.describe().startswith(text.rpartition("\n")[0])


def test_a_recorded_error_places_its_operands() -> None:
    tape = Tape()
    left, right = tape.input(shape=(2, 3)).tanh(), tape.parameter(np.zeros((4, 5), np.float32), name="w")
    with pytest.raises(ShapeError) as caught:
        left @ right
    first, one, other = str(caught.value).split("\n")
    assert first == "matmul: inner axes must be equal, got 3 in left [2, 3] and 4 in right [4, 5]"
    assert one.startswith("  left   %1 Tanh       [2, 3]   ")
    assert other.startswith("  right  %2 Parameter  [4, 5]   ")
    assert "test_errors.py:" in one
    assert "test_errors.py:" in other


ELEMENTS: list[tuple[Callable[[Any], Any], str]] = [
    (
        lambda r: r(2) + r(2, element=f64),
        "add: operands must have one element, got f32 and f64; convert one with .to(f32)",
    ),
    (
        lambda r: r(2, 2) @ r(2, 2, element=bf16),
        "matmul: operands must have one element, got f32 and bf16; convert one with .to(f32)",
    ),
    (
        lambda r: r(2, element=bf16).select(r(2), r(2)),
        "select: operands must have one element, got bf16 and f32; convert one with .to(bf16)",
    ),
    (
        lambda r: concat([r(2), r(2, element=f64)], 0),
        "add: operands must have one element, got f32 and f64; convert one with .to(f32)",
    ),
    (
        lambda r: r(2).maximum(r(2, element=f64)),
        "maximum: operands must have one element, got f32 and f64; convert one with .to(f32)",
    ),
]


@pytest.mark.parametrize(("call", "message"), ELEMENTS, ids=[message[:20] for _, message in ELEMENTS])
def test_an_element_error_names_both_elements(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ElementError) as caught:
        call(ones)
    assert str(caught.value) == message
    tape = Tape()
    operands: list[Any] = []

    def record(*shape: int, element: Any = f32) -> Any:
        operands.append(tape.input(shape=shape, element=element))
        return operands[-1]

    with pytest.raises(ElementError) as caught:
        call(record)
    assert str(caught.value).partition("\n")[0] == message
    assert len(tape) == len(operands)


def test_rows_by_ids_want_a_selection() -> None:
    table, dense = ones(3, 2), ones(2, 3)
    for call, rule in ((table.gather, "gather"), (ones(2, 2).scatter, "scatter")):
        with pytest.raises(ElementError) as caught:
            call(dense)
        assert str(caught.value) == f"{rule}: wants a selection (Tensor.selection), got a dense tensor"
    tape = Tape()
    recorded = tape.leaf(table)
    with pytest.raises(ElementError) as caught:
        recorded.gather(tape.leaf(dense))
    message = "gather: the ids must be a selection (tape.selection, or a leaf of Tensor.selection)"
    assert str(caught.value).partition("\n")[0] == message
    assert len(tape) == 2


def test_a_plain_function_wants_values() -> None:
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: choose(1.0, 2.0, 3.0), "where: at least one operand must be a value or a tensor"),
        (lambda: concat([ones(2), [1.0]], 0), "concat: wants values or tensors, got list"),
        (lambda: stack([np.zeros(2), ones(2)], 0), "stack: wants values or tensors, got ndarray"),
        (lambda: einsum("i->i", 3.0), "einsum: wants values or tensors, got float"),
    ]
    for call, message in cases:
        with pytest.raises(RecordedError) as caught:
            call()
        assert str(caught.value) == message


@pytest.mark.parametrize("number", [2**24 + 1, np.int64(2**24 + 1), [2**24 + 1], np.array([1, 2**24 + 1])], ids=repr)
def test_an_inexact_integer_is_refused_at_the_instruction(number: Any) -> None:
    message = "f32: cannot hold the integer 16777217 exactly; f32 has 24 bits"
    with pytest.raises(ElementError) as caught:
        ones(2) + number
    assert str(caught.value) == message
    tape = Tape()
    value = tape.input(shape=(2,))
    with pytest.raises(ElementError) as caught:
        value * number
    assert str(caught.value).partition("\n")[0] == f"mul: {message}"
    assert len(tape) == 1


@pytest.mark.parametrize("kind", [op.SumAlong, op.MaxAlong, op.LogSumExp, op.LogSoftmax])
def test_an_instruction_counts_its_axis_from_the_front(kind: type[op.Opcode]) -> None:
    with pytest.raises(ShapeError) as caught:
        kind(-1)
    assert str(caught.value) == f"{kind.rule}: axis must be at least 0, got -1"


def test_a_shape_is_a_sequence_of_integers() -> None:
    for extents, message in (
        (3, "shape: wants a sequence of extents, got 3; a vector of that length is [3]"),
        ("ab", "shape: wants a sequence of extents, got 'ab'"),
        ([1, -2], "shape: extents must not be negative, got [1, -2]"),
        ([1, 2.0], "shape: extents must be integers, got [1, 2.0]"),
        (None, "shape: extents must be integers, got None"),
    ):
        with pytest.raises(ShapeError) as caught:
            Shape(extents)  # type: ignore[arg-type]
        assert str(caught.value) == message


GARBAGE: list[Any] = [None, "a", 1.5, [1], {}, np.zeros(2), object()]


@pytest.mark.parametrize("wrong", GARBAGE, ids=lambda wrong: type(wrong).__name__)
def test_an_axis_that_is_no_integer_is_named_on_every_route(wrong: Any) -> None:
    tensor, value = Tensor([[1.0, 2.0]]), Tape().input([[1.0, 2.0]])
    for x in (tensor, value):
        for rule, call in (
            ("unsqueeze", lambda x=x: x.unsqueeze(wrong)),
            ("stack", lambda x=x: stack([x, x], wrong)),
            ("concat", lambda x=x: concat([x, x], wrong)),
            ("permute", lambda x=x: x.permute([0, wrong])),
            ("with_axis", lambda x=x: x.shape.with_axis(wrong, 1)),
        ):
            with pytest.raises(ShapeError, match=f"{rule}: an axis must be an integer, got "):
                call()
        with pytest.raises(ElementError, match="counted: wants an integer, got "):
            x.counted(wrong)
    assert len(value.tape) == 1


def test_what_has_no_order_is_no_shape_and_no_list() -> None:
    x = Tensor([[1.0, 2.0]])
    for shape in ({1, 2}, frozenset([2]), {1: 2, 2: 1}, "", "12", b"\x01\x02"):
        with pytest.raises(ShapeError, match="shape: wants a sequence of extents, got "):
            x.reshape(shape)  # type: ignore[arg-type]
    for order in ({0, 1}, {0: 1, 1: 0}, None, 1, np.array(1), "01"):
        with pytest.raises(ShapeError, match="permute: order must be a sequence of axes, got "):
            x.permute(order)  # type: ignore[arg-type]
    for values in ({x}, None, 3, x, np.ones(2), "xy"):
        with pytest.raises(RecordedError):
            concat(values, 0)  # type: ignore[type-var]
    assert concat((part for part in (x, x)), 0).tolist() == [[1.0, 2.0], [1.0, 2.0]]
    assert stack(iter([x, x]), -1).shape == [1, 2, 2]


def test_a_spec_that_is_no_text_is_refused() -> None:
    x = Tensor([[1.0, 2.0]])
    with pytest.raises(ShapeError, match="einsum: wants its axes first, as in 'ij,jk->ik'"):
        einsum(x, x)  # type: ignore[arg-type]


def test_an_instruction_over_numbers_alone_has_nothing_to_run_on() -> None:
    for operands in ([1.0, 2.0], (None, None)):
        with pytest.raises(RecordedError, match="add: at least one operand must be a value or a tensor"):
            op.Add().express(operands)
    for operands in (None, 3, {1, 2}, Tensor([1.0, 2.0])):
        with pytest.raises(ShapeError, match="add: wants a sequence of operands, got "):
            op.Add().express(operands)  # type: ignore[arg-type]


def test_a_shape_that_no_array_can_have_is_refused_at_its_line() -> None:
    tape = Tape()
    x = tape.input([1.0])
    for call in (
        lambda: tape.input(shape=[1] * 65),
        lambda: tape.input(shape=[0] * 65),
        lambda: tape.input(shape=[2**40, 2**40]),
        lambda: tape.input(shape=[0, 2**62]),
        lambda: x.broadcast_along(0, 2**40).broadcast_along(0, 2**40),
        lambda: x.reshape([1] * 65),
        lambda: x.pad(0, 0, 2**70),
        lambda: Tensor.filled([2**62], 1.0),
        lambda: Tensor([1.0]).pad(0, 0, 2**70),
    ):
        with pytest.raises(ShapeError, match=r"shape: at most 64 axes and 2\*\*59 elements, got "):
            call()
    assert tape.input(shape=[1] * 64).shape.rank == 64


def test_a_window_that_stands_alone_may_step_as_far_as_it_likes() -> None:
    x = Tensor([1.0, 2.0, 3.0])
    for step in (5, 2**62, 2**70):
        assert x.unfold(0, 2, step).tolist() == [[1.0, 2.0]]
        assert x.unfold(0, 1, 1, step).tolist() == [[1.0], [2.0], [3.0]]
        assert x.unfold(0, 2, step).fold(0, 2, step, 1, 3).tolist() == [1.0, 2.0, 0.0]


def test_a_fill_is_a_number_exactly_held() -> None:
    x = Tensor([1.0])
    for fill in (np.float32(2.0), np.int64(2), np.float16(2.0), 2):
        assert x.pad(0, 0, 2, fill).tolist() == [1.0, 2.0]  # type: ignore[arg-type]
    for lost in (2**53 + 1, 10**400):
        with pytest.raises(ElementError, match="pad: cannot hold the fill [0-9]+ exactly; write it as a float"):
            x.pad(0, 0, 2, lost)
    for wrong in (True, np.True_, "2", None):
        with pytest.raises(ShapeError, match="pad: fill must be a number, got "):
            x.pad(0, 0, 2, wrong)  # type: ignore[arg-type]


def test_a_step_of_a_slice_may_be_anything_but_is_refused_as_one() -> None:
    x = Tensor([1.0, 2.0])
    for step in (2, -1, 0, "a", 1.0, np.zeros(2)):
        with pytest.raises(ShapeError, match="index: a slice"):
            x[::step]
    assert x[:: np.int64(1)].tolist() == [1.0, 2.0]
