"""Calls like the one before take a short way: whatever changes in between, they answer as a first call does."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from topos import Backend, FeedError, Network, Plan, ShapeError, State, Symbol, Tape, Tensor, bf16, f64
from topos.engine.native import Native
from topos.testing import assert_same_bits

X = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


class Step:
    """A step over a dense input, a selection and an input that nobody has to feed; all of a kind of result."""

    def __init__(self) -> None:
        tape = Tape()
        x, ids = tape.input(shape=[2, 2], name="x"), tape.selection([2], 2, name="ids")
        rate = tape.input(0.5, name="rate")
        w = tape.parameter(np.array([[0.5, -0.25], [0.25, 0.4]]), name="w")
        product = x @ w + w.gather(ids)
        results = [product.sum(), product, product.to(f64).exp(), product.to(bf16), product.broadcast_along(0, 300)]
        carried = {w: w * rate.broadcast([2, 2]) + product}
        self.results = [value.symbol() for value in results]
        self.x, self.ids, self.rate, self.w = x.symbol(), ids.symbol(), rate.symbol(), w.symbol()
        self.carry = {source.symbol(): following.symbol() for source, following in carried.items()}
        self.network: Network = tape.into_network()
        self.bound = self.network.entry(self.results).carry(self.carry)
        self.plan: Plan = self.bound.lower()

    def by_hand(self, state: State, feeds: Any) -> list[np.ndarray]:
        """One step by the interpreter: what is read, and the replacements made in the state given."""
        run = self.network.entry([*self.results, *self.carry.values()]).interpret(state, feeds)
        state.replace({source.index: run.of(following) for source, following in self.carry.items()})
        return [tensor.numpy().copy() for tensor in run.of(self.results)]


@pytest.fixture
def step() -> Step:
    return Step()


def fed(number: float) -> dict[str, Any]:
    return {"x": Tensor(X * number), "ids": Tensor.selection([1, 0], 2)}


def unaligned(array: np.ndarray) -> np.ndarray:
    memory = np.zeros(array.nbytes + 1, np.uint8)[1:]
    memory[:] = np.frombuffer(array.tobytes(), np.uint8)
    return memory.view(array.dtype).reshape(array.shape)


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


DENSE: dict[str, Callable[[np.ndarray], Any]] = {
    "tensor": Tensor,
    "array": np.copy,
    "read-only": lambda array: read_only(array.copy()),
    "unaligned": unaligned,
    "fortran": np.asfortranarray,
    "backwards": lambda array: array[::-1].copy()[::-1],
    "spread": lambda array: np.broadcast_to(array[0], array.shape),
    "big-endian": lambda array: array.astype(">f4"),
    "f64": lambda array: array.astype(np.float64),
    "integers": lambda array: array.astype(np.int32),
    "list": np.ndarray.tolist,
    "spread tensor": lambda array: Tensor(array[0]).broadcast_along(0, 2),
}
IDS: dict[str, Callable[[list[int]], Any]] = {
    "selection": lambda ids: Tensor.selection(ids, 2),
    "array": np.array,
    "narrow array": lambda ids: np.array(ids, np.uint8),
    "list": list,
}


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("dense", DENSE)
def test_the_short_way_is_taken(dense: str, ids: str, step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever kind of payload comes: what is under test here would otherwise hardly be."""
    pytest.importorskip("llvmlite")
    state, parameters = step.network.state(), step.network.parameters()
    call = step.plan.function(["x", "ids"], step.results)
    calls: list[Callable[[Any], Any]] = [
        lambda feeds: step.plan.advance(state, feeds),
        lambda feeds: step.plan.advance(state, feeds, steps=2),
        lambda feeds: step.plan.forward(parameters, feeds),
        lambda feeds: call(parameters, *feeds.values()),
    ]
    for again in calls:
        again(fed(1))
        with monkeypatch.context() as patch:
            for part in ("advance", "forward"):
                patch.setattr(Native, part, lambda *facts: pytest.fail("the long way"))
            for _ in range(2):
                again({"x": DENSE[dense](X), "ids": IDS[ids]([1, 1])})


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("dense", DENSE)
def test_feeds_of_any_kind_after_feeds_of_the_usual_one(dense: str, ids: str, step: Step) -> None:
    state, by_hand, parameters = step.network.state(), step.network.state(), step.network.parameters()
    call = step.plan.function([step.x, "ids"], step.results)
    for at in range(4):
        array, chosen = X * (at + 1), [at % 2, 1]
        feeds = {"x": DENSE[dense](array), "ids": IDS[ids](chosen)} if at % 2 else fed(at + 1)
        assert_same_bits(
            step.plan.forward(state, feeds).of(step.results), step.bound.interpret(state, feeds).of(step.results)
        )
        expected = step.bound.interpret(parameters, feeds).of(step.results)
        assert_same_bits(step.plan.forward(parameters, feeds).of(step.results), expected)
        assert_same_bits(list(call(parameters, *feeds.values())), expected)
        expected = step.by_hand(by_hand, feeds)
        assert_same_bits(step.plan.advance(state, feeds).of(step.results), expected)
        expected = step.by_hand(by_hand, feeds)
        assert_same_bits(step.plan.advance(state, feeds).of(step.results), expected)
        assert_same_bits(state, by_hand)


def stacked(at: int, steps: int) -> list[dict[str, Any]]:
    """The feeds of some steps, one by one."""
    return [{"x": X * (at + step), "ids": [step % 2, at % 2]} for step in range(steps)]


SERIES: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "alike": lambda feeds: feeds[0],
    "one each": lambda feeds: {key: np.stack([fed[key] for fed in feeds]) for key in feeds[0]},
    "one each of x": lambda feeds: {**feeds[0], "x": np.stack([fed["x"] for fed in feeds])},
    "one each of ids": lambda feeds: {**fed(1), "ids": [fed["ids"] for fed in feeds]},
    "backwards": lambda feeds: {**feeds[0], "x": np.stack([fed["x"] for fed in feeds[::-1]])[::-1]},
    "f64": lambda feeds: {**feeds[0], "x": np.stack([fed["x"] for fed in feeds]).astype(np.float64)},
}


def each(feeds: Any, step: int) -> dict[str, Any]:
    """What one step is fed of several."""
    x, ids = feeds["x"], feeds["ids"]
    return {
        "x": x[step] if isinstance(x, np.ndarray) and x.ndim == 3 else x,
        "ids": ids[step] if np.ndim(ids) == 2 and not isinstance(ids, Tensor) else ids,
    }


def test_many_steps_of_any_feeds_by_turns(step: Step) -> None:
    """Payloads of each step after one for all and back, more steps and fewer, and single ones between."""
    state, by_hand = step.network.state(), step.network.state()
    for at, (first, second) in enumerate(itertools.product(SERIES, SERIES)):
        for kind, steps in ((first, 3), (second, 2), (second, 3)):
            feeds = SERIES[kind](stacked(at, steps))
            columns = zip(*[step.by_hand(by_hand, each(feeds, part)) for part in range(steps)], strict=True)
            run = step.plan.advance(state, feeds, steps=steps)
            assert_same_bits(run.of(step.results), [np.stack(column) for column in columns])
        if at % 3 == 0:
            expected = step.by_hand(by_hand, fed(0.5))
            assert_same_bits(step.plan.advance(state, fed(0.5)).of(step.results), expected)
        rates = {step.rate.index: Tensor(1 / (at + 2)), step.w.index: step.network.parameters().of(step.w)}
        state.replace(rates), by_hand.replace(rates)
    assert_same_bits(state, by_hand)


@pytest.mark.parametrize("kind", SERIES)
def test_the_short_way_is_taken_for_payloads_of_each_step(
    kind: str, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("llvmlite")
    state = step.network.state()
    step.plan.advance(state, SERIES["one each"](stacked(0, 3)), steps=3)
    monkeypatch.setattr(Native, "advance", lambda *facts: pytest.fail("the long way"))
    step.plan.advance(state, SERIES[kind](stacked(1, 2)), steps=2)


def test_many_steps_that_are_refused_leave_all_as_it_was(step: Step) -> None:
    state, by_hand = step.network.state(), step.network.state()
    for feeds, steps in (
        ({**fed(1), "x": np.stack([X] * 4)}, 3),
        ({**fed(1), "ids": [[0, 1], [0, 2]]}, 2),
        ({**fed(1), "x": Tensor(X, f64)}, 3),
        (fed(1), 0),
        (fed(1), True),
        (fed(1), 2.0),
    ):
        expected = [step.by_hand(by_hand, fed(2)) for _ in range(2)]
        run = step.plan.advance(state, fed(2), steps=2)
        assert_same_bits(run.of(step.results), [np.stack(column) for column in zip(*expected, strict=True)])
        messages = []
        for plan in (step.bound.lower(), step.plan):
            with pytest.raises(FeedError) as caught:
                plan.advance(state, feeds, steps=steps)  # type: ignore[arg-type]
            messages.append(str(caught.value))
        assert messages[0] == messages[1]
    with pytest.raises(ShapeError, match=r"at most 64 axes and 2\*\*59 elements"):
        step.plan.advance(state, fed(2), steps=1 << 60)
    assert_same_bits(state, by_hand)


def test_keys_of_any_kind_in_any_order(step: Step) -> None:
    state, by_hand = step.network.state(), step.network.state()
    for at in range(3):
        for keys in (
            ("x", "ids"),
            ("ids", "x"),
            (step.x, "ids"),
            ("x", step.ids),
            ("x", "ids", "rate"),
            ("".join("x"), "ids"),
        ):
            payloads = {**fed(at), "rate": 0.25 * at}
            feeds = {key: payloads[{step.x: "x", step.ids: "ids"}.get(key, key)] for key in keys}
            for _ in range(2):
                expected = step.by_hand(by_hand, feeds)
                assert_same_bits(step.plan.advance(state, feeds).of(step.results), expected)
                assert_same_bits(step.plan.advance(step.network.state(), feeds).of(step.results[0]).shape, ())
    assert_same_bits(state, by_hand)


def test_a_state_that_changes_between_two_steps(step: Step) -> None:
    """Read, replaced, stepped by another plan, copied: the step starts from what it holds, and no snapshot changes."""
    other = step.network.entry([]).carry({step.w: step.w}).lower()
    rates = step.network.entry([]).carry({step.rate: step.rate}).lower()
    doubled = step.network.parameters().scale(2.0)
    held: list[tuple[Any, np.ndarray]] = []

    def keep(tensor: Tensor) -> None:
        held.append((tensor, tensor.numpy().copy()))

    between: list[Callable[[State], Any]] = [
        lambda state: keep(state.of(step.w)),
        lambda state: state.of(step.rate),
        lambda state: keep(state.parameters().of(step.w)),
        lambda state: state.replace({step.w.index: doubled.of(step.w)}),
        lambda state: state.replace({step.rate.index: Tensor(0.125)}),
        lambda state: other.advance(state),
        lambda state: rates.advance(state),
        lambda state: keep(state.clone().of(step.w)),
        lambda state: step.plan.forward(state, fed(3)),
        lambda state: step.plan.advance(state.clone(), fed(3)),
        lambda state: step.plan.advance(state, fed(1), steps=2),
        lambda state: None,
    ]
    state, by_hand = step.network.state(), step.network.state()
    for change in between * 2:
        for _ in range(2):
            expected = step.by_hand(by_hand, fed(0.5))
            assert_same_bits(step.plan.advance(state, fed(0.5)).of(step.results), expected)
        change(state)
        change(by_hand)
        assert_same_bits(state.clone(), by_hand.clone())
    for tensor, before in held:
        assert_same_bits(tensor, before)


def test_tables_by_turns(step: Step) -> None:
    states, by_hand = [[step.network.state(step.network.parameters().scale(k)) for k in (1, 2)] for _ in range(2)]
    tables = [step.network.parameters().scale(k) for k in (1, 2)]
    for at in (0, 1, 1, 0, 0, 1, 0):
        expected = step.by_hand(by_hand[at], fed(at))
        assert_same_bits(step.plan.advance(states[at], fed(at)).of(step.results), expected)
        expected = step.bound.interpret(tables[at], fed(at)).of(step.results)
        assert_same_bits(step.plan.forward(tables[at], fed(at)).of(step.results), expected)
    assert_same_bits(states, by_hand)


def test_refusals_read_as_those_of_a_first_call(step: Step) -> None:
    refused: list[Any] = [
        {**fed(1), "x": X[:1]},
        {**fed(1), "x": Tensor(X, f64)},
        {**fed(1), "x": "numbers"},
        {**fed(1), "x": Tensor.selection([1, 0], 2)},
        {**fed(1), "ids": X},
        {**fed(1), "ids": Tensor(X)},
        {**fed(1), "ids": [0, 2]},
        {**fed(1), "ids": Tensor.selection([0, -1], 2, absent=-1)},
        {**fed(1), "ids": Tensor.selection([0, 1], 3)},
        {"x": Tensor(X)},
        {**fed(1), "y": 1.0},
        {**fed(1), step.x: X},
        {**fed(1), step.w: X},
        [("x", X)],
    ]
    first, state, by_hand = step.bound.lower(), step.network.state(), step.network.state()
    for feeds in refused:
        expected = step.by_hand(by_hand, fed(2))
        assert_same_bits(step.plan.advance(state, fed(2)).of(step.results), expected)
        messages = []
        for plan in (first, step.plan):
            with pytest.raises(FeedError) as caught:
                plan.advance(state, feeds)
            messages.append(str(caught.value))
        assert messages[0] == messages[1]
    assert_same_bits(state, by_hand)
    for table in (Step().network.parameters(), step.network.parameters().map(lambda w: w), None, 3):
        try:
            expected = step.bound.lower().forward(table, fed(1)).of(step.results)  # type: ignore[arg-type]
        except Exception as error:
            with pytest.raises(type(error)) as caught:
                step.plan.forward(table, fed(1))  # type: ignore[arg-type]
            assert str(caught.value) == str(error)
        else:
            assert_same_bits(step.plan.forward(table, fed(1)).of(step.results), expected)  # type: ignore[arg-type]


def test_a_run_that_is_read_late_shows_its_own_values(step: Step) -> None:
    state, by_hand = step.network.state(), step.network.state()
    runs = [step.plan.advance(state, fed(at)) for at in range(6)]
    expected = [step.by_hand(by_hand, fed(at)) for at in range(6)]
    for run, values in zip(reversed(runs), reversed(expected), strict=True):
        assert_same_bits(run.of(step.results), values)
        assert all(first is second for first, second in zip(run.of(step.results), run.of(step.results), strict=True))
        assert not any(tensor.numpy().flags.writeable for tensor in run.of(step.results))


def test_a_result_that_several_threads_read_is_one_tensor(step: Step) -> None:
    state = step.network.state()
    with ThreadPoolExecutor(4) as four:
        for at in range(50):
            run = step.plan.advance(state, fed(0.1 * at))
            assert len({id(tensor) for tensor in four.map(run.of, step.results[:1] * 8)}) == 1


@pytest.mark.parametrize("steps", [None, 2])
def test_what_was_fed_is_not_kept(step: Step, steps: int | None) -> None:
    state = step.network.state()
    for kind in (np.copy, np.asfortranarray, lambda array: array.astype(np.float64)):
        for _ in range(3):
            array = kind(X)
            alive = weakref.ref(array)
            run = step.plan.advance(state, {**fed(1), "x": array}, steps)
            del array
            gc.collect()
            assert alive() is None
            assert run.of(step.results[0]).shape == (() if steps is None else (steps,))
    if steps is not None:
        array = np.stack([X] * steps)
        alive = weakref.ref(array)
        step.plan.advance(state, {**fed(1), "x": array}, steps)
        del array
        gc.collect()
        assert alive() is None


def test_a_state_that_is_let_go_is_not_kept(step: Step) -> None:
    state = step.network.state()
    for _ in range(3):
        step.plan.advance(state, fed(1))
        step.plan.forward(state, fed(1))
    alive = weakref.ref(state)
    del state
    gc.collect()
    assert alive() is None


class Curious:
    """A payload that looks into the state while it is read."""

    def __init__(self, state: State, symbol: Symbol) -> None:
        self.state, self.symbol, self.seen = state, symbol, []  # type: ignore[var-annotated]

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        tensor = self.state.of(self.symbol)
        self.seen.append((tensor, tensor.numpy().copy()))
        return X


def test_a_payload_that_reads_the_state_has_a_snapshot(step: Step) -> None:
    state, by_hand = step.network.state(), step.network.state()
    curious = Curious(state, step.w)
    for at in range(4):
        payload = curious if at % 2 else X
        expected = step.by_hand(by_hand, {**fed(1), "x": X})
        assert_same_bits(step.plan.advance(state, {**fed(1), "x": payload}).of(step.results), expected)
    assert curious.seen
    for tensor, before in curious.seen:
        assert_same_bits(tensor, before)


def test_every_call_is_tallied(step: Step) -> None:
    state, counts = step.network.state(), []
    for _ in range(3):
        with Backend.tallied() as services:
            step.plan.advance(state, fed(1))
            step.plan.forward(step.network.parameters(), fed(1))
        counts.append(services.by_formula)
    assert counts[0] == counts[1] == counts[2] != {}


def test_many_threads_step_and_read_by_turns(step: Step) -> None:
    """Steps of one state exclude one another, whichever way they take, while others read and replace."""
    counting, (count, after) = Tape.record(lambda tape: (count := tape.input(np.zeros(70)), count + 1))
    plan, state = counting.entry(count).carry({count: after}).lower(), counting.state()
    barrier = threading.Barrier(4)

    def work(worker: int) -> bool:
        barrier.wait()
        fine = True
        for at in range(100):
            seen = plan.advance(state).of(count).numpy()
            fine &= bool((seen == seen[0]).all())
            if at % (worker + 2) == 0:
                held = state.of(count)
                before = held.numpy().copy()
                plan.advance(state)
                fine &= np.array_equal(held.numpy(), before)
        return fine

    with ThreadPoolExecutor(4) as four:
        assert all(four.map(work, range(4)))
    assert (state.of(count).numpy() == 400 + sum(-(-100 // (worker + 2)) for worker in range(4))).all()


class Replacing:
    """Numbers that replace another feed in the caller's mapping when they are read; `held` says who holds that one."""

    def __init__(self, feeds: dict[str, Any], numbers: np.ndarray) -> None:
        self.feeds, self.numbers = feeds, numbers
        self.held: list[bool] = []

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        before = weakref.ref(self.feeds["x"])
        self.feeds["x"] = X
        gc.collect()
        self.held.append(before() is not None)
        return self.numbers


@pytest.mark.parametrize("stepping", [False, True])
def test_a_feed_lives_as_long_as_the_call_whatever_becomes_of_the_mapping(step: Step, stepping: bool) -> None:
    """Another thread may change it too, while native code reads the memory."""
    state, by_hand = step.network.state(), step.network.state()
    entry = step.network.entry(step.results).carry(step.carry) if stepping else step.network.entry(step.results)
    plan = entry.lower()
    run = plan.advance if stepping else plan.forward
    feeds: dict[str, Any] = fed(1.0)
    for number in (1.0, 2.0, 3.0):
        feeds["x"], feeds["rate"] = X * np.float32(number), Replacing(feeds, np.asarray(0.5, np.float32))
        expected = step.by_hand(by_hand, {"x": X * np.float32(number), "ids": feeds["ids"], "rate": 0.5})
        if not stepping:
            by_hand = step.network.state()
        assert_same_bits(run(state, feeds).of(step.results), expected)
        assert feeds["rate"].held == [True]
