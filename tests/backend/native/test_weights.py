"""Weights that are packed once: never stale, gone with their table, and the bits of one that is packed each time."""

from __future__ import annotations

import gc
import os
import threading
from typing import Any

import numpy as np
import pytest

from topos import Network, Parameters, Plan, Symbol, Tape, Tensor, bf16, f32, f64
from topos.backend.native import weights
from topos.tensor.beside import beside
from topos.testing import assert_same_bits

from ..plans import lowered, threads

pytest.importorskip("llvmlite")

from topos.backend.native.target import current  # noqa: E402

pytestmark = pytest.mark.skipif(not current().has_fma, reason="where products are emulated, packing takes no time")

TERMS, COLUMNS = 530, 260


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


class Layer:
    """A product of a few rows with a weight, and a bias."""

    def __init__(self, rows: int = 8, transposed: bool = False, element: Any = f32, stored: Any = None) -> None:
        def record(tape: Tape) -> Any:
            shape = (COLUMNS, TERMS) if transposed else (TERMS, COLUMNS)
            self.weight = tape.parameter(numbers(*shape), element=stored or element)
            bias, x = tape.parameter(numbers(COLUMNS)), tape.input(numbers(rows, TERMS))
            weight = self.weight.to(element) if stored else self.weight
            return x @ (weight.transpose() if transposed else weight) + bias.broadcast_along(0, rows), self.weight

        self.network: Network
        self.result: Symbol
        self.network, (self.result, self.weight) = Tape.record(record, element=element)
        self.plan: Plan = lowered(self.network.entry(self.result))

    def table(self, seed: int) -> Parameters:
        """Parameters of other numbers."""
        return self.network.parameters().map(lambda own: Tensor(numbers(*own.shape, seed=seed), own.element))

    def panels(self, table: Any) -> list[Any]:
        """What is kept beside the weight of a table."""
        return [kept for kept in (beside(table.of(self.weight)) or {}).values() if kept is not None]

    def check(self, table: Any) -> None:
        """The interpreter's bits."""
        expected = self.network.entry(self.result).interpret(table).of(self.result)
        assert_same_bits(self.plan.forward(table).of(self.result), expected)


@pytest.mark.parametrize("count", [1, 2, 8])
@pytest.mark.parametrize("rows", [4, 8, 37, 128])
def test_the_third_run_has_the_bits_of_the_first(rows: int, count: int) -> None:
    with threads(count):
        for transposed in (False, True):
            layer = Layer(rows, transposed)
            table = layer.table(1)
            for run in range(4):
                layer.check(table)
                assert len(layer.panels(table)) == (run > 0)


@pytest.mark.parametrize(("element", "stored"), [(f64, None), (bf16, None), (f32, bf16), (f64, f32)])
def test_elements_and_narrower_weights(element: Any, stored: Any) -> None:
    layer = Layer(17, element=element, stored=stored)
    table = layer.table(1)
    for _ in range(3):
        layer.check(table)
    assert layer.panels(table)


@pytest.mark.parametrize("rows", [1, 3, 129])
def test_too_few_or_many_rows_keep_nothing(rows: int) -> None:
    layer = Layer(rows)
    table = layer.table(1)
    for _ in range(3):
        layer.check(table)
    assert not layer.panels(table)


def test_tables_take_turns() -> None:
    layer = Layer()
    tables = [layer.table(seed) for seed in range(3)]
    for _ in range(3):
        for table in tables:
            layer.check(table)
    assert all(layer.panels(table) for table in tables)


def test_a_table_used_once_is_not_packed() -> None:
    layer = Layer()
    for seed in range(3):
        table = layer.table(seed)
        layer.check(table)
        assert not layer.panels(table)


def test_panels_go_with_their_table_and_its_memory_may_be_used_again() -> None:
    layer = Layer()
    gc.collect()
    before = weights.held_bytes()
    for seed in range(20):  # new tensors come to lie where old ones lay, under their names
        table = layer.table(seed)
        layer.check(table)
        layer.check(table)
        assert weights.held_bytes() > before
        del table
        gc.collect()
        assert weights.held_bytes() == before


def test_a_state_that_advances_between_runs_is_never_stale() -> None:
    layer = Layer()

    def record(tape: Tape) -> Any:
        weight, x = tape.parameter(numbers(TERMS, COLUMNS)), tape.input(numbers(8, TERMS))
        return weight, x @ weight, weight * 0.5 + 1.0

    layer.network, (layer.weight, layer.result, following) = Tape.record(record)
    layer.plan = lowered(layer.network.entry(layer.result))
    stepping = lowered(layer.network.entry([]).carry({layer.weight: following}))
    state = layer.network.state()
    for _ in range(4):
        for _ in range(3):
            layer.check(state.parameters())
            expected = layer.network.entry(layer.result).interpret(state.parameters()).of(layer.result)
            assert_same_bits(layer.plan.forward(state).of(layer.result), expected)
            assert_same_bits(layer.plan.advance(state).of(layer.result), expected)
        stepping.advance(state)
        stepping.advance(state)


def test_a_run_of_a_state_reads_no_panels_where_another_plan_writes_in_place() -> None:
    def record(tape: Tape) -> Any:
        weight, x = tape.parameter(numbers(TERMS, COLUMNS)), tape.input(numbers(8, TERMS))
        return weight, x @ weight, weight * 0.5 + 1.0

    network, (weight, result, following) = Tape.record(record)
    plan = lowered(network.entry(result))
    stepping = lowered(network.entry([]).carry({weight: following}))
    state, table = network.state(), network.parameters()
    for _ in range(5):
        expected = network.entry(result).interpret(table).of(result)
        for _ in range(3):  # which hands out no buffer of the State, so the step goes on in the same one
            assert_same_bits(plan.advance(state).of(result), expected)
        stepping.advance(state)
        following_of = network.entry(following).interpret(table).of(following)
        table = table.map(lambda _, fresh=following_of: fresh)


def test_frozen_memory_is_packed_by_every_run() -> None:
    layer = Layer()
    memory = numbers(TERMS, COLUMNS).astype(np.float32)
    shared = memory.view()
    shared.flags.writeable = False
    frozen = Tensor.frozen(shared)
    table = layer.table(1).zip(layer.table(1), lambda own, _: frozen if own.shape == frozen.shape else own)
    for _ in range(3):
        layer.check(table)
        memory *= 2.0
    assert beside(table.of(layer.weight)) is None


def test_a_constant_is_packed_at_the_second_run() -> None:
    constant = Tensor(numbers(TERMS, COLUMNS), f32)
    before = weights.held_bytes()
    network, result = Tape.record(lambda tape: tape.input(numbers(8, TERMS)) @ constant)
    plan = lowered(network.entry(result)).prepare()
    expected = network.entry(result).interpret(network.parameters()).of(result)
    for _ in range(3):
        assert_same_bits(plan.forward(network.parameters()).of(result), expected)
    assert weights.held_bytes() > before
    assert_same_bits(
        plan.advance(network.state(), steps=2).of(result).narrow(0, 1, 1).reshape(expected.shape), expected
    )


def test_two_threads_with_two_tables() -> None:
    layer = Layer(16)
    tables = [layer.table(seed) for seed in (1, 2)]
    expected = [layer.network.entry(layer.result).interpret(table).of(layer.result) for table in tables]
    failures: list[Any] = []

    def run(at: int) -> None:
        try:
            for round in range(60):
                chosen = (at + round // 7) % 2
                assert_same_bits(layer.plan.forward(tables[chosen]).of(layer.result), expected[chosen])
        except AssertionError as failure:
            failures.append(failure)

    workers = [threading.Thread(target=run, args=(at,)) for at in range(4)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    assert not failures


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Layer()
    tables = [layer.table(seed) for seed in range(3)]
    layer.check(tables[0])
    layer.check(tables[0])
    (panels,) = layer.panels(tables[0])
    monkeypatch.setattr(weights, "MOST_BYTES", weights.held_bytes() + panels.memory.nbytes)
    for _ in range(3):
        for table in tables:
            layer.check(table)
    assert [len(layer.panels(table)) for table in tables] == [1, 1, 0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_child_reads_the_panels_of_its_parent(script: Any) -> None:
    text = """
        import os, warnings
        import numpy as np
        from topos import Tape
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        record = lambda tape: tape.input(np.ones((8, 530))) @ tape.parameter(np.ones((530, 260)))
        network, result = Tape.record(record)
        plan, table = network.entry(result).lower(), network.parameters()
        for _ in range(3):
            expected = plan.forward(table).of(result).numpy().tobytes()
        child = os.fork()
        if not child:
            fresh = table.map(lambda tensor: tensor * 1.0)
            same = [plan.forward(each).of(result).numpy().tobytes() == expected for each in [table, fresh] * 3]
            os._exit(0 if all(same) else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert script(text) == "0\n"


def test_explain_tells_where_panels_are_kept() -> None:
    layer = Layer()
    assert "bytes kept beside %0" in layer.plan.explain()
    assert "kept beside" not in Layer(2).plan.explain()
