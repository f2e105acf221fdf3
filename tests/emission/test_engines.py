"""Emitted modules are parsed, verified, interpreted and compiled by others, and answer what the interpreter does."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from topos import Element, Plan, Symbol, Tape, Tensor, bf16, f32, f64
from topos.backend import Formula, Task
from topos.op import MAPS, MapOperation, MaxAlong, Maximum, Powf, Select, Step
from topos.tensor.services import formula_of
from topos.testing.envelopes import envelope
from topos.testing.instructions import INSTRUCTIONS, every_sample
from topos.testing.programs import Program, programs

ENGINES = ("interpret", "compile")
each_engine = pytest.mark.parametrize("engine", ENGINES)
each_element = pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)


def ids_of(tensor: Tensor) -> np.ndarray:
    assert tensor.ids is not None
    return tensor.ids.astype(np.int32)


def numbers_of(tensor: Tensor) -> np.ndarray:
    return np.asarray(tensor.numpy())


class Table:
    """Every instruction over sample operands as one module, and what each result should be."""

    def __init__(self, element: Element, kinds: Sequence[type] = ()) -> None:
        tape = Tape(element)
        self.tasks: list[Task] = []
        self.arguments: list[np.ndarray] = []
        results: list[Symbol] = []
        for one in every_sample():
            if kinds and type(one.opcode) not in kinds:
                continue
            tensors = one.payloads(element)
            operands = [self._source(tape, tensor) for tensor in tensors]
            result = one.opcode.express(operands)
            answered = result.element or element
            formula = Formula(formula_of(one.opcode))
            self.tasks.append(Task(formula, one.opcode, answered, result.shape, tuple(tensors)))
            results.append(result.symbol())
        self.text = tape.into_network().entry(results).lower().emit_stablehlo()

    def _source(self, tape: Tape, tensor: Tensor) -> Any:
        selected = tensor.ids is not None
        self.arguments.append(ids_of(tensor) if selected else numbers_of(tensor))
        if selected:
            return tape.selection([tensor.shape[0]], tensor.vocab, absent=-1)
        return tape.input(shape=tensor.shape, element=tensor.element)


def reference_of(task: Task) -> np.ndarray:
    computed: Tensor = task.opcode.express(list(task.operands))
    return computed.dense(task.element)


def misses(found: np.ndarray, expected: np.ndarray, allowed: np.ndarray | float, name: str) -> list[str]:
    """What is wrong with a result: its form, an infinity or NaN elsewhere, or a number too far away."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return [f"{name}: answered {found.dtype} {found.shape}, wants {expected.dtype} {expected.shape}"]
    with np.errstate(all="ignore"):
        left, right = found.astype(np.float64), expected.astype(np.float64)
        apart = np.where(left == right, 0.0, np.abs(left - right))
        wrong = ~((np.isnan(left) & np.isnan(right)) | (apart <= allowed))
    where = np.argwhere(wrong)
    return [f"{name}: {left[tuple(at)]!r} at {at.tolist()}, wants {right[tuple(at)]!r}" for at in where[:1]]


@each_element
@pytest.mark.parametrize("engine", ["interpret", pytest.param("compile", marks=pytest.mark.slow)])
def test_every_instruction_is_run_by_others(engines: Any, engine: str, element: Element) -> None:
    """Within what `topos.testing.envelopes` allows a backend: 4 ulp for a map, twice the order of a sum."""
    table = Table(element)
    wrong: list[str] = []
    for task, found in zip(table.tasks, engines.run(engine, table.text, table.arguments), strict=True):
        expected = reference_of(task)
        wrong += misses(found, expected, envelope(task, expected), f"{task.opcode!r} over {task.element}")
    assert wrong == []
    assert {type(task.opcode) for task in table.tasks} == {kind for kind, row in INSTRUCTIONS.items() if row.samples}


@each_engine
def test_the_check_can_fail(engines: Any, engine: str) -> None:
    """A module that says another operation, another constant, or takes another number is told apart."""
    table = Table(f32, (type(MAPS[MapOperation.TANH]), MaxAlong))
    for honest, wrong in (("stablehlo.tanh", "stablehlo.sine"), ("dense<0xFF800000>", "dense<1.0>")):
        assert honest in table.text
        answers = engines.run(engine, table.text.replace(honest, wrong), table.arguments)
        found = []
        for task, answer in zip(table.tasks, answers, strict=True):
            expected = reference_of(task)
            found += misses(answer, expected, envelope(task, expected), task.opcode.name)
        assert found
    with pytest.raises(AssertionError, match="Unable to parse module assembly"):
        engines.run("verify", table.text.replace("stablehlo.tanh", "stablehlo.tan_h"))


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, np.inf, -np.inf, np.nan])


@each_element
@each_engine
def test_special_values(engines: Any, engine: str, element: Element) -> None:
    """Infinities and NaN stand where the interpreter has them."""
    left, right = (part.reshape(-1) for part in np.meshgrid(SPECIAL, SPECIAL))
    tape = Tape(element)
    x, y = tape.input(shape=left.shape), tape.input(shape=left.shape)
    named = {
        "add": x + y, "sub": x - y, "mul": x * y, "div": x / y, "neg": -x, "maximum": x.maximum(y), "step": x.step(y),
        "select": x.select(x, y), "powf": x.powf(y), "max along": x.reshape([10, 10]).max_along(1),
        "logsumexp": x.reshape([10, 10]).logsumexp(0), "log softmax": x.reshape([10, 10]).log_softmax(0),
        "cast": x.to(f64).to(f32),
    }  # fmt: skip
    named |= {operation.value: MAPS[operation].express([x]) for operation in MapOperation}
    symbols = {name: value.symbol() for name, value in named.items()}
    network = tape.into_network()
    plan = network.entry(list(symbols.values())).lower()
    payloads = [Tensor(part, element) for part in (left, right)]
    inputs = [node.symbol for node in network.nodes() if node.is_source]
    run = plan.forward(network.parameters(), dict(zip(inputs, payloads, strict=False)))
    answers = engines.run(engine, plan.emit_stablehlo(), [numbers_of(payload) for payload in payloads])
    ulp = {f32: 2.0**-20, f64: 2.0**-48, bf16: 2.0**-5}[element]
    wrong: list[str] = []
    for (name, symbol), found in zip(symbols.items(), answers, strict=True):
        expected = numbers_of(run.of(symbol))
        wrong += misses(found, expected, ulp * (1 + np.abs(expected.astype(np.float64))), name)
    assert wrong == []


def arguments_of(plan: Plan, feeds: Any, network: Any) -> list[np.ndarray]:
    """What a run of the plan would take, as the module takes it."""
    table, fed = network.parameters(), {symbol: payload for symbol, payload in feeds.items()}
    sources = [node for node in plan.nodes() if node.opcode.name in ("Parameter", "Input")]
    taken = []
    for node in sorted(sources, key=lambda node: (node.opcode.name != "Parameter", node.symbol.index)):
        if node.element is None:
            taken.append(np.asarray(fed[node.symbol], np.int32))
        elif node.opcode.name == "Parameter":
            taken.append(numbers_of(table.of(node.symbol)))
        else:
            payload = fed.get(node.symbol, network.payload(node.symbol) if node.symbol not in fed else None)
            taken.append(numbers_of(Tensor(payload, node.element)))
    return taken


KINKED: Sequence[type] = (Step, Maximum, MaxAlong, Select, Powf)
"""Where rounding otherwise decides which number is taken, or a number of ordinary size leaves the range."""


def a_program_answers_the_interpreter(engines: Any, engine: str, program: Program) -> None:
    tape, recorded = program.record()
    nodes = tape.nodes()
    wrt = [value for value in recorded.values if nodes[value.index].is_source and value.element is not None]
    adjoints = tape.differentiate(recorded.target, wrt).detach()
    network = tape.into_network()
    plan = network.entry(adjoints.roots()).lower()
    run = plan.forward(network.parameters(), recorded.feeds)
    answers = engines.run(engine, plan.emit_stablehlo(), arguments_of(plan, recorded.feeds, network))
    wrong: list[str] = []
    for symbol, found in zip(plan.results, answers, strict=True):
        expected = numbers_of(run.of(symbol))
        largest = np.max(np.abs(expected), initial=0.0)
        if np.isfinite(largest) and largest < LARGEST:
            wrong += misses(found, expected, 1e-7 * (1 + largest), f"{symbol}")
    assert wrong == []


LARGEST = 1e6
"""Results beyond went through exponentials that lose the digits which the bound is about."""
DRAWN = {"element": f64, "elements": (f64,), "tame": True, "without": KINKED, "most": 8}
FEW = settings(max_examples=25, suppress_health_check=[*HealthCheck])


@FEW
@given(program=programs(**DRAWN))
def test_drawn_programs_and_their_gradients_are_interpreted(engines: Any, program: Program) -> None:
    a_program_answers_the_interpreter(engines, "interpret", program)


@pytest.mark.slow
@FEW
@given(program=programs(**DRAWN))
def test_drawn_programs_and_their_gradients_are_compiled(engines: Any, program: Program) -> None:
    a_program_answers_the_interpreter(engines, "compile", program)


@pytest.mark.parametrize("absent", [-1, -100, 0], ids=str)
@each_engine
def test_ids_that_select_nothing(engines: Any, engine: str, absent: int) -> None:
    """Whether the absent one lies outside the vocab or in it."""
    tape = Tape(f32)
    picks = tape.selection([2, 3], vocab=4, absent=absent, name="picks")
    table = tape.input(shape=[4, 2], name="table")
    rows = table.gather(picks)
    values = [rows, rows.scatter(picks), picks @ table, picks.select(1.0, 2.0 * rows.sum().broadcast([6, 4]))]
    symbols = [value.symbol() for value in values]
    network = tape.into_network()
    plan = network.entry(symbols).lower()
    ids = np.array([[absent, 3, 2], [1, absent, 1]], np.int32)
    numbers = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
    run = plan.forward(network.parameters(), {"picks": ids, "table": numbers})
    for symbol, found in zip(symbols, engines.run(engine, plan.emit_stablehlo(), [ids, numbers]), strict=True):
        assert misses(found, numbers_of(run.of(symbol)), 0.0, f"{symbol}") == []
