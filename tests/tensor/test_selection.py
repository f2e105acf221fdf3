"""Selections: a one-hot that is never materialised, and means its dense self to every instruction but two."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topos import Element, FeedError, ShapeError, Tape, Tensor, bf16, f32, f64, op
from topos.op import Opcode
from topos.testing import assert_same_bits
from topos.testing.instructions import every_sample
from topos.testing.samples import Sample
from topos.testing.strategies import selections

IDS = np.array([2, 0, -1, 1, 2])
ONE_HOT = [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
each_element = pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)


def picked() -> Tensor:
    return Tensor.selection(IDS, 3, absent=-1)


def dense(selection: Tensor, element: Element) -> Tensor:
    """Its one-hot, made without the code under test."""
    ids, (count, vocab) = selection.ids, selection.shape
    assert ids is not None
    array = np.zeros((count, vocab))
    for row, chosen in enumerate(ids):
        if chosen >= 0:
            array[row, chosen] = 1.0
    return Tensor(array, element)


def test_a_selection_is_its_one_hot() -> None:
    selection = picked()
    assert selection.shape == (5, 3)
    assert selection.element is None
    assert selection.tolist() == ONE_HOT
    assert selection.numpy().dtype == np.float32
    assert not selection.numpy().flags.writeable
    assert np.asarray(selection, np.float64).tolist() == ONE_HOT
    assert np.from_dlpack(selection).tolist() == ONE_HOT
    assert repr(selection) == "Tensor.selection([ 2,  0, -1,  1,  2], 3)"
    assert len(selection) == 5
    for element in (f32, f64, bf16):
        assert_same_bits(selection.convert(element), dense(selection, element))


def test_ids_of_any_shape_and_integer_dtype() -> None:
    for dtype in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">i4"):
        selection = Tensor.selection(np.array([[2, 0], [1, 1]], dtype), 3)
        assert selection.shape == (4, 3)
        assert np.argmax(selection.numpy(), 1).tolist() == [2, 0, 1, 1]
    assert Tensor.selection(1, 2).shape == (1, 2)
    assert Tensor.selection([], 3).shape == (0, 3)
    assert Tensor.selection([[], []], 3).shape == (0, 3)
    assert Tensor.selection([[0, 1]], 2).shape == (2, 2)
    assert Tensor.selection(np.array([3, 1])[::-1], 4).tolist() == [[0, 1, 0, 0], [0, 0, 0, 1]]
    assert Tensor.selection(np.broadcast_to(np.array(1), (3,)), 2).tolist() == [[0, 1]] * 3


def test_the_ids_are_copied() -> None:
    ids = np.array([0, 1])
    selection = Tensor.selection(ids, 2)
    ids[0] = 1
    assert selection.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_an_absent_id_is_one_that_the_caller_names() -> None:
    assert Tensor.selection([0, -100], 2, absent=-100).tolist() == [[1.0, 0.0], [0.0, 0.0]]
    assert Tensor.selection([0, 1], 2, absent=1).tolist() == [[1.0, 0.0], [0.0, 0.0]]
    assert Tensor.selection([255, 0], 2, absent=255).tolist() == [[0.0, 0.0], [1.0, 0.0]]
    assert Tensor.selection(np.array([255, 0], np.uint8), 2, absent=255).tolist() == [[0.0, 0.0], [1.0, 0.0]]
    assert Tensor.selection([-1, -1], 0, absent=-1).shape == (2, 0)
    with pytest.raises(FeedError) as caught:
        Tensor.selection([0, -1], 2)
    assert str(caught.value) == "selection: id -1 at [1] is not one of the vocab's 0 .. 1"


def test_ids_that_are_no_integers_are_refused() -> None:
    for ids in ([0.0], np.array([1.0]), ["a"], None, [[0], [0, 1]], 1.5, Tensor([0.0])):
        with pytest.raises((FeedError, TypeError)):
            Tensor.selection(ids, 2)
    for vocab in (-1, 1.5, "2", None):
        with pytest.raises((FeedError, ValueError, TypeError)):
            Tensor.selection([0], vocab)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))], ids=["copy", "deep", "pickle"]
)
def test_copies(copied: Any) -> None:
    again = copied(picked())
    assert again.ids.tolist() == IDS.tolist()
    assert again.shape == (5, 3)
    assert again.element is None
    assert_same_bits(again, picked())


# Every instruction, with a selection wherever an operand may be a matrix
def over_matrices() -> list[Opcode]:
    """An instruction of each kind over operands of shape [5, 3], or a square of them for a product."""
    fixed = {
        op.Reshape: op.Reshape((3, 5)),
        op.Permute: op.Permute((1, 0)),
        op.Narrow: op.Narrow(0, 1, 3),
        op.Pad: op.Pad(1, 1, 5, -0.0),
        op.Unfold: op.Unfold(0, 2, 2, 1),
        op.Fold: op.Fold(0, 3, 1, 1, 7),
        op.BroadcastAlong: op.BroadcastAlong(1, 2),
    }
    opcodes: dict[type[Opcode], Opcode] = {}
    for sample in every_sample():
        kind = type(sample.opcode)
        if kind not in (op.Gather, op.Scatter, op.Broadcast):
            opcodes[kind] = fixed.get(kind, sample.opcode)
    return [
        *opcodes.values(),
        op.SumAlong(0),
        op.MaxAlong(0),
        op.LogSoftmax(0),
        op.LogSumExp(0),
        op.Cast(f64),
        op.Cast(bf16),
    ]


OVER_MATRICES = over_matrices()


def operands_of(opcode: Opcode, places: int, element: Element) -> tuple[list[Tensor], list[Tensor]]:
    """Operands with a selection where the bit of `places` is set, and the same with its one-hot."""
    random = np.random.default_rng(3)
    mixed, plain = [], []
    for place in range(opcode.arity):
        selection = Tensor.selection(random.integers(-1, 3, 5), 3, absent=-1)
        number = Tensor(random.standard_normal((5, 3)), element)
        transposed = isinstance(opcode, op.MatMul) and place == 1
        if places >> place & 1:
            if transposed:
                selection = Tensor.selection([1, 4, 0], 5)
            mixed.append(selection)
            plain.append(dense(selection, element))
        else:
            mixed.append(number.transpose() if transposed else number)
            plain.append(mixed[-1])
    return mixed, plain


def cases() -> list[Any]:
    return [
        pytest.param(opcode, places, id=f"{opcode}-{places:b}")
        for opcode in OVER_MATRICES
        for places in range(1, 1 << opcode.arity)
    ]


@each_element
@pytest.mark.parametrize(("opcode", "places"), cases())
def test_an_instruction_over_a_selection_is_that_over_its_one_hot(
    opcode: Opcode, places: int, element: Element
) -> None:
    mixed, plain = operands_of(opcode, places, element)
    everything = all(tensor.element is None for tensor in mixed)
    if everything and element is not f32:
        mixed = [tensor.among(element) for tensor in mixed]
    result, expected = opcode.express(mixed), opcode.express(plain)
    assert result.element is expected.element
    assert_same_bits(result, expected)


@each_element
@pytest.mark.parametrize(("opcode", "places"), cases())
def test_recorded_too_and_its_gradients(opcode: Opcode, places: int, element: Element) -> None:
    mixed, plain = operands_of(opcode, places, element)
    found, expected = [run_of(opcode, tensors, element) for tensors in (mixed, plain)]
    assert_same_bits(found, expected)


def run_of(opcode: Opcode, tensors: list[Tensor], element: Element) -> list[Tensor]:
    """The result and the gradients of every operand; selections are fed."""
    tape = Tape(element)
    feeds = {}
    operands = []
    for tensor in tensors:
        if tensor.ids is None:
            operands.append(tape.leaf(tensor))
        else:
            operands.append(tape.selection((5 if tensor.shape[0] == 5 else 3,), tensor.shape[1], absent=-1))
            feeds[operands[-1].symbol()] = tensor.ids
    result = opcode.express(operands)
    weights = Tensor(np.cos(np.arange(1.0, 1.0 + result.shape.volume)).reshape(result.shape), f64)
    adjoints = tape.vjp(result, weights.convert(result.element or element), operands).detach()
    network = tape.into_network()
    run = network.forward(network.parameters(), feeds)
    target = adjoints.target
    assert run.of(target).element is network.node(target).element
    return [run.of(target), *(run.of(gradient) for _, gradient in adjoints)]


def test_gather_and_scatter_use_the_ids() -> None:
    table = Tensor([[-0.0, 1.0], [float("nan"), 2.0], [float("inf"), 3.0]])
    assert_same_bits(
        table.gather(picked()), [[np.inf, 3.0], [-0.0, 1.0], [0.0, 0.0], [np.nan, 2.0], [np.inf, 3.0]] @ f32_array
    )
    rows = Tensor([[1.0], [2.0], [4.0], [8.0], [16.0]])
    assert rows.scatter(picked()).tolist() == [[2.0], [8.0], [17.0]]
    assert rows.scatter(Tensor.selection([0] * 5, 2)).tolist() == [[31.0], [0.0]]
    assert Tensor.filled((5, 0), 1.0).scatter(picked()).shape == (3, 0)
    assert Tensor([1.0, 2.0, 3.0]).gather(picked()).tolist() == [3.0, 1.0, 0.0, 2.0, 3.0]
    assert Tensor.filled((0, 2), 1.0).gather(Tensor.selection([-1], 0, absent=-1)).tolist() == [[0.0, 0.0]]


class AsArray:
    """`list @ f32_array` is an f32 array, so that expected values read as they print."""

    def __rmatmul__(self, numbers: Any) -> np.ndarray:
        return np.array(numbers, np.float32)


f32_array = AsArray()


@given(selection=selections(), data=st.data())
def test_scatter_is_the_adjoint_of_gather(selection: Tensor, data: st.DataObject) -> None:
    count, vocab = selection.shape
    whole = st.integers(-8, 8)
    table = Tensor(np.array(data.draw(st.lists(whole, min_size=2 * vocab, max_size=2 * vocab))).reshape(vocab, 2), f32)
    rows = Tensor(np.array(data.draw(st.lists(whole, min_size=2 * count, max_size=2 * count))).reshape(count, 2), f32)
    assert float((table.gather(selection) * rows).sum()) == float((table * rows.scatter(selection)).sum())


@given(selection=selections(), seed=st.integers(0, 9))
def test_select_by_a_selection_never_mixes_the_branch_not_taken(selection: Tensor, seed: int) -> None:
    random = np.random.default_rng(seed)
    numbers = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0], np.float32)
    chosen, other = (Tensor(random.choice(numbers, selection.shape)) for _ in range(2))
    expected = np.where(dense(selection, f32).numpy() != 0, chosen.numpy(), other.numpy())
    assert_same_bits(selection.select(chosen, other), expected)


# Beside other elements than the tape's
@pytest.mark.parametrize("common", [f32, f64, bf16], ids=str)
@each_element
def test_a_selection_differentiates_beside_every_element(common: Element, element: Element) -> None:
    tape = Tape(common)
    ids = tape.selection((2,), 3)
    table = tape.parameter(np.arange(6.0).reshape(3, 2), element=element)
    square = tape.parameter([[1.5, 0.5, 2.0], [0.25, 1.0, 3.0]], element=element)
    products = (ids @ table).sum() + (table.transpose() @ ids.transpose().to(element)).sum()
    powers = (square.powf(ids) + ids.powf(square)).sum()
    others = (ids * square + ids / square + square.maximum(ids) + ids.select(square, 1.0)).sum()
    alone = (ids.exp() + ids.log1p() + ids.erf() + ids * ids - ids.powf(ids)).sum() + ids.max_along(1).sum()
    target = (products + powers + others).to(common) + alone.to(common)
    adjoints = tape.differentiate(target, [table, square, ids]).detach()
    network = tape.into_network()
    run = network.forward(network.parameters(), {ids_symbol(network): [2, 0]})
    gradients = run.backward(adjoints.target)
    for symbol, gradient in adjoints:
        assert_same_bits(gradients.of(symbol), run.of(gradient))
    assert run.of(adjoints.target).element is common
    for (_, gradient), wanted in zip(adjoints, (element, element), strict=False):
        assert run.of(gradient).element is wanted


def ids_symbol(network: Any) -> Any:
    return network.nodes()[0].symbol


def test_what_selections_alone_give_is_of_the_tapes_element() -> None:
    for common in (f32, f64, bf16):
        tape = Tape(common)
        constant = tape.leaf(picked())
        values = [
            constant.exp(),
            constant + constant,
            constant.zero_like(),
            constant.permute((1, 0)),
            constant @ constant.transpose(),
        ]
        assert all(value.element is common for value in values)
        symbols = [value.symbol() for value in values]
        node = constant.symbol()
        network = tape.into_network()
        run = network.forward(network.parameters())
        for tensor in (run.of(node), network.payload(node)):
            assert tensor.exp().element is common
            assert tensor.zero_like().element is common
            assert_same_bits(tensor.exp(), run.of(symbols[0]))
        assert all(run.of(symbol).element is common for symbol in symbols)


@pytest.mark.parametrize("sample", [s for s in every_sample() if isinstance(s.opcode, op.Gather | op.Scatter)], ids=str)
def test_rows_with_every_bit_pattern_are_copied(sample: Sample) -> None:
    first, selection = sample.payloads(f32)
    if isinstance(sample.opcode, op.Scatter):
        return
    random = np.random.default_rng(1)
    bits = random.integers(0, 2**32, first.shape, np.uint32).view(np.float32)
    table = Tensor.of(bits, f32)
    gathered = table.gather(selection).numpy()
    assert selection.ids is not None
    for row, chosen in enumerate(selection.ids):
        assert_same_bits(gathered[row], bits[chosen] if chosen >= 0 else np.zeros_like(bits[0]))


@pytest.mark.parametrize("wrong", [None, "3", 2.5, [3], {}, np.zeros(2)])
def test_a_vocab_and_an_absent_id_are_integers(wrong: Any) -> None:
    with pytest.raises(ShapeError, match="selection: vocab must be an integer, got "):
        Tensor.selection([0], wrong)
    if wrong is not None:
        with pytest.raises(ShapeError, match="selection: absent must be an integer, got "):
            Tensor.selection([0], 3, absent=wrong)


def test_the_ids_of_a_selection_are_not_written_to() -> None:
    given = np.array([0, 1])
    selection = Tensor.selection(given, 3)
    with pytest.raises(ValueError, match="read-only"):
        selection.ids[0] = 2  # type: ignore[index]
    given[0] = 2
    assert selection.numpy().tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


def test_a_selection_tells_whether_an_id_of_it_selects_nothing() -> None:
    assert Tensor.selection([0, 7], 3, absent=7).absent == -1
    assert Tensor.selection([0, 1], 3, absent=7).absent is None
    assert Tensor([0.0, -1.0]).absent is None
