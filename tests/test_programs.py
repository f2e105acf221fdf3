"""Whole drawn programs: every reading of one spec gives the same bits."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from topos import Adjoints, Network, Symbol, Tape, Tensor, Value, bf16, f32, f64
from topos.op import Input, Leaf, Opcode, Parameter
from topos.testing import assert_same_bits
from topos.testing.instructions import INSTRUCTIONS
from topos.testing.programs import Call, Program, programs

FAST, SLOW = settings(max_examples=60), settings(max_examples=1500, suppress_health_check=[*HealthCheck])


class Case:
    """A program recorded, differentiated in all its dense sources and sealed."""

    def __init__(self, program: Program, order: int = 1) -> None:
        tape, recorded = program.record()
        self.feeds = recorded.feeds
        self.target = recorded.target.symbol()
        self.values = [value.symbol() for value in recorded.values]
        wrt = [value for value in recorded.values if tape.nodes()[value.index].is_source and value.element is not None]
        self.adjoints: Adjoints = tape.differentiate(recorded.target, wrt).detach()
        self.text = tape.describe()
        self.network = tape.into_network()
        self.parameters = self.network.parameters()
        self.run = self.network.forward(self.parameters, self.feeds)
        self.all = [node.symbol for node in self.network.nodes()]


def plans_and_the_interpreter_agree(program: Program, pick: Callable[[list[Symbol]], list[Symbol]]) -> None:
    case = Case(program)
    roots, observed = case.adjoints.roots(), pick(case.all)
    for entry in (
        case.network.entry(roots),
        case.network.entry(roots).observe(observed),
        case.network.entry(observed or roots).backward(),
        case.network.entry(case.all),
    ):
        results = [*entry.entry.roots, *entry.entry.observe]
        expected = case.run.of(results)
        plan = entry.lower()
        assert_same_bits(plan.forward(case.parameters, case.feeds).of(results), expected)
        assert_same_bits(plan.forward(case.parameters, case.feeds).of(results), expected)
        assert_same_bits(entry.interpret(case.parameters, case.feeds).of(results), expected)
        assert_same_bits(plan.forward(case.network.state(), case.feeds).of(results), expected)


def recorded_gradients_are_the_engines(program: Program) -> None:
    case = Case(program)
    retaining = case.network.entry(case.adjoints.roots()).backward()
    for run in (case.run, retaining.lower().forward(case.parameters, case.feeds)):
        gradients = run.backward(case.target)
        for symbol, gradient in case.adjoints:
            if run is case.run or symbol in retained(case, retaining):
                assert_same_bits(gradients.of(symbol), run.of(gradient))
                assert gradients.of(symbol).element is case.network.node(symbol).element


def retained(case: Case, entry: Any) -> set[Symbol]:
    return {node.symbol for node in entry.lower().nodes()}


def a_walk_over_tensors_is_the_run(program: Program) -> None:
    case = Case(program)
    payloads: dict[Symbol, Tensor] = {}
    for node in case.network.nodes():
        if node.is_source:
            payloads[node.symbol] = case.run.of(node.symbol)
        else:
            payloads[node.symbol] = node.opcode.express([payloads[operand] for operand in node.operands])
            assert payloads[node.symbol].shape == node.shape
            assert payloads[node.symbol].element is node.element
            assert_same_bits(payloads[node.symbol], case.run.of(node.symbol))


def a_walk_over_values_records_the_same_spec(program: Program) -> None:
    case = Case(program)
    tape = Tape(program.element)
    values: list[Value] = []
    for node in case.network.nodes():
        if node.is_source:
            values.append(source_again(tape, case.network, node))
        else:
            values.append(node.opcode.express([values[operand.index] for operand in node.operands]))
    again = tape.into_network()
    assert again.describe() == case.network.describe()
    assert again.fingerprint == case.network.fingerprint
    for node in again.nodes():
        if node.is_source and node.symbol.index not in again.spec.ids:
            payload, expected = again.payload(node.symbol), case.network.payload(case.all[node.symbol.index])
            assert_same_bits(payload, expected)


def source_again(tape: Tape, network: Network, node: Any) -> Value:
    ids = network.spec.ids.get(node.symbol.index)
    if ids is not None:
        return tape.selection(ids.shape, ids.vocab, absent=ids.absent)
    record = {Leaf: tape.leaf, Parameter: tape.parameter, Input: tape.input}[type(node.opcode)]
    return record(network.payload(node.symbol), element=node.element)


def recording_twice_gives_the_same_spec(program: Program) -> None:
    assert Case(program).text == Case(program).text
    assert Case(program).network.fingerprint == Case(program).network.fingerprint


def observing_more_changes_no_value(program: Program, pick: Callable[[list[Symbol]], list[Symbol]]) -> None:
    case = Case(program)
    plain = case.network.entry(case.target)
    expected = plain.lower().forward(case.parameters, case.feeds).of(case.target)
    more = plain.observe(pick(case.all)).diagnose()
    assert_same_bits(more.lower().forward(case.parameters, case.feeds).of(case.target), expected)
    assert_same_bits(expected, case.run.of(case.target))


def gradients_are_linear_in_their_seed(program: Program, exponent: int) -> None:
    tape, recorded = program.record()
    wrt = [value for value in recorded.values if tape.nodes()[value.index].is_source and value.element is not None]
    start = len(tape)
    plain = tape.vjp(recorded.target, 1.0, wrt).detach()
    scaled = tape.vjp(recorded.target, 2.0**exponent, wrt).detach()
    network = tape.into_network()
    run = network.forward(network.parameters(), recorded.feeds)
    if not all(ordinary(run.of(node.symbol)) for node in network.nodes()[start:]):
        event("some cotangent is far from 1, where scaling may round")
        return
    event("scaled exactly")
    for (_, one), (_, other) in zip(plain, scaled, strict=True):
        factor = Tensor.filled(run.of(one).shape, 2.0**exponent, run.of(one).element)
        assert_same_bits(run.of(other), run.of(one) * factor)


def ordinary(tensor: Tensor) -> bool:
    """Whether no product of a few of these numbers can overflow, or be subnormal."""
    magnitudes = np.abs(tensor.numpy().astype(np.float64))
    return bool(((magnitudes == 0) | ((magnitudes > 2.0**-40) & (magnitudes < 2.0**40))).all())


@st.composite
def picks(draw: st.DrawFn) -> Callable[[list[Symbol]], list[Symbol]]:
    """A choice of up to five of some symbols, repetitions allowed."""
    places = draw(st.lists(st.integers(0, 199), max_size=5))
    return lambda symbols: [symbols[place % len(symbols)] for place in places]


def properties() -> list[Any]:
    wild, tame = programs(), programs(tame=True, most=8)
    return [
        pytest.param(plans_and_the_interpreter_agree, (wild, picks()), id="plans"),
        pytest.param(recorded_gradients_are_the_engines, (wild,), id="gradients"),
        pytest.param(a_walk_over_tensors_is_the_run, (wild,), id="walk-tensors"),
        pytest.param(a_walk_over_values_records_the_same_spec, (wild,), id="walk-values"),
        pytest.param(recording_twice_gives_the_same_spec, (wild,), id="re-record"),
        pytest.param(observing_more_changes_no_value, (wild, picks()), id="observe"),
        pytest.param(gradients_are_linear_in_their_seed, (tame, st.integers(-6, 6)), id="linear"),
    ]


@pytest.mark.parametrize(("holds", "drawn"), properties())
def test_a_drawn_program(holds: Callable[..., None], drawn: Sequence[Any]) -> None:
    FAST(given(*drawn)(holds))()


def test_every_instruction_is_drawn() -> None:
    met: set[tuple[type[Opcode], Any]] = set()

    @settings(max_examples=150)
    @given(programs())
    def draw(program: Program) -> None:
        met.update((type(line.made.opcode), line.element) for line in program.lines if isinstance(line.made, Call))

    draw()
    assert {kind for kind, _ in met} >= {kind for kind, row in INSTRUCTIONS.items() if row.made is not None}
    assert {element for _, element in met} >= {f32, f64, bf16}


@pytest.mark.slow
@pytest.mark.parametrize(("holds", "drawn"), properties())
def test_thousands_of_drawn_programs(holds: Callable[..., None], drawn: Sequence[Any]) -> None:
    SLOW(given(*drawn)(holds))()
