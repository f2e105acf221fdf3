"""What holds for every instruction, over the table of instructions."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from topos import Element, Entry, Recordable, Shape, Tape, Tensor, Value, bf16, f32, f64, op
from topos.op import Opcode
from topos.testing import assert_same_bits, check_gradient
from topos.testing.instructions import INSTRUCTIONS, every_sample
from topos.testing.samples import Sample

SAMPLES = every_sample()
each_sample = pytest.mark.parametrize("sample", SAMPLES, ids=str)
each_element = pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)


def concrete(kind: type[Opcode]) -> set[type[Opcode]]:
    """The instructions below a kind: the classes of topos.op that no other refines."""
    below = [sub for sub in kind.__subclasses__() if sub.__module__.startswith("topos.op")]
    return {kind} if not below else set().union(*(concrete(sub) for sub in below))


def result_element(sample: Sample, element: Element) -> Element:
    return sample.opcode.element if isinstance(sample.opcode, op.Cast) else element


def test_the_table_holds_every_instruction() -> None:
    assert set(INSTRUCTIONS) == concrete(Opcode)
    assert {type(sample.opcode) for sample in SAMPLES} == {kind for kind in INSTRUCTIONS if not kind.is_source}
    for kind, row in INSTRUCTIONS.items():
        assert (row.made is None) == kind.is_source
        assert all(type(sample.opcode) is kind for sample in row.samples)


def test_names_and_rules_are_spelled_alike() -> None:
    for kind in INSTRUCTIONS:
        assert kind.name == kind.__name__
        if not kind.is_source and kind not in (op.Add, op.Sub, op.Mul, op.Div, op.Neg, op.Cast):
            assert callable(getattr(Tensor, kind.rule))


# shapes, elements and values
@each_element
@each_sample
def test_the_inferred_shape_and_element_are_the_computed_ones(sample: Sample, element: Element) -> None:
    tensors = sample.payloads(element)
    result = sample.opcode.express(tensors)
    assert result.shape == sample.opcode.result_shape([tensor.shape for tensor in tensors])
    assert result.numpy().shape == tuple(result.shape)
    assert result.element is result_element(sample, element)
    assert result.numpy().dtype == result_element(sample, element).dtype
    assert not result.numpy().flags.writeable
    tape = Tape(element)
    value = sample.opcode.express([tape.leaf(tensor) for tensor in tensors])
    assert (value.shape, value.element) == (result.shape, result.element)


@each_element
@each_sample
def test_recorded_is_eager_in_bits(sample: Sample, element: Element) -> None:
    tensors = sample.payloads(element)
    tape = Tape(element)
    value = sample.opcode.express([tape.leaf(tensor) for tensor in tensors]).symbol()
    network = tape.into_network()
    assert_same_bits(network.forward(network.parameters()).of(value), sample.opcode.express(tensors))


@each_sample
def test_a_view_gives_the_bits_of_its_dense_copy(sample: Sample) -> None:
    tensors = sample.payloads(f32)
    views = [tensor if tensor.ids is not None else strided(tensor) for tensor in tensors]
    assert_same_bits(sample.opcode.express(views), sample.opcode.express(tensors))


def strided(tensor: Tensor) -> Tensor:
    """The same numbers in column-major order, every axis reversed in memory and every second place unused."""
    array = tensor.numpy()
    held = np.full([2 * extent for extent in array.shape[::-1]], np.nan, array.dtype).T
    view = held[(..., *[slice(None, None, -2)] * array.ndim)]
    view[...] = array
    return Tensor.of(view, f32)


@each_sample
def test_constants_have_the_bits_of_dense_ones(sample: Sample) -> None:
    filled = [
        tensor if tensor.ids is not None else Tensor.filled(tensor.shape, 0.75 + place, f32)
        for place, tensor in enumerate(sample.payloads(f32))
    ]
    dense = [tensor if tensor.ids is not None else Tensor(np.array(tensor.numpy()), f32) for tensor in filled]
    assert all(t.as_constant() is not None for t in filled if t.ids is None and t.shape.volume)
    assert_same_bits(sample.opcode.express(filled), sample.opcode.express(dense))


# derivatives
def contracted(sample: Sample, operands: Any) -> Any:
    """A rank-0 value in which every finite number of the result has its own weight."""
    result = sample.opcode.express(operands)
    finite = np.isfinite(sample.opcode.express(sample.payloads()).numpy().astype(np.float64))
    return (result.zero_like() + finite).select(result * weights(result), result.zero_like()).sum()


def weights(value: Any) -> Any:
    numbers = np.cos(np.arange(1.0, 1.0 + value.shape.volume)).reshape(value.shape)
    return Tensor(numbers, f64).convert(value.element)


SMOOTH = [sample for sample in SAMPLES if not isinstance(sample.opcode, op.Cast | op.Stop)]


@pytest.mark.parametrize("sample", SMOOTH, ids=str)
def test_the_derivative_is_the_central_difference(sample: Sample) -> None:
    check_gradient(lambda *operands: contracted(sample, operands), *sample.payloads(), entries=40)


@each_element
@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_the_recorded_gradient_is_the_engines_in_bits(sample: Sample, element: Element) -> None:
    tape = Tape(element)
    operands = [
        tape.leaf(tensor) if tensor.ids is not None else tape.parameter(tensor) for tensor in sample.payloads(element)
    ]
    result = sample.opcode.express(operands)
    adjoints = tape.differentiate((result * weights(result)).sum(), operands).detach()
    network = tape.into_network()
    run = network.forward(network.parameters())
    gradients = run.backward(adjoints.target)
    for symbol, gradient in adjoints:
        assert_same_bits(gradients.of(symbol), run.of(gradient))
        assert run.of(gradient).shape == network.node(symbol).shape


@each_element
@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_the_rule_answers_one_cotangent_per_operand_of_its_shape_and_element(sample: Sample, element: Element) -> None:
    tensors = sample.payloads(element)
    output = sample.opcode.express(tensors)
    answers = sample.opcode.vjp(tensors, output, weights(output))
    assert len(answers) == sample.opcode.arity
    for answer, tensor in zip(answers, tensors, strict=True):
        if answer is not None:
            assert answer.shape == tensor.shape
            assert answer.element is tensor.element


THRICE = [sample for sample in SMOOTH if max((operand.shape.volume for operand in sample.operands), default=0) < 40]


@pytest.mark.parametrize("sample", THRICE, ids=str)
def test_third_derivatives_are_central_differences_of_second_ones(sample: Sample) -> None:
    def twice(*operands: Value) -> Value:
        target = contracted(sample, operands)
        dense = [operand for operand in operands if operand.element is not None]
        for _ in range(2):
            adjoints = target.tape.differentiate(target, dense)
            parts = [(gradient * weights(gradient)).sum() for _, gradient in adjoints]
            target = parts[0] if len(parts) == 1 else sum(parts[1:], parts[0])
        return target

    check_gradient(twice, *sample.payloads(), entries=4, tolerance=1e-6)


def test_every_rule_expands_into_instructions_of_the_table() -> None:
    met: set[type[Opcode]] = set()
    for sample in SAMPLES:
        tape = Tape(f64)
        operands = [tape.leaf(tensor) for tensor in sample.payloads()]
        target = contracted(sample, operands)
        for _ in range(3):
            gradients = [gradient for _, gradient in tape.differentiate(target, operands)]
            target = sum([gradient.sum() for gradient in gradients[1:]], gradients[0].sum())
        met |= {type(node.opcode) for node in tape.nodes()}
    assert met <= set(INSTRUCTIONS)
    assert met >= {kind for kind in INSTRUCTIONS if not kind.is_source}


def test_a_copy_that_stops_passes_nothing_and_a_cast_casts_back() -> None:
    tape = Tape(f64)
    x = tape.parameter([1.0, 2.0])
    ((_, stopped),) = tape.differentiate((x.stop() * 3.0).sum(), x)
    assert stopped.payload().tolist() == [0.0, 0.0]
    ((_, cast),) = tape.differentiate((x.to(bf16) * Tensor([1.01, 3.0], f64).convert(bf16)).sum().to(f64), x)
    network = tape.into_network
    symbol = cast.symbol()
    assert cast.element is f64
    sealed = network()
    assert sealed.forward(sealed.parameters()).of(symbol).tolist() == [1.0078125, 3.0]


def test_ties_share_the_cotangent_of_a_maximum_along_an_axis() -> None:
    x = Tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]], f64)
    y = x.max_along(1)
    (answer,) = op.MaxAlong(1).vjp([x], y, Tensor([1.0, 3.0], f64))
    assert answer.tolist() == [[0.0, 0.5, 0.5], [1.0, 1.0, 1.0]]


def test_a_maximum_of_equal_operands_passes_the_cotangent_to_the_left() -> None:
    x, y, seed = Tensor([1.0, 2.0, float("nan")]), Tensor([1.0, 3.0, 1.0]), Tensor([5.0, 6.0, 7.0])
    left, right = op.MAXIMUM.vjp([x, y], x.maximum(y), seed)
    assert (left.tolist(), right.tolist()) == ([5.0, 0.0, 0.0], [0.0, 6.0, 7.0])


# Powers: every order is finite where the true derivative is.
FALLING = {  # base 0: the first three derivatives of b ** e in b
    0.0: (0.0, 0.0, 0.0),
    1.0: (1.0, 0.0, 0.0),
    2.0: (0.0, 2.0, 0.0),
    3.0: (0.0, 0.0, 6.0),
    4.0: (0.0, 0.0, 0.0),
}


@pytest.mark.parametrize("exponent", FALLING)
def test_every_derivative_of_a_power_in_its_base_at_zero(exponent: float) -> None:
    assert derivatives(lambda b: b.powf(exponent), 0.0) == FALLING[exponent]
    assert derivatives(lambda b: b.powf(exponent), -0.0) == FALLING[exponent]


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("base", [1.0, 2.0, -2.0])
def test_every_derivative_of_a_whole_power_in_its_base(base: float, exponent: float) -> None:
    e = exponent
    expected = (
        e * base ** (e - 1) if e else 0.0,
        e * (e - 1) * base ** (e - 2) if e > 1 else 0.0,
        e * (e - 1) * (e - 2) * base ** (e - 3) if e > 2 else 0.0,
    )
    assert derivatives(lambda b: b.powf(exponent), base) == expected


@pytest.mark.parametrize("exponent", [1.0, 2.0, 0.5, 3.0])
def test_every_derivative_of_a_power_of_zero_in_its_exponent(exponent: float) -> None:
    assert derivatives(lambda e: 0.0**e, exponent) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, -1.0])
@pytest.mark.parametrize("base", [1.0, 2.0, 0.25])
def test_every_derivative_of_a_power_in_its_exponent(base: float, exponent: float) -> None:
    expected = [base**exponent * np.log(base) ** order for order in (1, 2, 3)]
    np.testing.assert_allclose(derivatives(lambda e: base**e, exponent), expected, rtol=1e-14)


def test_where_a_power_of_zero_jumps_its_slope_in_the_exponent_is_that_to_the_right() -> None:
    assert derivatives(lambda e: 0.0**e, 0.0) == (0.0, 0.0, 0.0)
    assert derivatives(lambda e: 0.0**e, -1.0)[0] == -np.inf


@pytest.mark.parametrize("exponent", [2.0, 3.0])
def test_the_mixed_derivative_of_a_power_at_base_zero(exponent: float) -> None:
    tape = Tape(f64)
    b, e = tape.parameter(0.0), tape.parameter(exponent)
    ((_, by_base),) = tape.differentiate(b.powf(e), b)
    ((_, mixed),) = tape.differentiate(by_base, e)
    symbol = mixed.symbol()
    network = tape.into_network()
    assert float(network.forward(network.parameters()).of(symbol)) == 0.0


def derivatives(function: Any, at: float) -> tuple[float, float, float]:
    """The first three derivatives of a function of one number."""
    tape = Tape(f64)
    x = tape.parameter(at)
    value, symbols = function(x), []
    for _ in range(3):
        ((_, value),) = tape.differentiate(value, x)
        symbols.append(value.symbol())
    network = tape.into_network()
    run = network.forward(network.parameters())
    first, second, third = (float(run.of(symbol)) for symbol in symbols)
    return first, second, third


@pytest.mark.parametrize(
    "name", ["exp", "tanh", "sin", "cos", "expm1", "log1p", "erf", "erf_derivative", "sigmoid", "gelu"]
)
def test_derivatives_of_smooth_functions_are_finite_everywhere(name: str) -> None:
    for at in (0.0, -0.0, 1e-300, 5e-324, -20.0, 40.0, 700.0, -700.0):
        if name == "log1p" and at < -1 or name in ("exp", "expm1") and at == 700.0:
            continue
        assert np.isfinite(derivatives(lambda x: getattr(x, name)(), at)).all(), at


# what a rule reads
class Spy(Recordable):
    """A payload without numbers that notes which of the operands an instruction looks into."""

    def __init__(self, shape: Shape, element: Element | None, name: str = "", noted: set[str] | None = None) -> None:
        self._shape, self._element, self.name = shape, element, name
        self.noted = set() if noted is None else noted

    @property
    def shape(self) -> Shape:
        return self._shape

    @property
    def element(self) -> Element | None:
        return self._element

    def apply(self, opcode: Opcode, operands: tuple[Any, ...]) -> "Spy":
        self.noted.update(operand.name for operand in operands)
        shape = opcode.result_shape([operand.shape for operand in operands])
        return Spy(shape, opcode.result_element([operand.element for operand in operands]) or f64, noted=self.noted)

    def counted(self, count: int) -> "Spy":
        return Spy(self._shape, self._element or f64, noted=self.noted)

    def zero_like(self) -> "Spy":
        return self.counted(0)

    def one_like(self) -> "Spy":
        return self.counted(1)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_the_rule_reads_what_it_declares(sample: Sample) -> None:
    noted: set[str] = set()
    tensors = sample.payloads()
    operands = [Spy(t.shape, t.element, f"operand {place}", noted) for place, t in enumerate(tensors)]
    output = sample.opcode.express(tensors)
    answers = sample.opcode.vjp(
        operands, Spy(output.shape, output.element, "output", noted), Spy(output.shape, output.element, "seed", noted)
    )
    noted |= {answer.name for answer in answers if answer is not None}
    expected = {f"operand {place}" for place in sample.opcode.reads} | (
        {"output"} if sample.opcode.reads_output else set()
    )
    assert noted - {"seed", ""} == expected


# an instruction is a value
@each_sample
def test_an_instruction_is_equal_to_its_copies(sample: Sample) -> None:
    opcode = sample.opcode
    for again in (pickle.loads(pickle.dumps(opcode)), copy.copy(opcode), copy.deepcopy(opcode)):
        assert again == opcode
        assert hash(again) == hash(opcode)
        assert type(again) is type(opcode)
        assert again.facts() == opcode.facts()
        assert repr(again) == repr(opcode)


def test_instructions_with_other_facts_are_others() -> None:
    distinct = {repr(sample.opcode): sample.opcode for sample in SAMPLES}
    opcodes = list(distinct.values())
    assert len(set(opcodes)) == len(opcodes)
    for place, opcode in enumerate(opcodes):
        assert opcode == opcode
        assert all(opcode != other for other in opcodes[place + 1 :])
        assert opcode != opcode.name
    assert op.Pad(0, 1, 2, 0.0) != op.Pad(0, 1, 2, -0.0)
    nan = float("nan")
    assert op.Pad(0, 1, 2, nan) == op.Pad(0, 1, 2, nan)
    assert hash(op.Pad(0, 1, 2, nan)) == hash(op.Pad(0, 1, 2, nan))
    assert pickle.loads(pickle.dumps(op.Pad(0, 1, 2, -0.0))) == op.Pad(0, 1, 2, -0.0)
    assert op.SumAlong(1) != op.MaxAlong(1)


@each_sample
def test_an_instruction_is_frozen(sample: Sample) -> None:
    for attribute in (*sample.opcode.attributes, "anything"):
        with pytest.raises(AttributeError, match=f"^{sample.opcode.name} is frozen$"):
            setattr(sample.opcode, attribute, 0)
        with pytest.raises(AttributeError):
            delattr(sample.opcode, attribute)


def test_facts_may_be_given_as_any_integers() -> None:
    assert op.Narrow(np.int64(1), np.int32(0), np.uint8(2)) == op.Narrow(1, 0, 2)
    assert op.Reshape(np.array([2, 3])) == op.Reshape((2, 3)) == op.Reshape([2, 3]) == op.Reshape(Shape((2, 3)))
    assert op.Reshape(iter([2, 3])) == op.Reshape((2, 3))


# expressing
@each_sample
def test_expressing_over_values_records_the_instruction(sample: Sample) -> None:
    tape = Tape(f64)
    operands = [tape.leaf(tensor) for tensor in sample.payloads()]
    value = sample.opcode.express(operands)
    node = tape.nodes()[value.index]
    assert (node.opcode, len(tape)) == (sample.opcode, len(operands) + 1)
    assert node.operands == tuple(operand.symbol() for operand in operands)


@each_sample
def test_the_number_of_operands_is_checked(sample: Sample) -> None:
    tensors = sample.payloads()
    wanted = len(tensors)
    message = f"{sample.opcode.rule}: wants {wanted} operands, got {wanted + 1}"
    with pytest.raises(ValueError) as caught:
        sample.opcode.express([*tensors, tensors[0]])
    assert str(caught.value) == message
    with pytest.raises(ValueError) as caught:
        sample.opcode.vjp([*tensors, tensors[0]], tensors[0], tensors[0])
    assert str(caught.value) == message


@pytest.mark.parametrize("source", [op.LEAF, op.PARAMETER, op.INPUT], ids=lambda opcode: opcode.name)
def test_a_source_has_nothing_to_express(source: Opcode) -> None:
    message = f"{source.rule}: a source has no operands to run over; take its payload from the network"
    for call in (lambda: source.express([]), lambda: source.vjp([], None, None)):
        with pytest.raises(ValueError) as caught:
            call()
        assert str(caught.value) == message
    assert source.is_source
    assert source.arity == 0


def test_names_of_nodes_are_frozen_both_ways_too() -> None:
    symbol = Tape().input(shape=(1,)).symbol()
    entry = Entry(symbol)
    for frozen, attribute in ((symbol, "index"), (symbol, "family"), (entry, "roots"), (entry, "carry")):
        with pytest.raises(AttributeError, match="^(Symbol|Entry) is frozen$"):
            setattr(frozen, attribute, None)
        with pytest.raises(AttributeError, match="^(Symbol|Entry) is frozen$"):
            delattr(frozen, attribute)
