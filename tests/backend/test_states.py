"""Steps in place: what a caller holds of a State never changes under it, and a replacement reads values from before."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from topos import Network, Symbol, Tape, bf16, f32, f64
from topos.testing import assert_same_bits

from .plans import lowered, threads

SIZES = (5, 130)
"""On one thread, and in tiles."""


class Carried:
    """A recording with its carry, and the plan of one of its entries."""

    def __init__(self, record: Callable[[Tape], tuple[Any, dict[Any, Any]]], element: Any = f32) -> None:
        tape = Tape(element)
        results, carry = record(tape)
        self.results: list[Symbol] = [value.symbol() for value in results]
        self.carry = {source.symbol(): following.symbol() for source, following in carry.items()}
        self.network: Network = tape.into_network()
        bound = self.network.entry(self.results).carry(self.carry)
        self.plan = lowered(bound)

    def by_hand(self, state: Any, feeds: Any = None) -> list[np.ndarray]:
        """One step by the interpreter: what is read, and the replacements made in the state given."""
        run = self.network.entry([*self.results, *self.carry.values()]).interpret(state, feeds)
        answer = [tensor.numpy().copy() for tensor in run.of(self.results)]
        state.replace({source.index: run.of(following) for source, following in self.carry.items()})
        return answer


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def swap(tape: Tape, size: int) -> Any:
    a, b = tape.parameter(normal(1, size, size)), tape.parameter(normal(2, size, size))
    return [a + b], {a: b, b: a}


def rotation(tape: Tape, size: int) -> Any:
    a, b, c = (tape.parameter(normal(at, size, size)) for at in range(3))
    return [a - c, b], {a: b + 0.5, b: c * 2, c: a - b}


def transposed(tape: Tape, size: int) -> Any:
    a = tape.parameter(normal(1, size, size))
    return [a], {a: a.transpose()}


def shifted(tape: Tape, size: int) -> Any:
    """Each row takes the one before: a copy in place would run over itself."""
    a = tape.parameter(normal(1, size, size))
    return [a.sum()], {a: a.narrow(0, 0, size - 1).pad(0, 1, size, 0.25)}


def shifted_back(tape: Tape, size: int) -> Any:
    a = tape.parameter(normal(1, size, size))
    return [a.sum()], {a: a.narrow(0, 1, size - 1).pad(0, 0, size, 0.25)}


def product(tape: Tape, size: int) -> Any:
    a = tape.parameter(normal(1, size, size) / size)
    return [a @ a], {a: a @ a.transpose() + a}


def softened(tape: Tape, size: int) -> Any:
    a = tape.parameter(normal(1, size, size))
    return [a.max_along(0)], {a: a.softmax(1) + a.softmax(0)}


def scattered(tape: Tape, size: int) -> Any:
    from topos import Tensor

    a = tape.parameter(normal(1, size, size))
    ids = tape.leaf(Tensor.selection(np.random.default_rng(3).integers(-1, size, size), size, absent=-1))
    return [a.gather(ids)], {a: a.scatter(ids)}


def read_before(tape: Tape, size: int) -> Any:
    """The source itself is a result, and so is its replacement."""
    a = tape.parameter(normal(1, size, size))
    after = a * 0.5 + 1
    return [a, after, a.transpose()], {a: after}


def fixed(tape: Tape, size: int) -> Any:
    a, b = tape.parameter(normal(1, size, size)), tape.parameter(normal(2, size, size))
    return [a - b], {a: a, b: tape.leaf(normal(3, size, size))}


def one_for_two(tape: Tape, size: int) -> Any:
    a, b = tape.parameter(normal(1, size, size)), tape.input(normal(2, size, size))
    after = (a + b).tanh()
    return [after], {a: after, b: after}


RULES = (
    swap, rotation, transposed, shifted, shifted_back, product, softened, scattered, read_before, fixed, one_for_two,
)  # fmt: skip
rules = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
sizes = pytest.mark.parametrize("size", SIZES)


@rules
@sizes
def test_a_replacement_reads_values_from_before(rule: Any, size: int) -> None:
    """Step by step, several at once, and by hand; on one thread and on three."""
    carried = Carried(lambda tape: rule(tape, size))
    for number in (1, 3):
        with threads(number):
            single, several, by_hand = (carried.network.state() for _ in range(3))
            expected = []
            for _ in range(4):
                expected.append(carried.by_hand(by_hand))
                assert_same_bits(carried.plan.advance(single).of(carried.results), expected[-1])
                assert_same_bits(single.payloads(), by_hand.payloads())
            stacked = carried.plan.advance(several, steps=4).of(carried.results)
            assert_same_bits(stacked, [np.stack(steps) for steps in zip(*expected, strict=True)])
            assert_same_bits(several.payloads(), by_hand.payloads())


@rules
@pytest.mark.parametrize("element", [f64, bf16], ids=str)
def test_replacements_of_other_elements(rule: Any, element: Any) -> None:
    carried = Carried(lambda tape: rule(tape, 7), element)
    state, by_hand = carried.network.state(), carried.network.state()
    for _ in range(3):
        expected = carried.by_hand(by_hand)
        assert_same_bits(carried.plan.advance(state).of(carried.results), expected)
        assert_same_bits(state.payloads(), by_hand.payloads())


@rules
def test_what_a_caller_holds_stays_as_it_was(rule: Any) -> None:
    """Snapshots, copies, tables, the network's own payloads and the results of earlier steps."""
    carried = Carried(lambda tape: rule(tape, 9))
    parameters = carried.network.parameters()
    state = carried.network.state(parameters)
    sources = list(carried.carry)
    snapshots: list[tuple[Any, list[np.ndarray]]] = []

    def keep(*held: Any) -> None:
        for tensors in held:
            snapshots.append((tensors, [tensor.numpy().copy() for tensor in tensors]))

    copy = state.clone()
    keep([copy.of(source) for source in sources], [carried.network.payload(source) for source in sources])
    for steps in (None, 1, 3, None, None):
        keep([state.of(source) for source in sources], state.clone().parameters().payloads())
        keep(state.parameters().payloads(), [state.clone().of(source) for source in sources])
        keep(carried.plan.advance(state, steps=steps).of(carried.results))
        keep(carried.plan.forward(state).of(carried.results))
    for tensors, before in snapshots:
        assert_same_bits(tensors, before)
    # What was copied goes its own way, from where it was.
    fresh = carried.network.state()
    assert_same_bits(copy.payloads(), fresh.payloads())
    assert_same_bits(carried.plan.advance(copy).of(carried.results), carried.by_hand(fresh))
    assert_same_bits(copy.payloads(), fresh.payloads())
    assert_same_bits(parameters.payloads(), carried.network.parameters().payloads())


def accumulating(tape: Tape) -> Any:
    x = tape.input(shape=[6, 6], name="x")
    w = tape.parameter(normal(1, 6, 6), name="w")
    after = w * 0.5 + x
    return [w + x, after], {w: after}


def test_a_feed_that_is_a_view_of_the_state() -> None:
    """What the State holds is fed back to the step that replaces it: read before it is written."""
    carried = Carried(accumulating)
    state, by_hand = carried.network.state(), carried.network.state()
    (w,) = carried.carry
    for turn in (lambda a: a, lambda a: a.T, lambda a: a[::-1], lambda a: np.broadcast_to(a[0], (6, 6))):
        fed = turn(state.of(w).numpy())
        before = fed.copy()
        expected = carried.by_hand(by_hand, {"x": before})
        assert_same_bits(carried.plan.advance(state, {"x": fed}).of(carried.results), expected)
        assert_same_bits(state.payloads(), by_hand.payloads())
        assert_same_bits(fed, before)


def stacks(dense: np.ndarray) -> dict[str, np.ndarray]:
    """A feed per step, under other strides."""
    return {
        "dense": dense,
        "fortran": np.asfortranarray(dense),
        "backwards": dense[::-1].copy()[::-1],
        "rows backwards": dense[:, ::-1].copy()[:, ::-1],
        "turned": dense.transpose(0, 2, 1).copy().transpose(0, 2, 1),
        "spaced": np.repeat(dense, 2, axis=0)[::2],
        "f64": dense.astype(np.float64),
        "big-endian": dense.astype(">f4"),
        "one for all": dense[0],
        "one for all, repeated": np.broadcast_to(dense[0], dense.shape),
    }


@pytest.mark.parametrize("name", stacks(normal(0, 3, 6, 6)))
def test_steps_over_stacked_feeds_of_any_strides(name: str) -> None:
    carried = Carried(accumulating)
    feeds = stacks(normal(4, 5, 6, 6))[name]
    state, by_hand = carried.network.state(), carried.network.state()
    parts = feeds if feeds.ndim == 3 else [feeds] * 5
    expected = [carried.by_hand(by_hand, {"x": np.array(part, np.float32)}) for part in parts]
    before = feeds.tobytes()
    stacked = carried.plan.advance(state, {"x": feeds}, steps=5).of(carried.results)
    assert_same_bits(stacked, [np.stack(steps) for steps in zip(*expected, strict=True)])
    assert_same_bits(state.payloads(), by_hand.payloads())
    assert feeds.tobytes() == before


def test_many_threads_step_one_state() -> None:
    """Steps of one State exclude one another: each sees whole steps only, and none is lost."""

    def counting(tape: Tape) -> Any:
        a, b = tape.parameter(np.zeros((40, 40))), tape.parameter(np.zeros((40, 40)))
        return [a - b], {a: a + 1, b: b + 1}

    carried = Carried(counting)
    state = carried.network.state()
    barrier = threading.Barrier(4)

    def work(_: int) -> bool:
        barrier.wait()
        seen = [carried.plan.advance(state).of(carried.results)[0].numpy() for _ in range(50)]
        seen += [carried.plan.advance(state, steps=5).of(carried.results)[0].numpy() for _ in range(10)]
        return not any(array.any() for array in seen)

    with threads(2), ThreadPoolExecutor(4) as four:
        assert all(four.map(work, range(4)))
    assert all((tensor.numpy() == 400).all() for tensor in state.payloads())


def test_a_reader_sees_whole_steps() -> None:
    """While one thread steps, others take snapshots: two parameters that move together are never seen apart."""

    def together(tape: Tape) -> Any:
        a, b = tape.parameter(np.zeros((90, 90))), tape.parameter(np.zeros((90, 90)))
        return [a.sum()], {a: a + 1, b: b + 1}

    carried = Carried(together)
    state = carried.network.state()
    first, second = carried.carry
    stop = threading.Event()

    def read(_: int) -> bool:
        fine = True
        while not stop.is_set():
            copied = state.clone()
            a, b = copied.of(first).numpy(), copied.of(second).numpy()
            fine &= bool((a == a[0, 0]).all() and (a == b).all())
        return fine

    with ThreadPoolExecutor(2) as two:
        readers = [two.submit(read, at) for at in range(2)]
        for steps in (None, 3) * 60:
            carried.plan.advance(state, steps=steps)
        stop.set()
        assert all(reader.result() for reader in readers)
    assert (state.of(first).numpy() == 240).all()
