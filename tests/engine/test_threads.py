"""One network, its plans and its tables, used from many threads at once."""

import copy
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from topos import Network, Symbol, Tape
from topos.engine.sources import Sources
from topos.graph import Family
from topos.testing import assert_same_bits

WORKERS = 8


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def recorded() -> tuple[Network, dict[str, Any]]:
    def record(tape: Tape) -> Any:
        x = tape.input(np.zeros((4, 3)), name="x")
        w = tape.parameter(np.linspace(-1, 1, 6).reshape(3, 2), name="w")
        seen = tape.input(0.0)
        hidden = (x @ w).softmax(1)
        loss = (hidden * hidden).mean()
        return {
            "x": x,
            "w": w,
            "hidden": hidden,
            "loss": loss,
            "adjoints": tape.differentiate(loss, w),
            "carry": {seen: seen + loss},
        }

    return Tape.record(record)


def together(work: Callable[[int], Any], count: int = WORKERS) -> list[Any]:
    """The answers of `count` threads that start at the same moment."""
    barrier = threading.Barrier(count)

    def started(worker: int) -> Any:
        barrier.wait()
        return work(worker)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(started, range(count)))


def test_many_threads_share_a_network_and_a_plan() -> None:
    network, names = recorded()
    parameters = network.parameters()
    plan = network.entry(names["adjoints"]).observe(names["hidden"]).lower()
    fed = [np.random.default_rng(k).standard_normal((4, 3)).astype(np.float32) for k in range(WORKERS)]
    roots = [*names["adjoints"].roots(), names["hidden"]]
    expected = [plan.forward(parameters, {"x": each}).of(roots) for each in fed]
    text, digest = network.describe(), network.fingerprint

    def work(worker: int) -> bool:
        for _ in range(20):
            assert_same_bits(plan.forward(parameters, {"x": fed[worker]}).of(roots), expected[worker])
            run = network.forward(parameters, {names["x"]: fed[worker]})
            assert_same_bits(run.backward(names["loss"]).of(names["w"]), expected[worker][1])
        own = network.entry(roots).lower()
        assert_same_bits(own.forward(parameters, {"x": fed[worker]}).of(roots), expected[worker])
        assert network.describe() == text
        assert network.fingerprint == digest
        return True

    assert together(work) == [True] * WORKERS


def test_one_run_is_swept_from_many_threads() -> None:
    network, names = recorded()
    run = network.forward(network.parameters(), {"x": np.ones((4, 3))})
    gradients = run.backward(names["loss"])
    expected = [gradients.of(node.symbol) for node in network.nodes()]

    def work(worker: int) -> bool:
        own = run.backward(names["loss"])
        for _ in range(5):
            assert_same_bits([own.of(node.symbol) for node in network.nodes()], expected)
            assert_same_bits([gradients.of(node.symbol) for node in network.nodes()], expected)
        return True

    assert together(work) == [True] * WORKERS


def test_states_of_several_threads_do_not_meet() -> None:
    network, names = recorded()
    plan = network.entry(names["loss"]).carry(names["carry"]).lower()
    shared = network.state()
    alone = network.state()
    plan.advance(alone, {"x": np.ones((4, 3))}, steps=10)

    def work(worker: int) -> Any:
        state = shared.clone() if worker % 2 else network.state()
        plan.advance(state, {"x": np.ones((4, 3))}, steps=10)
        return state

    for state in together(work):
        assert_same_bits(state, alone)
    assert_same_bits(shared, network.state())


def test_a_reader_sees_a_state_before_or_after_a_step() -> None:
    def record(tape: Tape) -> Any:
        a, b = tape.input(0.0), tape.input(0.0)
        return a, b, {a: a + 1.0, b: b + 1.0}

    network, (a, b, carry) = Tape.record(record)
    plan = network.entry([]).carry(carry).lower()
    look = network.entry([a, b]).lower()
    state = network.state()
    done = threading.Event()
    torn: list[Any] = []

    def read() -> None:
        while not done.is_set():
            table = copy.copy(state)
            if table.of(a).tolist() != table.of(b).tolist():
                torn.append(table)
            for pair in (look.forward(state).of([a, b]), look.forward(state.clone()).of([a, b])):
                if pair[0].tolist() != pair[1].tolist():
                    torn.append(pair)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(300):
            plan.advance(state)
    finally:
        done.set()
        reader.join()
    assert not torn
    assert state.of(a).tolist() == 300.0


def test_a_run_reads_a_state_at_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    network, (a, b) = Tape.record(lambda tape: (tape.input(0.0), tape.input(0.0)))
    plan, state = network.entry([a, b]).lower(), network.state()
    original = Sources.held

    def replaced_meanwhile(*arguments: Any) -> Any:
        tensor = original(*arguments)
        state.replace({symbol.index: state.of(symbol) + 1.0 for symbol in (a, b)})
        return tensor

    monkeypatch.setattr(Sources, "held", replaced_meanwhile)
    run = plan.forward(state)
    assert [tensor.tolist() for tensor in run.of([a, b])] == [0.0, 0.0]
    assert state.of(a).tolist() == 2.0


def test_recording_in_several_threads_is_each_threads_own() -> None:
    expected = recorded()[0].fingerprint
    assert set(together(lambda worker: recorded()[0].fingerprint)) == {expected}


def test_symbols_unpickled_at_once_are_of_one_family() -> None:
    network, names = recorded()
    sent = pickle.dumps(names["w"])
    for _ in range(20):
        symbols: list[Symbol] = together(lambda worker: pickle.loads(sent))
        assert len({id(symbol.family) for symbol in symbols}) == 1
        assert set(symbols) == {names["w"]}


def test_families_made_at_once_from_an_identity_are_one() -> None:
    for round in range(50):
        families = together(lambda worker, round=round: Family(f"shared {round}"))
        assert len({id(family) for family in families}) == 1
