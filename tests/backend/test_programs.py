"""Whole drawn programs with their gradients as native plans: every result has the interpreter's bits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

pytest.importorskip("llvmlite")

from topos import Network, Plan, Symbol
from topos.op import Input, Parameter
from topos.testing import assert_same_bits
from topos.testing.programs import Program, programs

from .plans import CPUS, check_steps, is_native, processor, threads

FAST = settings(max_examples=60)
# Thousands, each a new one: what fails here is shown as it was drawn.
SLOW = settings(max_examples=500, suppress_health_check=[*HealthCheck], phases=[Phase.generate])

WIDE = programs(most_volume=4096, most_extent=40)


class Recorded:
    """A program recorded, differentiated in all its dense sources and sealed."""

    def __init__(self, program: Program) -> None:
        tape, recorded = program.record()
        self.feeds = recorded.feeds
        values = [value.symbol() for value in recorded.values]
        wrt = [value for value in recorded.values if tape.nodes()[value.index].is_source and value.element is not None]
        gradients = tape.differentiate(recorded.target, wrt).detach().roots()
        self.network: Network = tape.into_network()
        self.results = {"gradients": gradients, "gradients and values": [*gradients, *values]}
        self.roots = gradients

    def dense(self, symbols: list[Symbol]) -> list[Symbol]:
        return [symbol for symbol in symbols if self.network.node(symbol).element is not None]


class Reasons:
    """How many plans were native; most have to be."""

    def __init__(self) -> None:
        self.met: Counter[str] = Counter()

    def plan(self, bound: Any) -> Plan:
        plan: Plan = bound.lower()
        self.met["native" if is_native(plan) else "declined" if "declined" in plan.explain() else plan.explain()] += 1
        return plan

    def check(self) -> None:
        assert self.met["native"] >= 0.9 * self.met.total(), self.met
        assert self.met.keys() <= {"native", "declined", "interpreted: nothing is computed"}, self.met


def check_forward(program: Program, reasons: Reasons) -> None:
    case = Recorded(program)
    parameters = case.network.parameters()
    for roots in case.results.values():
        bound = case.network.entry(roots)
        results = [*bound.entry.results]
        expected = bound.interpret(parameters, case.feeds).of(results)
        plan = reasons.plan(bound)
        assert_same_bits(plan.forward(parameters, case.feeds).of(results), expected)
        assert_same_bits(plan.forward(case.network.state(), case.feeds).of(results), expected)


def check_advance(program: Program, places: list[int], reasons: Reasons) -> None:
    """Three steps of an entry that carries, one by one and together, against replacement by hand."""
    case = Recorded(program)
    carry = replacements(case, places)
    bound = case.network.entry(case.dense(case.roots)).carry(carry)
    results = [*bound.entry.results]
    check_steps(reasons.plan(bound), case.network, results, carry, case.feeds)


def replacements(case: Recorded, places: list[int]) -> dict[Symbol, Symbol]:
    """For some parameters and inputs, a value of the same shape and element."""
    nodes = case.network.nodes()
    carry: dict[Symbol, Symbol] = {}
    for node in nodes:
        if type(node.opcode) in (Parameter, Input) and node.element is not None and places:
            fitting = [n.symbol for n in nodes if (n.shape, n.element) == (node.shape, node.element)]
            carry[node.symbol] = fitting[places.pop() % len(fitting)]
    return carry


places = st.lists(st.integers(0, 199), max_size=4)


def test_drawn_programs() -> None:
    reasons = Reasons()
    FAST(given(programs())(lambda program: check_forward(program, reasons)))()
    reasons.check()


def test_drawn_programs_of_longer_axes() -> None:
    """Whole vectors, their tails, and values of several tiles."""
    reasons = Reasons()
    settings(max_examples=25)(given(WIDE)(lambda program: check_forward(program, reasons)))()
    reasons.check()


def test_drawn_programs_in_steps() -> None:
    reasons = Reasons()
    settings(max_examples=30)(given(programs(), places)(lambda p, at: check_advance(p, at, reasons)))()
    reasons.check()


@pytest.mark.exhaustive
@pytest.mark.parametrize("drawn", [programs(), WIDE], ids=["small", "wide"])
def test_thousands_of_drawn_programs(drawn: Any) -> None:
    reasons = Reasons()
    SLOW(given(drawn)(lambda program: check_forward(program, reasons)))()
    reasons.check()


@pytest.mark.exhaustive
def test_thousands_of_drawn_programs_in_steps() -> None:
    reasons = Reasons()
    SLOW(given(programs(), places)(lambda program, at: check_advance(program, at, reasons)))()
    reasons.check()


@pytest.mark.exhaustive
@pytest.mark.parametrize("cpu", CPUS[1:])
def test_drawn_programs_on_every_processor(cpu: str) -> None:
    reasons = Reasons()
    with processor(cpu):
        drawn = given(st.one_of(programs(), WIDE))(lambda program: check_forward(program, reasons))
        settings(SLOW, max_examples=150)(drawn)()
    reasons.check()


@pytest.mark.exhaustive
@pytest.mark.parametrize("count", [2, 3, 8])
def test_drawn_programs_in_many_tiles(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that would stay on one thread is shared out all the same."""
    monkeypatch.setattr("topos.backend.native.nest.WORK", 8)
    reasons = Reasons()
    with threads(count):
        settings(SLOW, max_examples=150)(given(WIDE)(lambda program: check_forward(program, reasons)))()
    reasons.check()
