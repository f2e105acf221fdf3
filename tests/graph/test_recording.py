import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from topos import (
    ElementError,
    KinshipError,
    RecordedError,
    SealedError,
    Shape,
    ShapeError,
    Tape,
    Tensor,
    ToposError,
    Trace,
    Value,
    bf16,
    concat,
    einsum,
    f32,
    f64,
    stack,
    where,
)
from topos.testing import assert_same_bits


def message(kind: type[Exception], call: Callable[[], Any]) -> str:
    """The first line of the error, in which this file's name stands for its folder too."""
    with pytest.raises(kind) as caught:
        call()
    return re.sub(r"\S*test_recording\.py:\d+( \(\w+\))?", "HERE", str(caught.value).split("\n")[0])


def lines(tape: Tape, start: int = 0) -> list[str]:
    """The lines of the nodes from `start`, blanks squeezed."""
    return [" ".join(line.split()) for line in tape.describe().splitlines()[start:-1]]


# sources


def test_a_leaf_keeps_its_payload() -> None:
    tape = Tape()
    leaf = tape.leaf([[1, 2]], name="constant")
    assert isinstance(leaf, Value)
    assert (leaf.tape, leaf.shape, leaf.element) == (tape, [1, 2], f32)
    assert_same_bits(leaf.payload(), np.array([[1, 2]], np.float32))
    assert lines(tape) == ["0 Leaf [1, 2]"]
    assert repr(leaf).startswith("%0 Leaf [1, 2] 'constant' ")


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (2, np.float32(2)),
        (True, np.float32(1)),
        (0.1, np.float32(0.1)),
        (np.float64(0.1), np.float32(0.1)),
        (np.arange(3), np.arange(3, dtype=np.float32)),
        (np.array([True, False]), np.array([1, 0], np.float32)),
        ([[1, 2], [3, 4.5]], np.array([[1, 2], [3, 4.5]], np.float32)),
        (Tensor([1.5]), np.array([1.5], np.float32)),
        (np.zeros((0, 3)), np.zeros((0, 3), np.float32)),
        (np.array([1.5], ml_dtypes.bfloat16), np.array([1.5], np.float32)),
    ],
)
@pytest.mark.parametrize("source", ["leaf", "parameter", "input"])
def test_whatever_takes_a_payload_rounds_once_to_the_element(source: str, payload: Any, expected: Any) -> None:
    value = getattr(Tape(), source)(payload)
    assert_same_bits(value.payload(), expected)


@pytest.mark.parametrize("source", ["leaf", "parameter", "input"])
def test_a_source_of_another_element(source: str) -> None:
    tape = Tape(bf16)
    value = getattr(tape, source)([1 / 3], element=f64, name="third")
    assert value.element is f64
    assert value.payload().tolist() == [1 / 3]
    assert tape.describe(names=True).split("\n")[0].endswith("[1] f64      third")
    assert getattr(tape, source)([1 / 3]).element is bf16


@pytest.mark.parametrize("source", ["leaf", "parameter", "input"])
@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (2**24 + 1, ElementError),
        ("1", ElementError),
        (1j, ElementError),
        pytest.param([object()], ElementError, id="object"),  # its text is another in each process
        ([[1], [1, 2]], ElementError),
        (Tensor([1.0], f64), ElementError),
    ],
    ids=["integer", "text", "complex", "object", "ragged", "tensor"],
)
def test_a_refused_payload_leaves_no_node(source: str, payload: Any, kind: type[Exception]) -> None:
    tape = Tape()
    tape.leaf(1.0, name="first")
    before = tape.describe(names=True)
    with pytest.raises(kind):
        getattr(tape, source)(payload, name="second")
    assert tape.describe(names=True) == before
    tape.leaf(1.0, name="second")


def test_a_tensor_of_another_element_is_refused_by_name() -> None:
    assert message(ElementError, lambda: Tape().parameter(Tensor([1.0], f64))) == (
        "payload: wants element f32, got a tensor of f64; see tensor.convert"
    )
    assert message(ElementError, lambda: Tape().leaf(1.0, element="f32")) == (  # type: ignore[arg-type]
        "payload: wants an element such as f32, got 'f32'"
    )
    for element in ("f32", "", 0, np.zeros(2)):
        with pytest.raises(ElementError, match="payload: wants an element such as f32, got "):
            Tape().input(shape=[2], element=element)  # type: ignore[arg-type]
    assert message(ElementError, lambda: Tape(np.float32)).startswith("tape: wants an element such as f32, got ")  # type: ignore[arg-type]


def test_a_value_is_no_payload() -> None:
    tape = Tape()
    value = tape.leaf(1.0)
    assert message(RecordedError, lambda: tape.leaf(value)) == (
        "payload: wants numbers, got a Value; read one with run.of(symbol)"
    )
    assert len(tape) == 1


def test_an_input_by_payload_or_by_shape() -> None:
    tape = Tape()
    zeros = tape.input(shape=[2, 0, 3])
    assert_same_bits(zeros.payload(), np.zeros((2, 0, 3), np.float32))
    assert_same_bits(tape.input(shape=()).payload(), np.float32(0))
    assert_same_bits(tape.input(shape=[2], element=bf16).payload(), np.zeros(2, ml_dtypes.bfloat16))
    assert_same_bits(tape.input([1.0, 2.0], shape=[2]).payload(), np.array([1, 2], np.float32))
    assert len(tape) == 4
    assert message(ShapeError, tape.input) == "input: wants a default payload, or the shape of one that is zero"
    assert message(ShapeError, lambda: tape.input([1.0], shape=[2])) == (
        "input: shape [2] was asked for, the payload has [1]"
    )
    assert message(ShapeError, lambda: tape.input(shape=[-1])) == "shape: extents must not be negative, got [-1]"
    assert message(ShapeError, lambda: tape.input(shape=3)) == (  # type: ignore[arg-type]
        "shape: wants a sequence of extents, got 3; a vector of that length is [3]"
    )
    assert len(tape) == 4


def test_a_selection_is_an_input_of_ids() -> None:
    tape = Tape()
    ids = tape.selection([2, 3], 7, absent=-1, name="ids")
    assert (ids.shape, ids.element) == ([6, 7], None)
    assert lines(tape) == ["0 Input [6, 7]"]
    assert tape.describe().endswith("tape: 1 node, 0 parameters, 1 input")
    assert tape.selection([], 7).shape == [1, 7]
    assert tape.selection([0], 7).shape == [0, 7]
    assert message(ToposError, lambda: ids.payload()) == (
        "payload: %0 Input [6, 7] 'ids' HERE is a selection and has no default; its ids are fed"
    )
    for shape, vocab, absent in (([2], -1, None), ([2], 1.5, None), ([-2], 3, None), ([2], 3, 0.5)):
        message(ShapeError, lambda s=shape, v=vocab, a=absent: tape.selection(s, v, absent=a))  # type: ignore[misc]
    assert len(tape) == 3


def test_a_selection_payload_is_a_leaf_and_nothing_else() -> None:
    tape = Tape()
    picked = Tensor.selection([2, 0], 3)
    leaf = tape.leaf(picked)
    assert (leaf.shape, leaf.element) == ([2, 3], None)
    assert tape.parameter(np.zeros((3, 4))).gather(leaf).shape == [2, 4]
    for source in (tape.parameter, tape.input):
        assert message(ElementError, lambda s=source: s(picked)).endswith(  # type: ignore[misc]
            ": a selection is fed to tape.selection(shape, vocab), or is a leaf"
        )
    assert len(tape) == 3


def test_a_selection_tells_the_id_that_selects_nothing() -> None:
    tape = Tape()
    values = [tape.selection([2], 3), tape.selection([2], 3, absent=9), tape.input([1.0]), tape.input([1.0]) + 1]
    values += [tape.leaf(Tensor.selection(ids, 3, absent=-1)) for ids in ([0, 1], [0, -1])]
    assert [value.absent for value in values] == [None, 9, None, None, None, -1]
    tape.into_network()
    with pytest.raises(SealedError):
        values[0].absent  # noqa: B018 - read for its error


def test_only_a_selection_selects() -> None:
    tape = Tape()
    table, dense = tape.parameter(np.zeros((3, 4))), tape.input(shape=[2, 3])
    text = "gather: the ids must be a selection (tape.selection, or a leaf of Tensor.selection)"
    assert message(ElementError, lambda: table.gather(dense)) == text
    assert message(ElementError, lambda: table.gather(tape.selection([2], 3).tanh())) == text
    tape.selection([2], 3) @ table  # in a product it is its dense one-hot


# names


def test_names_find_nodes_and_are_told_once() -> None:
    tape = Tape()
    x = tape.parameter([1.0], name="x")
    y = x.tanh().named("y")
    assert message(KinshipError, lambda: tape.leaf(1.0, name="y")) == "name: 'y' is taken by %1 Tanh [1] 'y' HERE"
    assert message(KinshipError, lambda: y.named("x")).startswith("name: 'x' is taken by %0 Parameter [1] 'x' ")
    for bad in ("", 3, b"x"):
        assert message(KinshipError, lambda n=bad: tape.leaf(1.0, name=n)) == (  # type: ignore[misc]
            f"name: must be a non-empty string, got {bad!r}"
        )
        message(KinshipError, lambda n=bad: y.named(n))  # type: ignore[misc]
    assert len(tape) == 2
    network = tape.into_network()
    assert network.symbol("x").index == 0
    assert network.symbol("y").index == 1
    assert message(KinshipError, lambda: network.symbol("z")) == "symbol: no node is named 'z'; named are: x, y"


def test_a_second_name_replaces_the_first() -> None:
    tape = Tape()
    x = tape.parameter(1.0, name="old")
    assert x.named("new") is x
    tape.leaf(1.0, name="old")
    network = tape.into_network()
    assert [network.symbol(name).index for name in ("new", "old")] == [0, 1]


def test_scopes_nest_and_close_after_an_error() -> None:
    tape = Tape()
    with tape.scope("h0"):
        tape.parameter(1.0, name="w")
        with pytest.raises(ZeroDivisionError), tape.scope("qkv"):
            tape.parameter(1.0, name="w").tanh().named("out")
            raise ZeroDivisionError
        tape.leaf(1.0).named("b")
    tape.input(1.0, name="w")
    network = tape.into_network()
    names = {"h0.w": 0, "h0.qkv.w": 1, "h0.qkv.out": 2, "h0.b": 3, "w": 4}
    assert {name: network.symbol(name).index for name in names} == names


@pytest.mark.parametrize("name", ["", 3, None])
def test_a_scope_has_a_name(name: Any) -> None:
    def enter() -> None:
        with Tape().scope(name):
            pass

    assert message(KinshipError, enter) == f"scope: must be a non-empty string, got {name!r}"


# what may stand beside a value


def test_a_number_is_a_leaf_and_a_recorded_broadcast() -> None:
    tape = Tape()
    x, scalar = tape.input(shape=[2, 3]), tape.input(1.0)
    x * 0.1
    3 - scalar
    np.float64(2.5) / x
    where(x, 1, x)
    assert lines(tape, 2) == [
        "2 Leaf []",
        "3 Broadcast 2 shape=[2, 3] [2, 3]",
        "4 Mul 0, 3 [2, 3]",
        "5 Leaf []",
        "6 Sub 5, 1 []",
        "7 Leaf []",
        "8 Broadcast 7 shape=[2, 3] [2, 3]",
        "9 Div 8, 0 [2, 3]",
        "10 Leaf []",
        "11 Broadcast 10 shape=[2, 3] [2, 3]",
        "12 Select 0, 11, 0 [2, 3]",
    ]
    assert_same_bits(tape.resolve(tape.nodes()[2].symbol).payload(), np.float32(0.1))


def test_a_number_takes_the_element_of_what_it_stands_beside() -> None:
    tape = Tape()
    wide = tape.input([1.0], element=f64)
    third = (wide * (1 / 3)).index
    assert tape.resolve(tape.nodes()[third - 2].symbol).payload().tolist() == 1 / 3
    assert message(ElementError, lambda: tape.input([1.0]) + (2**24 + 1)) == (
        "add: f32: cannot hold the integer 16777217 exactly; f32 has 24 bits"
    )
    assert (wide + (2**24 + 1)).element is f64


@pytest.mark.parametrize("make", [np.array, Tensor, list], ids=["array", "tensor", "list"])
def test_an_array_is_one_leaf_of_its_own_shape_on_either_side(make: Callable[[Any], Any]) -> None:
    tape = Tape()
    x = tape.input(shape=[3])
    array = make([1.0, 2.0, 3.0])
    before = len(tape)
    product = array * x
    assert isinstance(product, Value)
    assert lines(tape, before) == ["1 Leaf [3]", "2 Mul 1, 0 [3]"]
    x - array
    array - x
    assert lines(tape, 3) == ["3 Leaf [3]", "4 Sub 0, 3 [3]", "5 Leaf [3]", "6 Sub 5, 0 [3]"]
    assert message(ShapeError, lambda: make([1.0, 2.0]) + x) == "add: shapes must be equal, got [2] and [3]"
    assert len(tape) == 7


def test_an_array_of_rank_0_is_no_number() -> None:
    tape = Tape()
    x = tape.input(shape=[3])
    assert message(ShapeError, lambda: x + np.array(1.0)) == (
        "add: shapes must be equal, got [3] and []; spread it with right.broadcast([3])"
    )
    assert len(tape) == 1


def test_a_product_with_an_array() -> None:
    tape = Tape()
    x = tape.input(shape=[2, 3])
    assert (np.ones((4, 2)) @ x).shape == [4, 3]
    assert (x @ np.ones((3, 5))).shape == [2, 5]
    assert lines(tape, 1) == ["1 Leaf [4, 2]", "2 MatMul 1, 0 [4, 3]", "3 Leaf [3, 5]", "4 MatMul 0, 3 [2, 5]"]
    assert message(ShapeError, lambda: x @ 2.0).startswith("matmul: operands must have rank 2 or more")
    assert len(tape) == 5


def test_a_selection_tensor_beside_a_table() -> None:
    tape = Tape()
    table = tape.parameter(np.zeros((4, 2)))
    assert table.gather(Tensor.selection([3, 3], 4)).shape == [2, 2]
    assert lines(tape, 1) == ["1 Leaf [2, 4]", "2 Gather 0, 1 [2, 2]"]


def test_a_symbol_is_its_node() -> None:
    tape = Tape()
    x = tape.input(shape=[2])
    symbol = x.symbol()
    assert lines(tape, len(tape) - 1) == ["0 Input [2]"]
    (x + symbol, x.maximum(symbol), where(symbol, x, symbol))
    assert lines(tape, 1) == ["1 Add 0, 0 [2]", "2 Maximum 0, 0 [2]", "3 Select 0, 0, 0 [2]"]


def test_a_value_of_another_tape_is_refused() -> None:
    x, other = Tape().input(shape=[2]), Tape()
    y = other.input(shape=[2])
    assert message(KinshipError, lambda: y + x) == "add: a value of another tape stands beside this one's"
    assert message(KinshipError, lambda: y + x.symbol()) == "add: symbol %0 belongs to another spec than this one"
    assert message(KinshipError, lambda: where(y, 1.0, x)).startswith("select: a value of another tape")
    for several in (lambda: concat([y, x], 0), lambda: stack([y, x], 0), lambda: einsum("a,a->a", y, x)):
        message(KinshipError, several)
    assert len(other) == 1


def test_squares_multiply_and_other_powers_do_not() -> None:
    tape = Tape()
    x = tape.input(shape=[])
    (x**2, x**2.0, x**3, 2.0**x, x.powf(2))
    assert [node.opcode.name for node in tape.nodes() if not node.is_source] == ["Mul", "Mul", "Powf", "Powf", "Powf"]


def test_to_its_own_element_is_itself() -> None:
    tape = Tape()
    x = tape.input(shape=[])
    assert x.to(f32) is x
    assert (x.to(bf16).element, len(tape)) == (bf16, 2)


# questions that only numbers answer


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (
            bool,
            "bool: a value has no one truth; choose with where(mask, a, b) and .step(threshold), or read the number: "
            "float(run.of(symbol))",
        ),
        (float, "float: a recorded value has no number yet; run an entry and read run.of(symbol)"),
        (iter, "iteration: a value is not iterated; take parts with x[i], or read the numbers: run.of(symbol).numpy()"),
        (np.asarray, "array: a recorded value has no numbers yet; run an entry and read run.of(symbol)"),
        (
            lambda x: np.array([x, x]),
            "array: a recorded value has no numbers yet; run an entry and read run.of(symbol)",
        ),
        *(
            (
                compare,
                "comparison: values are not ordered; x.step(threshold) is 1 where x >= threshold, and where(mask, a, "
                "b) chooses; or compare the numbers: float(run.of(symbol))",
            )
            for compare in (lambda x: x < 1, lambda x: x <= x, lambda x: x < 1, lambda x: x >= 0.5)
        ),
    ],
)
@pytest.mark.parametrize("shape", [[], [3]], ids=str)
def test_a_value_answers_no_question_about_numbers(ask: Callable[[Any], Any], text: str, shape: list[int]) -> None:
    tape = Tape()
    x = tape.input(shape=shape)
    assert message(RecordedError, lambda: ask(x)) == text
    assert len(tape) == 1


def test_there_is_no_floor_division_and_no_remainder() -> None:
    x = Tape().input(shape=[3])
    for operator in (lambda: x // 2, lambda: x % 2, lambda: 2 // x, lambda: int(x), lambda: x & x):  # type: ignore[operator]
        with pytest.raises(TypeError):
            operator()


def test_len_is_the_first_extent() -> None:
    tape = Tape()
    assert len(tape.input(shape=[3, 2])) == 3
    assert message(RecordedError, lambda: len(tape.input(shape=[]))) == "len: a value of rank 0 has no length"


def test_equality_is_identity_of_the_node() -> None:
    tape = Tape()
    x, y = tape.input(shape=[]), tape.input(shape=[])
    assert x == tape.resolve(x.symbol())
    assert x != y
    assert x != 0
    assert x != Tape().input(shape=[])
    assert len({x, y, tape.resolve(x.symbol())}) == 2
    assert y in [x, y]
    assert len(tape) == 2


def test_numpy_functions_do_not_take_values_apart() -> None:
    tape = Tape()
    x = tape.input(shape=[3])
    for call in (lambda: np.add(np.ones(3), x), lambda: np.ones(3).dot(x)):
        with pytest.raises((TypeError, RecordedError)):
            call()
    assert len(tape) == 1


# reading the tape


def test_nodes_are_the_printable_rows() -> None:
    tape = Tape()
    x = tape.input(shape=[2, 3], name="x")
    y = x.sum_along(1)
    nodes = tape.nodes()
    assert len(nodes) == 2
    assert [node.is_source for node in nodes] == [True, False]
    node = nodes[-1]
    assert (node.symbol, node.operands, node.shape, node.element) == (y.symbol(), (x.symbol(),), Shape([2]), f32)
    assert (node.opcode.name, node.opcode.arity, node.opcode.facts()) == ("SumAlong", 1, (("axis", 1),))
    assert [n.symbol.index for n in nodes[0:2]] == [0, 1]
    with pytest.raises(IndexError):
        nodes[2]


def test_a_trace_is_no_value_but_records() -> None:
    tape = Tape()
    trace = Trace(tape, tape.input(shape=[2]).index)
    assert type(trace + trace) is Trace
    assert type(tape.resolve(tape.nodes()[1].symbol) + trace) is Value
    assert lines(tape, 1) == ["1 Add 0, 0 [2]", "2 Add 1, 0 [2]"]


def test_repr_of_a_tape() -> None:
    tape = Tape(f64)
    tape.leaf(1.0)
    assert repr(tape) == "Tape(1 node, f64)"
    tape.into_network()
    assert repr(tape) == "Tape(sealed)"
