"""Whose memory a result is: fed arrays are only borrowed, and a result keeps alive what it is and no more."""

import gc
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import Network, Run, Symbol, Tape, Tensor, Value
from topos.testing import assert_same_bits

ROUTES = ["whole", "interpret", "plan", "retaining", "retaining interpret"]
MIB = 2**20


def forward(network: Network, route: str, roots: Any) -> Callable[..., Run]:
    bound = network.entry(roots)
    routes = {
        "whole": network.forward,
        "interpret": bound.interpret,
        "plan": bound.lower().forward,
        "retaining": bound.backward().lower().forward,
        "retaining interpret": bound.backward().interpret,
    }
    return routes[route]


VIEWS: dict[str, Callable[[Value], Value]] = {
    "itself": lambda x: x,
    "stop": lambda x: x.stop(),
    "transpose": lambda x: x.transpose(),
    "reshape": lambda x: x.reshape([12]),
    "narrow": lambda x: x.narrow(0, 1, 2),
    "row": lambda x: x[1],
    "element": lambda x: x[1, 2],
    "broadcast": lambda x: x.broadcast_along(0, 5),
    "unfold": lambda x: x.unfold(1, 2),
    "narrow of windows": lambda x: x.unfold(1, 2, 2).narrow(1, 0, 1),
    "cast": lambda x: x.to(x.element),
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("contiguous", [True, False])
def test_a_result_never_aliases_what_was_fed(name: str, route: str, contiguous: bool) -> None:
    network, (x, view) = Tape.record(
        lambda tape: (x := tape.input(np.zeros((3, 4)), name="x"), VIEWS[name](x)),
    )
    base = np.zeros((6, 4), np.float32)
    fed = base[:3] if contiguous else base[::2]
    fed[...] = np.arange(12).reshape(3, 4)
    run = forward(network, route, [view])(network.parameters(), {"x": fed})
    result = run.of(view)
    before = result.numpy().copy()
    assert not np.shares_memory(result.numpy(), base)
    base[...] = -1
    assert_same_bits(result.numpy(), before)
    assert before.size
    assert before.min() >= 0


@pytest.mark.parametrize("route", ["whole", "retaining", "retaining interpret"])
def test_later_edits_change_no_gradient_of_a_retaining_run(route: str) -> None:
    def record(tape: Tape) -> Any:
        x, w = tape.input(np.zeros((2, 3)), name="x"), tape.parameter(np.ones((3, 2)))
        return x, w, (x @ w).tanh().sum()

    network, (x, w, loss) = Tape.record(record)
    fed = np.arange(6, dtype=np.float32).reshape(2, 3) / 8
    run = forward(network, route, [loss])(network.parameters(), {"x": fed})
    early = run.backward(loss)
    expected = [early.of(symbol).numpy().copy() for symbol in (x, w)]
    fed[...] = 100
    late = run.backward(loss)
    assert_same_bits([late.of(x), late.of(w)], expected)
    assert_same_bits([early.of(x), early.of(w)], expected)


@pytest.mark.parametrize("route", ROUTES)
def test_a_fed_array_is_not_kept(route: str) -> None:
    network, (x, y) = Tape.record(lambda tape: (x := tape.input(np.zeros(64), name="x"), x[1:3].tanh()))
    fed = np.zeros(64, np.float32)
    alive = weakref.ref(fed)
    run = forward(network, route, [y])(network.parameters(), {"x": fed})
    del fed
    gc.collect()
    assert alive() is None
    assert run.of(y).shape == [2]


def test_a_fed_array_is_left_as_it_was() -> None:
    network, (x, y) = Tape.record(lambda tape: (x := tape.input(np.zeros(3), name="x"), (x * 2.0 + x).relu().sum()))
    fed = np.array([1, -2, np.nan], np.float32)
    before = fed.copy()
    network.entry(y).lower().forward(network.parameters(), {"x": fed})
    network.forward(network.parameters(), {"x": fed}).backward(y)
    assert_same_bits(fed, before)
    assert fed.flags.writeable


def test_ids_are_copied() -> None:
    network, (ids, rows, table) = Tape.record(
        lambda tape: (
            i := tape.selection([2], 3, name="ids"),
            (t := tape.parameter([[1.0], [2.0], [3.0]])).gather(i).sum(),
            t,
        )
    )
    fed = np.array([0, 1])
    run = network.forward(network.parameters(), {"ids": fed})
    fed[:] = 2
    assert run.backward(rows).of(table).tolist() == [[1.0], [1.0], [0.0]]


SMALL: dict[str, Callable[[Value], Value]] = {
    "narrow": lambda x: x.narrow(0, 5, 3),
    "index": lambda x: x[7],
    "column": lambda x: x.reshape([1024, 1024])[:, 3],
    "sparse windows": lambda x: x.unfold(0, 1, 2**18),
    "spread element": lambda x: x[9].broadcast([3, 2]),
    "permuted part": lambda x: x.reshape([1024, 1024]).transpose().narrow(1, 0, 2),
}


@pytest.mark.parametrize("route", ["interpret", "plan"])
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("source", ["input", "parameter", "intermediate"])
def test_a_small_view_does_not_keep_a_large_buffer(name: str, route: str, source: str) -> None:
    def record(tape: Tape) -> Any:
        w = tape.parameter(np.zeros(2**20 if source == "parameter" else 0))
        x = w if source == "parameter" else tape.input(shape=[2**20], name="x")
        return x, SMALL[name](x.exp() if source == "intermediate" else x)

    network, (x, small) = Tape.record(record)
    parameters = network.parameters()
    feeds = {} if source == "parameter" else {"x": Tensor(np.zeros(2**20, np.float32))}
    result = forward(network, route, [small])(parameters, feeds).of(small)
    assert owner(result).nbytes <= 4 * 1024 * 2 + 64  # a native result begins on a cache line
    assert result.numpy().nbytes <= 4 * 1024 * 2


def owner(tensor: Tensor) -> Any:
    """The array at the root of the views that a tensor's numbers are read through."""
    array: Any = tensor.numpy()
    root = array
    while array is not None:
        root = array if isinstance(array, np.ndarray) else root
        array = getattr(array, "base", None)
    return root


def test_results_outlive_later_calls() -> None:
    network, (x, y) = Tape.record(lambda tape: (x := tape.input(np.zeros(4), name="x"), (x + 1.0, x.reshape([2, 2]))))
    plan = network.entry(list(y)).lower()
    parameters = network.parameters()
    runs = [plan.forward(parameters, {"x": np.full(4, float(k), np.float32)}) for k in range(5)]
    for k, run in enumerate(runs):
        assert [tensor.tolist() for tensor in run.of(y)] == [[k + 1.0] * 4, [[float(k)] * 2] * 2]
    assert not runs[0].of(y[0]).numpy().flags.writeable


# volumes: what a plan says is freed is freed


def chain(length: int, extent: int) -> tuple[Network, Symbol, Symbol]:
    def record(tape: Tape) -> Any:
        x = tape.input(shape=[extent], name="x")
        y = x
        for _ in range(length):
            y = y.exp()
        return x, y.sum()

    network, (x, total) = Tape.record(record)
    return network, x, total


def peak(call: Callable[[], Any]) -> float:
    """The most memory that was held at once during the call, above what was held before, in MiB."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        call()
        return (tracemalloc.get_traced_memory()[1] - before) / MIB
    finally:
        tracemalloc.stop()


def test_a_plan_frees_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPOS_NATIVE", "0")
    extent, length = MIB // 4, 24  # a node is 1 MiB
    network, x, total = chain(length, extent)
    plan, retaining = network.entry(total).lower(), network.entry(total).backward().lower()
    parameters = network.parameters()
    fed = {"x": np.zeros(extent, np.float32)}
    plan.forward(parameters, fed), retaining.forward(parameters, fed)
    volume = max(volume for _, volume in plan.live_series())
    assert volume == 2 * extent
    # the exponential itself works in binary64 with some temporaries beside operand and result
    work = peak(lambda: Tensor.filled([1], 0.0).broadcast_to([extent]).exp())
    released, retained = (peak(lambda p=p: p.forward(parameters, fed)) for p in (plan, retaining))
    assert released <= work + 3
    assert retained >= length - 1
    assert retained <= length + work + 3
    assert plan.describe().endswith(f"peak {2 * extent} elements at node 1, retain-all {(length + 1) * extent + 1}")


def test_dead_values_are_gone_when_the_next_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPOS_NATIVE", "0")
    network, x, total = chain(6, 1000)
    plan = network.entry(total).lower()
    alive: list[weakref.ref[Any]] = []
    counts: list[int] = []
    original = Tensor.of

    def watched(array: Any, element: Any, shape: Any = None) -> Tensor:
        counts.append(sum(reference() is not None for reference in alive))
        if isinstance(array, np.ndarray) and array.size == 1000:
            alive.append(weakref.ref(array))
        return original(array, element, shape)

    monkeypatch.setattr(Tensor, "of", watched)
    plan.forward(network.parameters(), {"x": np.ones(1000, np.float32)})
    assert len(alive) == 7
    assert max(counts) <= 2
    gc.collect()
    assert not any(reference() is not None for reference in alive)


def test_a_run_is_freed_with_its_last_reference() -> None:
    network, x, total = chain(6, 1000)
    run = network.forward(network.parameters(), {"x": np.ones(1000, np.float32)})
    alive = weakref.ref(run.of(network.nodes()[3].symbol)._array)
    gc.disable()
    try:
        del run
        assert alive() is None  # no cycle: the count alone frees it
    finally:
        gc.enable()


def test_failing_calls_hold_nothing() -> None:
    network, x, total = chain(2, 1000)
    plan = network.entry(total).lower()
    parameters = network.parameters()
    fed = np.ones(999, np.float32)
    alive = weakref.ref(fed)
    for _ in range(3):
        with pytest.raises(ValueError):
            plan.forward(parameters, {"x": fed})
    del fed
    gc.collect()
    assert alive() is None


def test_memory_stays_flat_over_many_calls_and_refusals() -> None:
    def record(tape: Tape) -> Any:
        x, w = tape.input(np.ones((2, 3)), name="x"), tape.parameter(np.ones((3, 2)))
        loss = (x @ w).tanh().mean()
        gradient = tape.differentiate(loss, w).of(w)
        return w, loss, w - gradient * 0.1

    network, (w, loss, following) = Tape.record(record)
    train, look = network.entry(loss).carry({w: following}).lower(), network.entry(loss).lower()
    state, parameters = network.state(), network.parameters()
    losses = []

    def work(times: int) -> None:
        for step in range(times):
            losses.append(train.advance(state).of(loss))
            look.forward(parameters, {"x": np.ones((2, 3))})
            network.forward(parameters).backward(loss)
            if step % 4 == 0:
                with pytest.raises(ValueError):
                    look.forward(parameters, {"x": np.ones(step)})

    work(50)
    losses.clear()
    gc.collect()
    tracemalloc.start()
    try:
        work(20)
        kept = len(losses)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        work(200)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    # each loss that is kept is a number and its tensor, and no graph behind it
    assert grown / (len(losses) - kept) < 600


# volumes as they are told


def test_live_series_with_views_ids_and_carries() -> None:
    def record(tape: Tape) -> Any:
        table = tape.parameter(np.zeros((5, 4)))  # 20
        ids = tape.selection([3], 5)  # 3 ids
        rows = table.gather(ids)  # 12
        seen = tape.input(0.0)  # 1
        return table, ids, rows, seen, rows.sum(), seen + 1.0

    network, (table, ids, rows, seen, total, following) = Tape.record(record)
    plan = network.entry(total).carry({seen: following}).lower()
    assert [(symbol.index, volume) for symbol, volume in plan.live_series()] == [
        (0, 20),
        (1, 23),
        (2, 35),
        (3, 13),
        (4, 14),
        (5, 3),
        (6, 4),
    ]
    assert plan.describe().endswith("live volume: peak 35 elements at node 2, retain-all 39")
    assert " carries 3\n" in plan.describe()
    assert [node.symbol for node in plan.nodes()] == [symbol for symbol, _ in plan.live_series()]
    kept = network.entry([total, rows]).lower()
    assert max(volume for _, volume in kept.live_series()) == 35
    assert repr(kept) == "Plan(4 of 7 nodes, 2 readable)"


def test_a_floor_is_told_of_a_retaining_plan() -> None:
    network, x, total = chain(3, 10)
    text = network.entry(total).backward().lower().describe().splitlines()
    # the rule of exp reads its output, so every output is retained and the input is not
    assert [line.split("]")[-1].strip() for line in text[:-2]] == [
        "releasable after 1",
        "retained",
        "retained",
        "retained",
        "kept",
    ]
    assert text[-2:] == [
        "plan: retain; 5 of 5 nodes evaluated, 1 readable",
        "live volume: retain-all 41, release floor 31 at node 4",
    ]


def test_one_value_may_replace_several_sources() -> None:
    def record(tape: Tape) -> Any:
        a, b, c = (tape.input(float(number)) for number in range(3))
        return a, b, c, a + b

    network, (a, b, c, total) = Tape.record(record)
    plan = network.entry(total).carry({c: total, a: total}).lower()
    assert plan.describe().splitlines()[-3].endswith("  carries 0, 2")
    assert "plan: forward; 3 of 4 nodes evaluated, 1 readable\n" in plan.describe()
    state = network.state()
    run = plan.advance(state, steps=3)
    assert run.of(total).tolist() == [1.0, 2.0, 3.0]
    assert [state.of(symbol).tolist() for symbol in (a, b, c)] == [3.0, 1.0, 3.0]
