"""Whole drawn programs: every reading of one spec gives the same bits."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from topos import Adjoints, Network, Symbol, Tape, Tensor, Value, bf16, f32, f64
from topos.op import Cast, Input, Leaf, MaxAlong, Maximum, Opcode, Parameter, Powf, Step, Stop
from topos.testing import assert_same_bits
from topos.testing.instructions import INSTRUCTIONS
from topos.testing.programs import Call, Program, programs

KINKED = (Step, Maximum, MaxAlong, Stop, Cast)
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
    one, other = Case(program), Case(program)
    assert one.text == other.text
    assert one.network.fingerprint == other.network.fingerprint


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


def carried_steps_are_forward_and_replacement_by_hand(
    program: Program, pick: Callable[[list[Symbol]], list[Symbol]]
) -> None:
    case = Case(program)
    carry = replacements(case, pick)
    observed = pick(case.all)
    bound = case.network.entry(case.target).observe([s for s in observed if case.network.node(s).element is not None])
    bound = bound.carry(carry)
    plan, results = bound.lower(), [*bound.entry.roots, *bound.entry.observe]
    feeds = {symbol: payload for symbol, payload in case.feeds.items() if symbol not in carry}
    single, several = case.network.state(), case.network.state()
    parameters, inputs, expected = case.parameters, {}, []
    for _ in range(3):
        run = case.network.forward(parameters, {**feeds, **inputs})
        expected.append(run.of(results))
        assert_same_bits(plan.advance(single, feeds).of(results), expected[-1])
        after = {source: run.of(following) for source, following in carry.items()}
        slots = set(parameters.symbols())
        parameters = parameters.with_payloads({source: t for source, t in after.items() if source in slots})
        inputs = {source: tensor for source, tensor in after.items() if source not in slots}
        for source, tensor in after.items():
            assert_same_bits(single.of(source), tensor)
    stacked = plan.advance(several, feeds, steps=3).of(results)
    assert_same_bits(stacked, [np.stack([values[i].numpy() for values in expected]) for i in range(len(results))])
    assert_same_bits(several.payloads(), single.payloads())


def replacements(case: Case, pick: Callable[[list[Symbol]], list[Symbol]]) -> dict[Symbol, Symbol]:
    """A value of the same shape and element for some parameters and dense inputs."""
    carry: dict[Symbol, Symbol] = {}
    for node in case.network.nodes():
        if type(node.opcode) in (Parameter, Input) and node.element is not None:
            fitting = [n.symbol for n in case.network.nodes() if (n.shape, n.element) == (node.shape, node.element)]
            for following in pick(fitting)[:1]:
                carry[node.symbol] = following
    return carry


def a_report_names_the_first_bad_value(program: Program) -> None:
    case = Case(program)
    entry = case.network.entry(case.adjoints.roots()).diagnose()
    scheduled = [node.symbol for node in entry.lower().nodes()]
    sources = [symbol for symbol in scheduled if case.network.node(symbol).is_source]
    order = [*sources, *(symbol for symbol in scheduled if symbol not in set(sources))]
    dense = [symbol for symbol in order if case.network.node(symbol).element is not None]
    bad = [symbol for symbol in dense if not np.isfinite(numbers(case.run.of(symbol))).all()]
    nan = [symbol for symbol in dense if np.isnan(numbers(case.run.of(symbol))).any()]
    for run in (entry.lower().forward(case.parameters, case.feeds), entry.interpret(case.parameters, case.feeds)):
        report = run.report()
        assert (report is None) == (not bad)
        if report is not None:
            assert report.first.symbol == bad[0]
            at = tuple(int(axis[0]) for axis in np.nonzero(~np.isfinite(np.atleast_1d(numbers(case.run.of(bad[0]))))))
            assert report.first.at == at[: len(case.network.node(bad[0]).shape)]
            assert (report.first_nan is None) == (not nan or nan[0] == bad[0])
            assert report.first_nan is None or report.first_nan.symbol == nan[0]


def numbers(tensor: Tensor) -> np.ndarray:
    return tensor.numpy().astype(np.float64)


def gradients_are_central_differences(program: Program) -> None:
    """Where every value is finite and two steps agree on the difference, it is the gradient."""
    case = Case(program)
    if not all(regular(case, symbol) for symbol in case.values):
        event("a slope may be infinite")
        return
    plan = case.network.entry(case.target).lower()
    value = float(case.run.of(case.target))
    for symbol, gradient in case.adjoints:
        if type(case.network.node(symbol).opcode) is not Parameter or not case.network.node(symbol).shape.volume:
            continue
        found = float(numbers(case.run.of(gradient)).flat[0])
        scale = max(1.0, abs(value), abs(found))
        coarse, fine = (difference(case, plan, symbol, step) for step in (1e-4, 5e-5))
        if not abs(coarse - fine) <= 1e-6 * scale:
            event("no difference to be trusted")
            continue
        event("compared")
        assert abs(found - fine) <= 1e-5 * scale


def regular(case: Case, symbol: Symbol) -> bool:
    """Whether a value is finite, and none whose slope is infinite: an infinite slope times 0 is NaN."""
    node = case.network.node(symbol)
    steep = isinstance(node.opcode, Powf) or node.opcode.name == "Sqrt"
    read = [symbol, *(node.operands if steep else ())]
    found = [numbers(case.run.of(each)) for each in read]
    return all(np.isfinite(each).all() for each in found) and all(each.all() for each in found[1:])


def difference(case: Case, plan: Any, symbol: Symbol, step: float) -> float:
    """The central difference of the target in the first number of a parameter."""
    values = []
    for moved in (step, -step):
        array = case.parameters.of(symbol).numpy().copy()
        array.flat[0] += moved
        run = plan.forward(case.parameters.with_payloads({symbol: array}), case.feeds)
        values.append(float(run.of(case.target)))
    return (values[0] - values[1]) / (2 * step)


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
    smooth = programs(element=f64, elements=[f64], tame=True, without=KINKED)
    return [
        pytest.param(plans_and_the_interpreter_agree, (wild, picks()), id="plans"),
        pytest.param(recorded_gradients_are_the_engines, (wild,), id="gradients"),
        pytest.param(a_walk_over_tensors_is_the_run, (wild,), id="walk-tensors"),
        pytest.param(a_walk_over_values_records_the_same_spec, (wild,), id="walk-values"),
        pytest.param(recording_twice_gives_the_same_spec, (wild,), id="re-record"),
        pytest.param(observing_more_changes_no_value, (wild, picks()), id="observe"),
        pytest.param(carried_steps_are_forward_and_replacement_by_hand, (wild, picks()), id="carry"),
        pytest.param(a_report_names_the_first_bad_value, (wild,), id="report"),
        pytest.param(gradients_are_central_differences, (smooth,), id="differences"),
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
