"""How a plan falls to its chain: who computes what, in which bits, and what the plan says about it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from topos import (
    Backend,
    Declined,
    Dispatch,
    Element,
    ElementError,
    Fidelity,
    Formula,
    Numerics,
    Shape,
    Stretch,
    Tape,
    Task,
    Tensor,
    f32,
    f64,
)
from topos.backend import election
from topos.testing import assert_same_bits, same_bits

from .mine import Mine, Step, product

NATIVE = [Backend.FUSED, Backend.SIMD]


def numpy_product(left: Any, right: Any) -> Any:
    return (left.astype(np.float64) @ right).astype(np.float32)


class Elected(Mine):
    """Elected for products: the answer to a task is a kernel."""

    name = "ELECTED"
    dispatch = Dispatch.ELECTED

    def __init__(self, answer: Any = lambda task: numpy_product) -> None:
        super().__init__(answer)


class Whole(Backend):
    """Translates whatever stretch it is given, by the reference, and keeps what it was given."""

    name = "WHOLE"
    dispatch = Dispatch.TRANSLATED

    def __init__(self, without: str = "") -> None:
        self.given: list[Stretch] = []
        self.without = without

    def coverage(self, formula: Formula) -> Any:
        return Backend.FUSED.coverage(formula)

    def offer(self, task: Stretch) -> Any:
        self.given.append(task)
        refused = tuple(row for row in task.rows if task.spec.rows[row].opcode.name == self.without)
        return Declined(f"it has no {self.without}", refused) if refused else Walk(task)


class Walk:
    def __init__(self, task: Stretch) -> None:
        self.task = task

    def run(self, sources: Any) -> dict[int, Tensor]:
        values = dict(sources)
        for index in self.task.rows:
            row = self.task.spec.rows[index]
            if row.operands:
                values[index] = row.opcode.express([values[operand] for operand in row.operands])
            elif index not in values:
                values[index] = self.task.spec.payloads[index]
        return {row: values[row] for row in self.task.kept}


def test_the_default_plan_is_what_fused_made_and_is_counted(step: Step) -> None:
    bound = step.network.entry(step.results)
    with Backend.tallied() as services:
        assert_same_bits(step.run(bound), step.expected)
    assert services.by_formula == {
        "GEMM": {"FUSED": 5},
        "MAP": {"FUSED": services.count("MAP")},
        "MOVE": {"FUSED": services.count("MOVE")},
        "REDUCE": {"FUSED": 1},
        "SUM": {"FUSED": 2},
    }
    assert bound.lower().explain().splitlines()[-1].startswith("native: ")


def test_a_step_that_carries_is_counted_once_per_step() -> None:
    def record(tape: Tape) -> Any:
        weight = tape.parameter([1.0, 2.0])
        return weight, weight.sum(), weight * 0.5

    network, (weight, total, half) = Tape.record(record)
    plan = network.entry(total).carry({weight: half}).lower()
    with Backend.tallied() as services:
        plan.advance(network.state(), steps=3)
    assert services.by_formula == {"MAP": {"FUSED": 3}, "MOVE": {"FUSED": 3}, "SUM": {"FUSED": 3}}
    with Backend.tallied() as services:
        plan.forward(network.parameters())
    assert services.by_formula == {"SUM": {"FUSED": 1}}


def test_no_backend_is_the_interpreter(step: Step) -> None:
    plan = step.entry().lower()
    with Backend.tallied() as services:
        assert_same_bits(plan.forward(step.parameters).of(step.results), step.expected)
    assert services.count() == services.count(backend="REFERENCE") > 20
    assert plan.explain() == "interpreted: no backend is asked"
    assert plan.llvm() == "; interpreted: no backend is asked\n"


def test_who_is_not_ready_is_named(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPOS_NATIVE", "0")
    plan = step.entry(*NATIVE).lower()
    assert plan.explain() == ("interpreted: FUSED: switched off: TOPOS_NATIVE=0; SIMD: switched off: TOPOS_NATIVE=0")
    assert_same_bits(plan.forward(step.parameters).of(step.results), step.expected)


def test_a_machine_without_native_code_is_told_once(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topos.backend.native.llvm.available", lambda: "llvmlite is not installed")
    bound = step.network.entry(step.results)
    with pytest.warns(RuntimeWarning) as caught:
        assert_same_bits(step.run(bound), step.expected)
    reason = "not installed: llvmlite is not installed"
    assert [str(warning.message) for warning in caught] == [
        f"plans run without FUSED: {reason}",
        f"plans run without SIMD: {reason}",
    ]
    assert_same_bits(step.run(bound), step.expected)  # and no warning, which would be an error here
    assert bound.lower().explain() == f"interpreted: FUSED: {reason}; SIMD: {reason}"


def test_one_instruction_at_a_time_has_the_bits(step: Step) -> None:
    with Backend.tallied() as services:
        assert_same_bits(step.run(step.entry(Backend.SIMD)), step.expected)
    assert services.by_formula["MOVE"] == {"REFERENCE": services.count("MOVE")}
    assert services.count(backend="REFERENCE") == services.count("MOVE")


@pytest.mark.parametrize("dispatch", ["offered", "elected"])
def test_a_users_products_stand_between_fused_stretches(
    dispatch: str, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topos.backend.lowering.gain", lambda *facts: election.ALONE)
    mine = Mine() if dispatch == "offered" else Elected()
    plan = step.entry(mine, *NATIVE).lower()
    with Backend.tallied() as services:
        results = plan.forward(step.parameters).of(step.results)
    assert services.by_formula["GEMM"] == {mine.name: 5}
    assert services.by_formula["MAP"] == {"FUSED": services.count("MAP")}
    assert services.count(backend="SIMD") == 0
    for got, wanted in zip(results, step.expected, strict=True):
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-6)
    stretches = [line for line in plan.explain().splitlines() if line.startswith("FUSED")]
    assert stretches == [
        "FUSED       6 nodes, %11 to %23",  # the seed's way to the logits, which needs no product
        "FUSED       3 nodes, %4 to %38",
        "FUSED       7 nodes, %6 to %27",
        "FUSED       4 nodes, %33 to %41",
        "FUSED       1 nodes, %49 to %49",
    ]
    assert "define void @elementwise_" in plan.llvm()


def test_operands_that_are_only_moved_reach_a_product_as_views(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topos.backend.lowering.gain", lambda *facts: election.ALONE)
    seen: list[Any] = []

    def kernel(left: Any, right: Any) -> Any:
        seen.extend(array for array in (left, right) if not array.flags.c_contiguous)
        return numpy_product(left, right)

    step.run(step.entry(Elected(lambda task: kernel), *NATIVE))
    assert len(seen) == 3  # two transposed weights or inputs of the rules, and the tanh's transpose


def test_a_task_says_what_is_wanted(step: Step) -> None:
    mine = Mine()
    step.run(step.entry(mine, *NATIVE))
    task = mine.asked[0]
    assert (task.formula, task.opcode.name, task.element, task.shape) == (Formula.GEMM, "MatMul", f32, Shape([8, 20]))
    assert [array.shape for array in task.arrays()] == [(8, 30), (30, 20)]
    assert task.elements == {f32}
    assert not task.has_selection


def test_who_declines_leaves_it_to_the_next(step: Step) -> None:
    mine, silent = Mine(lambda task: Declined("too small")), Mine(lambda task: None)
    with Backend.tallied() as services:
        assert_same_bits(step.run(step.entry(mine, silent, *NATIVE)), step.expected)
    assert services.by_formula["GEMM"] == {"SIMD": 5}
    assert len(mine.asked) == len(silent.asked) == 5


def test_who_covers_another_element_is_not_asked() -> None:
    mine = Mine()
    network, y = Tape.record(lambda tape: tape.leaf([[1.0, 2.0]]) @ tape.leaf([[3.0], [4.0]]), element=f64)
    plan = network.entry(y).backends([mine]).lower()
    assert plan.forward(network.parameters()).of(y).tolist() == [[11.0]]
    assert plan.explain() == "interpreted: no backend takes GEMM over f64"
    assert mine.asked == []


def test_exact_leaves_out_who_departs_from_the_bits(step: Step) -> None:
    mine, elected = Mine(), Elected()
    for chain in ([mine, elected, Backend.BLAS, *NATIVE], [mine, elected, Backend.BLAS]):
        assert_same_bits(step.run(step.entry(*chain).numerics(Numerics.EXACT)), step.expected)
    assert mine.asked == elected.asked == []


def test_exact_admits_who_has_the_bits(step: Step) -> None:
    class Same(Mine):
        fidelity = Fidelity.COMPOSED

    mine = Same(lambda task: Backend.SIMD.offer(task))
    assert_same_bits(step.run(step.entry(mine, *NATIVE).numerics(Numerics.EXACT)), step.expected)
    assert len(mine.asked) == 5


def test_a_kernel_within_an_envelope_has_to_gain(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    for ratio, elected in ((1.09, False), (1.5, True)):
        monkeypatch.setattr("topos.backend.lowering.gain", lambda *facts, ratio=ratio: ratio)
        plan = step.entry(Elected(), *NATIVE).lower()
        assert ("ELECTED" in plan.explain()) == elected
    assert "%3 MatMul [8, 20]  measured 1.5 times as fast as the exact kernel" in plan.explain()


def test_gains_are_measured_once_and_small_savings_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "_measured", {})
    measured: list[Any] = []
    times = [(1e-3, 2e-3), (1e-5, 2e-5)]
    monkeypatch.setattr(election, "_alternately", lambda *runs: times[measured.append(runs) or len(measured) - 1])
    ratios = []
    for rows in (3, 3, 4):
        operands = (Tensor.filled([rows, 2], 1.0), Tensor.filled([2, 2], 1.0))
        task = Task(Formula.GEMM, _matmul(), f32, Shape([rows, 2]), operands)
        ratios.append(election.gain(Backend.BLAS, numpy_product, task, NATIVE))
    assert ratios == [2.0, 2.0, 1.0]
    assert len(measured) == 2
    assert election.gain(Backend.BLAS, numpy_product, task, [Backend.FUSED]) == election.ALONE


def test_the_slower_of_two_measures_slower() -> None:
    quick, slow = election._alternately(lambda: None, lambda: sum(range(20000)))
    assert 0 < quick < slow


def _matmul() -> Any:
    from topos.op import MATMUL

    return MATMUL


def test_a_stretch_is_the_plan_where_nobody_stands_in_between(step: Step) -> None:
    whole = Whole()
    plan = step.entry(whole).lower()
    assert_same_bits(plan.forward(step.parameters).of(step.results), step.expected)
    (task,) = whole.given
    assert list(task.rows) == [node.symbol.index for node in plan.nodes()]
    assert task.kept == frozenset(symbol.index for symbol in step.results)


def test_a_stretch_goes_on_without_the_rows_that_were_refused(step: Step) -> None:
    whole = Whole(without="Tanh")
    plan = step.entry(whole, Backend.SIMD).lower()
    with Backend.tallied() as services:
        assert_same_bits(plan.forward(step.parameters).of(step.results), step.expected)
    assert services.by_formula["MAP"]["SIMD"] == 1
    assert services.by_formula["GEMM"] == {"WHOLE": 5}
    assert plan.explain().splitlines()[-1] == "WHOLE: declined: it has no Tanh"


def test_who_gives_no_reason_leaves_the_plan_to_the_next(step: Step) -> None:
    whole = Whole()
    whole.offer = lambda task: None  # type: ignore[method-assign]
    plan = step.entry(whole).lower()
    assert plan.explain() == "interpreted: WHOLE: declined: it gave no reason"
    plan = step.entry(whole, Backend.FUSED).lower()
    assert_same_bits(plan.forward(step.parameters).of(step.results), step.expected)
    assert plan.explain().splitlines()[-1].startswith("native: ")


def test_a_stretch_that_raises_is_computed_by_the_reference(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Walk, sources: Any) -> Any:
        raise OSError("device lost")

    monkeypatch.setattr(Walk, "run", broken)
    whole = Whole(without="Tanh")
    plan = step.entry(whole).lower()
    with pytest.warns(RuntimeWarning, match="^backend WHOLE is asked no more: it raised OSError: device lost$"):
        results = plan.forward(step.parameters).of(step.results)
    assert_same_bits(results, step.expected)
    assert whole.status().reason == "poisoned: OSError: device lost"


def test_a_native_plan_that_raises_is_interpreted_from_now_on(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = step.network.entry(step.results).lower().prepare()
    native = type(plan._native.form(stepping=False).code)

    def broken(self: Any, sources: Any, is_settled: bool) -> Any:
        raise OSError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(native, "run", broken)
        message = "^a plan is interpreted from now on: its native form raised OSError: no more$"
        with pytest.warns(RuntimeWarning, match=message):
            assert_same_bits(plan.forward(step.parameters).of(step.results), step.expected)
    assert plan.explain() == "interpreted: its native form raised OSError: no more"


def test_want_of_memory_keeps_a_native_plan(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = step.network.entry(step.results).lower().prepare()
    native = plan._native.form(stepping=False).code

    def greedy(self: Any, sources: Any, is_settled: bool) -> Any:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(type(native), "run", greedy)
        assert_same_bits(plan.forward(step.parameters).of(step.results), step.expected)
    assert plan._native.form(stepping=False).code is native


def test_carried_steps_run_through_the_chain() -> None:
    def record(tape: Tape) -> Any:
        weight = tape.parameter([[0.5, -0.25], [0.25, 0.5]])
        loss = (tape.input([[1.0, 2.0]]) @ weight).tanh().sum()
        return weight, loss, weight - 0.5 * tape.differentiate(loss, [weight]).of(weight)

    network, (weight, loss, after) = Tape.record(record)
    bound = network.entry(loss).carry({weight: after})
    states = []
    for chain in ([], [Mine(lambda task: Backend.SIMD.offer(task)), *NATIVE], [Backend.SIMD], NATIVE):
        state = network.state()
        run = bound.backends(chain).lower().advance(state, steps=3)
        states.append([run.of(loss), state.of(weight)])
    for other in states[1:]:
        assert_same_bits(other, states[0])


def test_selections_and_constants_cross_from_part_to_part() -> None:
    def record(tape: Tape) -> Any:
        ids = tape.selection([4], vocab=3, name="ids")
        table = tape.parameter([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        rows = table.gather(ids) * 2.0
        mixed = rows @ tape.leaf([[1.0, -1.0], [0.5, 2.0]])
        return [mixed, mixed.broadcast_along(0, 2).sum_along(0), ids @ table, tape.leaf([[7.0]]).reshape([1])]

    network, results = Tape.record(record)
    feeds = {"ids": [2, 0, 1, 1]}
    expected = network.entry(results).interpret(network.parameters(), feeds).of(results)
    for chain in ([Mine(lambda task: None), *NATIVE], [Backend.SIMD], [Mine(product), Backend.FUSED], NATIVE):
        got = network.entry(results).backends(chain).lower().forward(network.parameters(), feeds).of(results)
        if chain[0] is Backend.SIMD or chain is NATIVE:
            assert_same_bits(got, expected)
        np.testing.assert_allclose(got[0].numpy(), expected[0].numpy(), rtol=1e-6)
        assert_same_bits(got[3], expected[3])


def test_a_mistake_in_a_users_element_is_placed_and_is_nobodys_poison() -> None:
    class Bare(Element):
        name = "bare"
        dtype = np.dtype(np.float32)

        def round(self, numbers: Any) -> Any:
            return np.asarray(numbers, np.float32)

    mine = Mine()
    network, y = Tape.record(lambda tape: (tape.leaf([1.0]) * 2.0).tanh(), element=Bare())
    with pytest.raises(ElementError) as caught:
        network.entry(y).backends([mine, *NATIVE]).lower().forward(network.parameters())
    assert str(caught.value) == "mul: element bare does not define it\n  node %3 Mul [1]"
    assert not any(backend.is_poisoned for backend in (mine, *NATIVE))


def test_values_that_nobody_reads_any_more_are_let_go(step: Step) -> None:
    plan = step.entry(Backend.SIMD).lower()
    served = plan._native.form(stepping=False).code
    freed = [row for dying in served._dying for row in dying]
    computed = {row for unit in served._units for row in unit.rows}
    assert len(set(freed)) == len(freed)
    assert set(freed) == computed - {symbol.index for symbol in step.results}


def test_two_departures_differ_and_the_exact_ones_do_not(step: Step) -> None:
    departed = step.run(step.entry(Mine(lambda task: product(task) * np.float32(1.0001)), *NATIVE))
    assert not same_bits(departed, step.expected)


def test_a_plan_that_retains_serves_every_value_through_its_chain(step: Step) -> None:
    class Same(Mine):
        fidelity = Fidelity.COMPOSED

    loss = step.results[0]
    expected = step.network.forward(step.parameters)
    for chain in ([Same(lambda task: Backend.SIMD.offer(task)), *NATIVE], [Backend.SIMD], NATIVE, []):
        run = step.network.entry(loss).backward().backends(chain).lower().forward(step.parameters)
        assert_same_bits(
            run.backward(loss).parameters(step.parameters), expected.backward(loss).parameters(step.parameters)
        )
