import copy
import pickle
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from topos import (
    Entry,
    FeedError,
    KinshipError,
    Network,
    Parameters,
    Plan,
    ShapeError,
    State,
    Symbol,
    Tape,
    Tensor,
    f64,
)
from topos.engine import plan as plans
from topos.testing import assert_same_bits


class Names(NamedTuple):
    x: Symbol  # fed
    w: Symbol  # carried by training
    seen: Symbol  # an input that training carries
    rate: Symbol  # an input that nothing carries
    loss: Symbol
    hidden: Symbol
    carry: dict[Symbol, Symbol]


def recorded() -> tuple[Network, Names]:
    def record(tape: Tape) -> Any:
        x = tape.input([[1.0, 2.0]], name="x")
        w = tape.parameter([[0.5, -0.25], [0.25, 0.4]], name="w")
        seen, rate = tape.input(0.0, name="seen"), tape.input(0.05, name="rate")
        hidden = (x @ w).tanh()
        loss = (hidden * hidden).sum()
        gradient = tape.differentiate(loss, w).of(w)
        carry = {w: w - gradient * rate.broadcast([2, 2]), seen: seen + 1.0}
        return Names(x, w, seen, rate, loss, hidden, carry)  # type: ignore[arg-type]

    return Tape.record(record)


def training(network: Network, n: Names) -> Plan:
    return network.entry(n.loss).observe([n.hidden, n.seen]).carry(n.carry).lower()


def message(kind: type[Exception], call: Callable[[], Any]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return re.sub(r"\S*test_state\.py:\d+", "HERE", str(caught.value))


def snapshot(state: State) -> list[Any]:
    return [tensor.numpy().copy() for tensor in state.payloads() if tensor is not None]


def by_hand(network: Network, n: Names, state: State, feeds: Any) -> list[Tensor]:
    """One step without `advance`: everything is read from one run, then replaced."""
    entry = network.entry([n.loss, n.hidden, n.seen, *n.carry.values()])
    run = entry.interpret(state, feeds)
    results = run.of([n.loss, n.hidden, n.seen])
    state.replace({source.index: run.of(following) for source, following in n.carry.items()})
    return results


# the table


def test_a_state_holds_every_parameter_and_every_dense_input() -> None:
    network, names = Tape.record(
        lambda tape: (
            tape.leaf(1.0),
            tape.input([1.0, 2.0]),
            tape.selection([2], 3),
            tape.parameter(3.0),
            tape.input(shape=[2], element=f64),
        )
    )
    state = network.state()
    assert isinstance(state, State)
    assert state.rows() == [1, 3, 4]
    assert state.of(names[1]).tolist() == [1.0, 2.0]
    assert state.of(names[4]).element is f64
    assert message(KinshipError, lambda: state.of(names[2])) == "state: %2 is not one of its 3 entries"
    assert message(KinshipError, lambda: state.of(names[0])) == "state: %0 is not one of its 3 entries"
    parameters = state.parameters()
    assert isinstance(parameters, Parameters)
    assert parameters.rows() == [3]


def test_a_state_of_given_parameters() -> None:
    network, n = recorded()
    doubled = network.parameters().scale(2.0)
    state = network.state(doubled)
    assert_same_bits(state.of(n.w), doubled.of(n.w))
    training(network, n).advance(state)
    assert_same_bits(doubled.of(n.w), network.parameters().of(n.w) * 2.0)
    assert message(KinshipError, lambda: network.state(recorded()[0].parameters())) == (
        "state: the parameters belong to another spec"
    )
    assert message(FeedError, lambda: network.state({})) == "state: wants Parameters, got dict"  # type: ignore[arg-type]
    absent = doubled._with(dict.fromkeys(doubled.rows()))
    assert message(FeedError, lambda: network.state(absent)) == (
        "state: the parameters have no payload for %1 Parameter [2, 2] 'w' HERE"
    )


@pytest.mark.parametrize(
    "copying", [State.clone, copy.copy, copy.deepcopy, lambda state: pickle.loads(pickle.dumps(state))]
)
def test_copies_go_their_own_way(copying: Callable[[State], State]) -> None:
    network, n = recorded()
    plan = training(network, n)
    state = network.state()
    plan.advance(state)
    copied = copying(state)
    assert type(copied) is State
    before = snapshot(state)
    plan.advance(copied, steps=2)
    assert_same_bits(snapshot(state), before)
    plan.advance(state, steps=2)
    assert_same_bits(snapshot(state), snapshot(copied))
    assert copied.parameters().rows() == state.parameters().rows() == [n.w.index]


def test_of_is_a_snapshot() -> None:
    network, n = recorded()
    plan, state = training(network, n), network.state()
    held, table = state.of(n.w), state.parameters()
    before = held.numpy().copy()
    plan.advance(state, steps=3)
    assert_same_bits(held.numpy(), before)
    assert_same_bits(table.of(n.w), before)
    assert not np.array_equal(state.of(n.w).numpy(), before)


# advancing


def test_advance_is_forward_and_replacing_by_hand() -> None:
    network, n = recorded()
    plan = training(network, n)
    state, hand = network.state(), network.state()
    losses = []
    for step in range(5):
        feeds = {"x": [[1.0, 2.0 + step]]}
        run = plan.advance(state, feeds)
        expected = by_hand(network, n, hand, feeds)
        assert_same_bits(run.of([n.loss, n.hidden, n.seen]), expected)
        assert_same_bits(snapshot(state), snapshot(hand))
        assert float(run.of(n.seen)) == step  # the value from before it was replaced
        assert float(state.of(n.seen)) == step + 1
        losses.append(float(run.of(n.loss)))
    assert len(set(losses)) == 5


def test_the_losses_of_the_walk() -> None:
    network, n = recorded()
    state = network.state()
    run = training(network, n).advance(state, steps=6)
    assert [f"{loss:.4f}" for loss in run.of(n.loss).tolist()] == [
        "0.8305",
        "0.5910",
        "0.3760",
        "0.2014",
        "0.0826",
        "0.0260",
    ]


def test_all_replacements_of_a_step_happen_at_once() -> None:
    network, (a, b) = Tape.record(lambda tape: (tape.input(1.0), tape.input(2.0)))
    plan = network.entry([]).carry({a: b, b: a}).lower()
    state = network.state()
    for step in range(4):
        assert [state.of(a).tolist(), state.of(b).tolist()] == ([1.0, 2.0] if step % 2 == 0 else [2.0, 1.0])
        plan.advance(state)
    plan.advance(state, steps=3)
    assert [state.of(a).tolist(), state.of(b).tolist()] == [2.0, 1.0]


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_several_steps_are_single_ones(steps: int) -> None:
    network, n = recorded()
    plan = training(network, n)
    many, single = network.state(), network.state()
    per_step = np.random.default_rng(3).standard_normal((steps, 1, 2)).astype(np.float32)
    rates = np.linspace(0.01, 0.1, steps)
    run = plan.advance(many, {"x": per_step, "rate": rates}, steps=steps)
    runs = [plan.advance(single, {"x": per_step[k], "rate": rates[k]}) for k in range(steps)]
    assert_same_bits(snapshot(many), snapshot(single))
    for symbol in (n.loss, n.hidden, n.seen):
        stacked = np.stack([each.of(symbol).numpy() for each in runs])
        assert_same_bits(run.of(symbol), stacked)
        assert run.of(symbol).shape == [steps, *stacked.shape[1:]]
    # one feed of the node's own shape serves every step, a Tensor as well as an array
    shared, again = network.state(), network.state()
    run = plan.advance(shared, {"x": [[3.0, 4.0]], "rate": Tensor(rates.astype(np.float32))}, steps=steps)
    runs = [plan.advance(again, {"x": [[3.0, 4.0]], "rate": rates[k]}) for k in range(steps)]
    assert_same_bits(snapshot(shared), snapshot(again))
    assert_same_bits(run.of(n.loss), np.stack([each.of(n.loss).numpy() for each in runs]))


def test_ids_per_step() -> None:
    def record(tape: Tape) -> Any:
        ids = tape.selection([2], 3, absent=-1, name="ids")
        table, count = tape.parameter([[1.0], [2.0], [4.0]]), tape.input(0.0)
        total = table.gather(ids).sum()
        return ids, table, count, total, {count: count + total}

    network, (ids, table, count, total, carry) = Tape.record(record)
    plan = network.entry(total).carry(carry).lower()
    state = network.state()
    run = plan.advance(state, {"ids": np.array([[0, 1], [2, 2], [-1, 0]])}, steps=3)
    assert run.of(total).tolist() == [3.0, 8.0, 1.0]
    assert state.of(count).tolist() == 12.0
    assert plan.advance(state, {"ids": [1, 1]}, steps=2).of(total).tolist() == [4.0, 4.0]
    assert message(FeedError, lambda: plan.advance(state, {"ids": [[0, 1], [2, 3]]}, steps=2)) == (
        "feed: %0 Input [2, 3] 'ids' HERE (selection): ids: id 3 at [1, 1] is not one of the vocab's 0 .. 2"
    )
    assert message(FeedError, lambda: plan.advance(state, {"ids": [[0, 1]]}, steps=2)) == (
        "feed: %0 Input [2, 3] 'ids' HERE (selection): wants ids of shape [2] (or [2, 2], one per step), got [1, 2]"
    )
    whole = network.entry([total, ids]).carry(carry).lower()
    before = snapshot(state)
    assert message(ShapeError, lambda: whole.advance(state, {"ids": [0, 1]}, steps=2)) == (
        "advance: a selection is no result of several steps"
    )
    assert_same_bits(snapshot(state), before)


def test_unfed_inputs_are_read_from_the_state() -> None:
    network, n = recorded()
    plan = network.entry(n.rate).lower()
    state = network.state()
    keep = network.entry([]).carry({n.rate: n.seen}).lower()
    keep.advance(state)
    assert plan.forward(state).of(n.rate).tolist() == 0.0
    assert network.entry(n.rate).interpret(state).of(n.rate).tolist() == 0.0
    assert network.forward(state, {}).of(n.rate).tolist() == 0.0
    assert plan.forward(state, {"rate": 7.0}).of(n.rate).tolist() == 7.0  # for that run
    assert state.of(n.rate).tolist() == 0.0
    assert_same_bits(plan.forward(network.parameters()).of(n.rate), np.float32(0.05))  # the recorded default


def test_forward_leaves_the_state_alone() -> None:
    network, n = recorded()
    plan, state = training(network, n), network.state()
    before = snapshot(state)
    expected = plan.advance(network.state()).of(n.loss)
    for run in (plan.forward(state), network.entry(n.loss).carry(n.carry).interpret(state)):
        assert_same_bits(run.of(n.loss), expected)
    assert_same_bits(snapshot(state), before)


def test_an_input_that_the_entry_carries_is_not_fed() -> None:
    network, n = recorded()
    bound = network.entry(n.loss).carry(n.carry)
    plan, state = bound.lower(), network.state()
    before = snapshot(state)
    text = "feed: %2 Input [] 'seen' HERE is carried by this entry; the State holds its value"
    for key in ("seen", n.seen):
        assert message(FeedError, lambda k=key: plan.advance(state, {k: 1.0})) == text  # type: ignore[misc]
        assert message(FeedError, lambda k=key: plan.advance(state, {k: 1.0}, steps=2)) == text  # type: ignore[misc]
        assert message(FeedError, lambda k=key: plan.forward(state, {k: 1.0})) == text  # type: ignore[misc]
        assert message(FeedError, lambda k=key: bound.interpret(state, {k: 1.0})) == text  # type: ignore[misc]
    assert_same_bits(snapshot(state), before)
    assert plan.forward(network.parameters(), {"seen": 1.0}) is not None  # without a State nothing else holds it


def test_two_entries_share_a_state() -> None:
    network, n = recorded()
    train, state = training(network, n), network.state()
    evaluate = network.entry([n.loss, n.seen]).lower()
    for step in range(3):
        before = evaluate.forward(state)
        run = train.advance(state)
        assert_same_bits(before.of([n.loss, n.seen]), run.of([n.loss, n.seen]))
        assert evaluate.forward(state).of(n.seen).tolist() == step + 1.0
    reset = network.entry([]).carry({n.seen: n.rate}).lower()
    reset.advance(state)
    assert_same_bits(evaluate.forward(state).of(n.seen), np.float32(0.05))


# failures


def test_a_refused_call_leaves_the_state() -> None:
    network, n = recorded()
    plan, state = training(network, n), network.state()
    before = snapshot(state)
    for call, text in (
        (lambda: plan.advance(state, {"x": [1.0]}), "wants shape [1, 2], got [1]"),
        (lambda: plan.advance(state, {"x": np.zeros((3, 1, 2))}, steps=2), "wants shape [1, 2] (or [2, 1, 2], one per"),
        (lambda: plan.advance(state, {"x": np.zeros((1, 1, 2))}), "wants shape [1, 2], got [1, 1, 2]"),
        (lambda: plan.advance(state, {"y": 1.0}), "no node is named 'y'"),
        (lambda: plan.advance(state, [1.0]), "wants a mapping"),  # type: ignore[arg-type]
        (lambda: plan.advance(state, steps=True), "steps must be an integer of at least 1, got True"),
        (lambda: plan.advance(state, steps=0), "steps must be an integer of at least 1, got 0"),
        (lambda: plan.advance(state, steps=-1), "steps must be an integer of at least 1, got -1"),
        (lambda: plan.advance(state, steps=1.5), "steps must be an integer of at least 1, got 1.5"),  # type: ignore[arg-type]
        (lambda: plan.advance(network.parameters()), "advance: wants a State (network.state()), got Parameters"),  # type: ignore[arg-type]
    ):
        assert text in message(FeedError, call)
    assert message(KinshipError, lambda: plan.advance(recorded()[0].state())) == (
        "run: the table of parameters belongs to another spec"
    )
    retaining = network.entry(n.loss).carry(n.carry).backward().lower()
    assert message(ShapeError, lambda: retaining.advance(state, steps=2)) == (
        "advance: a run of several steps retains no values; lower without backward()"
    )
    assert_same_bits(snapshot(state), before)
    gradients = retaining.advance(state).backward(n.loss)
    assert_same_bits(gradients.of(n.w), np.array([[0.6397, 0.75025934], [1.2794, 1.5005187]], np.float32))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("broken_at", [0, 1, 3])
def test_an_interrupt_leaves_a_whole_number_of_steps(
    kind: type[BaseException], broken_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPOS_NATIVE", "0")  # a native step has no middle that Python could see
    network, n = recorded()
    plan, state, expected = training(network, n), network.state(), network.state()
    if broken_at:
        plan.advance(expected, steps=broken_at)
    original, calls = plans.execute, 0

    def breaking(steps: Any, values: Any, watch: Any = None) -> None:
        nonlocal calls
        calls += 1
        # in the middle of a step: some of its values are there, some are not
        original(steps[: len(steps) // 2] if calls == broken_at + 1 else steps, values, watch)
        if calls == broken_at + 1:
            raise kind

    with monkeypatch.context() as patch:
        patch.setattr(plans, "execute", breaking)
        with pytest.raises(kind):
            plan.advance(state, steps=5)
    assert_same_bits(snapshot(state), snapshot(expected))
    plan.advance(state, steps=5 - broken_at)
    whole = network.state()
    plan.advance(whole, steps=5)
    assert_same_bits(snapshot(state), snapshot(whole))


@pytest.mark.parametrize("native", ["0", "1"])
def test_an_interrupt_at_any_line_leaves_a_whole_number_of_steps(
    native: str, interrupted: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes between two lines: whichever it is, the state is that after none, one, two or all of the steps."""
    monkeypatch.setenv("TOPOS_NATIVE", native)

    def record(tape: Tape) -> Any:
        x, w = tape.input(2.0, name="x"), tape.parameter(1.0)
        seen = tape.input(0.0)
        return {w: w * x, seen: seen + 1.0}

    network, carry = Tape.record(record)
    plan = network.entry([]).carry(carry).lower().prepare()
    legal = [[state.of(symbol).tolist() for symbol in carry] for state in _states(network, plan, 3)]
    assert legal == [[1.0, 0.0], [2.0, 1.0], [4.0, 2.0], [8.0, 3.0]]
    outcomes: list[Any] = []
    while True:
        state = network.state()
        try:
            interrupted(lambda state=state: plan.advance(state, {"x": 2.0}, steps=3), len(outcomes))  # type: ignore[misc]
        except KeyboardInterrupt:
            outcomes.append([state.of(symbol).tolist() for symbol in carry])
        else:
            break
    assert [found for found in outcomes if found not in legal] == []
    if native == "0":  # native steps run several at a time
        assert [found for found in legal if found not in outcomes] == []
    assert [legal[0], legal[-1]] == [outcomes[0], outcomes[-1]]
    assert outcomes == sorted(outcomes)


def _states(network: Network, plan: Plan, steps: int) -> list[State]:
    states = [network.state()]
    for _ in range(steps):
        states.append(states[-1].clone())
        plan.advance(states[-1], {"x": 2.0})
    return states


def test_a_state_of_a_prefix_does_not_serve_what_grew() -> None:
    network, n = recorded()
    state = network.state()
    tape = network.into_tape()
    late = tape.input(5.0, name="late").symbol()
    grown = tape.into_network()
    assert message(FeedError, lambda: grown.entry(late).lower().forward(state)).startswith(
        "run: the table has no payload for "
    )
    assert grown.state().of(late).tolist() == 5.0
    plan = grown.compile(Entry(n.loss, carry=n.carry))
    plan.advance(state)  # what the old entry reads, the old state has
    assert state.of(n.seen).tolist() == 1.0


def test_a_carried_source_that_nothing_reads_is_replaced_all_the_same() -> None:
    network, (a, b, root) = Tape.record(lambda tape: (tape.parameter(1.0), tape.input(2.0) * 3.0, tape.leaf(0.0)))
    plan = network.entry(root).carry({a: b}).lower()
    state = network.state()
    plan.advance(state)
    assert state.of(a).tolist() == 6.0
    assert state.parameters().of(a).tolist() == 6.0


def test_what_a_state_holds_is_no_callers_array() -> None:
    network, (x, held) = Tape.record(lambda tape: (tape.input(np.zeros(3), name="x"), tape.input(np.zeros(3))))
    plan = network.entry([]).carry({held: x}).lower()
    for steps in (1, 2):
        fed = np.ones(3, np.float32) if steps == 1 else np.ones((2, 3), np.float32)
        state = network.state()
        plan.advance(state, {"x": fed}, steps=steps)
        fed[...] = 9
        assert state.of(held).tolist() == [1.0] * 3


def test_steps_of_numpy_are_steps() -> None:
    network, (count, after) = Tape.record(lambda tape: [count := tape.input(0.0), count + 1])
    plan, state = network.entry(count).carry({count: after}).lower(), network.state()
    assert plan.advance(state, steps=np.int64(3)).of(count).tolist() == [0.0, 1.0, 2.0]  # type: ignore[arg-type]
