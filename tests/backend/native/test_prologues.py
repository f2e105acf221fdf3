"""Operands of products that are worked out as they are packed: the bits of stored ones, and when that is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import Element, Tape, Value, bf16, f32, f64
from topos.testing import assert_same_bits

from ..plans import CPUS, lowered, numbers, processor, recorded, threads

pytest.importorskip("llvmlite")


def masked(x: Value, other: Value) -> Value:
    return other.select(x, x.zero_like())


def of_a_gradient(x: Value, other: Value) -> Value:
    return x.step(x.zero_like()).select(other, other.zero_like())


KINDS: dict[str, Callable[[Value, Value], Value]] = {
    "scale": lambda x, _: x * 0.1,
    "relu": lambda x, _: x.relu(),
    "mask": masked,
    "gradient of relu": of_a_gradient,
    "bias": lambda x, other: x + other.narrow(0, 1, 1).reshape([x.shape[1]]).broadcast_along(0, x.shape[0]),
    "column": lambda x, other: x * other.narrow(1, 1, 1).reshape([x.shape[0]]).broadcast_along(1, x.shape[1]),
    "counted": lambda x, _: x.counted(3) - x,
    "square": lambda x, _: (x * x).sqrt(),
    "narrower": lambda x, _: x.to(bf16).to(x.element) if x.element is not bf16 else x.maximum(x.one_like()),
    "padded": lambda x, _: x.narrow(0, 1, x.shape[0] - 1).pad(0, 1, x.shape[0]).abs(),
}
LAYOUTS: dict[str, Callable[[Value], Value]] = {
    "as it lies": lambda x: x,
    "transposed": lambda x: x.transpose(),
    "narrowed": lambda x: x.narrow(0, 1, x.shape[0] - 1).narrow(1, 2, x.shape[1] - 2),
}
SIZES = [(40, 215, 40), (9, 940, 10)]


def product(kind: str, layout: str, size: tuple[int, int, int], is_left: bool, element: Element) -> Any:
    """A product one of whose operands is worked out: its case, over hard numbers."""
    rows, terms, columns = size

    def record(tape: Tape) -> Any:
        shape = (rows, terms) if is_left else (terms, columns)
        stored = shape[::-1] if layout == "transposed" else shape
        x, other = tape.input(shape=stored), tape.input(shape=stored)
        operand = LAYOUTS[layout](KINDS[kind](x, other))
        across = operand.shape[1 if is_left else 0]
        plain = tape.input(shape=(across, columns) if is_left else (rows, across))
        result = operand @ plain if is_left else plain @ operand
        fed = {value: numbers(element, value.shape, at) for at, value in enumerate((x, other, plain))}
        return [result + 1.0], fed

    return recorded(record, element)


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=lambda element: element.name)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_and_layout_has_the_bits_of_the_stored_operand(kind: str, element: Element) -> None:
    folded = 0
    for layout, size in [*((layout, SIZES[0]) for layout in LAYOUTS), ("as it lies", SIZES[1])]:
        for is_left in (True, False):
            case = product(kind, layout, size, is_left, element)
            plan = case.plan
            case.compare(case.actual(plan), case.expected())
            folded += "operand packed as" in plan.explain()
    assert folded >= 4


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("count", [1, 3, 8])
def test_threads_and_processors_change_no_bit(cpu: str, count: int) -> None:
    with processor(cpu), threads(count):
        for layout in LAYOUTS:
            for is_left in (True, False):
                product("mask", layout, (16, 530, 16), is_left, f32).check()


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=lambda element: element.name)
def test_both_operands_and_every_product_of_a_batch(element: Element) -> None:
    def record(tape: Tape) -> Any:
        x, y, z = (tape.input(shape=shape) for shape in ((2, 3, 40, 70), (2, 3, 70, 50), (2, 3)))
        scale = z.broadcast_along(2, 40).broadcast_along(3, 70)
        return [(x.relu() * scale) @ (y - 1.0)], {v: numbers(element, v.shape, at) for at, v in enumerate((x, y, z))}

    case = recorded(record, element)
    told = case.plan.explain()
    assert "left operand packed as" in told and "right operand packed as" in told and " 1 group," in told
    case.check()


def test_a_narrow_operand_is_worked_out_in_its_element_and_widened() -> None:
    def record(tape: Tape) -> Any:
        x, y = tape.input(shape=(90, 120), element=bf16), tape.input(shape=(120, 80))
        return [(x * x).to(f32) @ y], {x: numbers(bf16, x.shape, 1), y: numbers(f32, y.shape, 2)}

    case = recorded(record, f32)
    assert "left operand packed as" in case.plan.explain()
    case.check()


def test_a_selection_is_never_written_out_for_a_product() -> None:
    def record(tape: Tape) -> Any:
        ids, y = tape.selection([300], vocab=40), tape.input(shape=(40, 30))
        return [ids @ y], {ids: np.arange(300) % 40, y: numbers(f32, y.shape, 2)}

    case = recorded(record, f32)
    assert "left operand packed as" in case.plan.explain()
    case.check()


def explained(record: Callable[[Tape], Any]) -> str:
    network, results = Tape.record(record)
    entry, parameters = network.entry(results), network.parameters()
    plan = lowered(entry)
    assert_same_bits(plan.forward(parameters).of(results), entry.interpret(parameters).of(results))
    return plan.explain()


def test_what_has_other_readers_is_stored_once() -> None:
    def record(tape: Tape) -> Any:
        x, y = tape.input(np.ones((100, 100))), tape.input(np.ones((100, 100)))
        operand = x.relu()
        return [operand @ y, operand.transpose() @ y]

    assert "packed as" not in explained(record)


def test_an_operand_that_is_both_is_stored() -> None:
    def record(tape: Tape) -> Any:
        operand = tape.input(np.linspace(-1, 1, 100 * 100).reshape(100, 100)).relu()
        return [operand @ operand.transpose()]

    assert "packed as" not in explained(record)


def test_rows_that_two_operands_share_are_worked_out_in_both() -> None:
    def record(tape: Tape) -> Any:
        shared = tape.input(np.linspace(-1, 1, 100 * 100).reshape(100, 100)) * 3.0
        left, right = shared + 1.0, shared.relu()
        return [left @ right.transpose(), (shared - 1.0) @ tape.input(np.ones((100, 100)))]

    assert explained(record).count("operand packed as") == 3


@pytest.mark.parametrize("what", ["a result", "dear", "small", "a vector"])
def test_what_would_not_pay_is_stored(what: str) -> None:
    def record(tape: Tape) -> Any:
        rows = {"small": 8, "a vector": 1}.get(what, 100)
        x, y = tape.input(np.ones((rows, 100))), tape.input(np.ones((100, 100)))
        operand = x.tanh() if what == "dear" else x * 2.0
        return [operand @ y, operand] if what == "a result" else [operand @ y]

    assert "packed as" not in explained(record)


def test_gradients_through_worked_out_operands() -> None:
    def record(tape: Tape) -> Any:
        shapes = (90, 120), (120, 80), (120, 80)
        x, w, m = (tape.parameter(np.random.default_rng(1).normal(size=shape)) for shape in shapes)
        loss = (x.relu() @ m.select(w, w.zero_like())).tanh().sum()
        return [loss, *(slope for _, slope in tape.differentiate(loss, [x]))]

    assert "packed as" in explained(record)


def test_a_carried_operand_that_is_worked_out_is_not_written_over_before_it_is_read() -> None:
    def record(tape: Tape) -> Any:
        w, x = tape.parameter(np.linspace(-1, 1, 100 * 100).reshape(100, 100)), tape.input(np.eye(100))
        return w, (w * 2.0).transpose() @ x - w

    network, (weights, following) = Tape.record(record)
    entry = network.entry(following).carry({weights: following})
    plan, state, expected = lowered(entry), network.state(), network.state()
    assert "left operand packed as" in plan.explain()
    for _ in range(3):
        plan.advance(state)
        interpreted = network.entry(following).interpret(expected.parameters()).of(following)
        expected.replace({weights.index: interpreted})
        assert_same_bits(state.of(weights), interpreted)


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=lambda element: element.name)
def test_what_the_rest_of_a_loop_reads_stays_in_it(element: Element) -> None:
    """The loop goes on with a value in the middle of what a product works out: it keeps what that one is made of."""

    def record(tape: Tape) -> Any:
        x, plain = tape.input(shape=[90, 100]), tape.input(shape=[40, 90])
        middle = x * 0.5 + 1.0
        results = [(middle * 2.0).sum(), plain @ (middle * 3.0)]
        return results, {value: numbers(element, value.shape, at) for at, value in enumerate((x, plain))}

    case = recorded(record, element)
    plan = case.plan
    assert plan.explain().count("4:Mul 7:Add") == 2
    assert "right operand packed as 4:Mul 7:Add" in plan.explain()
    case.compare(case.actual(plan), case.expected())
