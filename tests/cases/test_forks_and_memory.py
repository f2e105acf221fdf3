"""A child process after use, and memory over thousands of steps: nothing hangs, nothing is kept."""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import os
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType, TracebackType
from typing import Any

import numpy as np
import pytest

from topos import (
    Element,
    Network,
    Parameters,
    Plan,
    Run,
    State,
    Tape,
    Tensor,
    ToposError,
    Value,
    detach,
)
from topos.testing import assert_same_bits

Array = np.ndarray[Any, np.dtype[Any]]


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def product() -> Callable[[], str]:
    """A matrix product and its gradient as a compiled call; the hash of what it answers."""
    tape = Tape()
    x, w = tape.input(shape=[32, 600], name="x"), tape.parameter(normal(1, 600, 24))
    y = x @ w
    adjoints = detach(tape.differentiate((y * y).sum(), [w]))
    network = tape.into_network()
    plan, parameters, rows = network.entry(adjoints).lower(), network.parameters(), normal(2, 32, 600)

    def call() -> str:
        tensors = plan.forward(parameters, {"x": rows}).of(adjoints.roots())
        return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()

    return call


def in_a_child(call: Callable[[], str]) -> str:
    """What the call answers in a forked child, which has 10 seconds."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(call()))
    child.start()
    try:
        assert receiver.poll(10), "the child did not answer within 10 seconds"
        answer = receiver.recv()
        child.join(10)
        assert child.exitcode == 0
        return str(answer)
    finally:
        child.kill()
        child.join()


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
# Later versions of Python warn of any fork beside threads: that is the situation under test.
threaded_forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@forks
@threaded_forks
def test_c67_fork_after_use():
    """The child inherits locks and no threads: it must answer the same bits all the same, more than once."""
    call = product()
    expected = call()
    for _ in range(3):
        assert in_a_child(call) == expected
    assert call() == expected


@forks
@threaded_forks
def test_c67_fork_during_a_run():
    """Forked while another thread is in the middle of the same call."""
    call = product()
    expected = call()
    stop, failures = threading.Event(), []

    def work() -> None:
        while not stop.is_set():
            if call() != expected:
                failures.append("other bits")

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(5):
            assert in_a_child(call) == expected
    finally:
        stop.set()
        worker.join()
    assert not failures


@forks
@threaded_forks
def test_c67_fork_while_recording():
    """A tape that is being written goes on in the child, and in the parent, each with its own copy."""
    tape = Tape()
    x = tape.parameter([1.0, 2.0])
    y = x * 3

    def finish(power: int) -> str:
        symbol = detach((y**power).sum())
        network = tape.into_network()
        return str(float(network.forward(network.parameters()).of(symbol)))

    assert in_a_child(partial(finish, 2)) == "45.0"
    assert len(tape) == len(tape.nodes())
    assert finish(2) == "45.0"


class Training:
    """A two-layer net and its step as one carried entry."""

    def __init__(self) -> None:
        tape = Tape()
        x, target = tape.input(shape=[4, 3], name="x"), tape.input(shape=[4, 2], name="target")
        first, second = tape.parameter(normal(1, 3, 8) * 0.3), tape.parameter(normal(2, 8, 2) * 0.3)
        difference = (x @ first).tanh() @ second - target
        adjoints = tape.differentiate((difference * difference).mean(), [first, second])
        carry = {weight.symbol(): (weight - gradient * 0.05).symbol() for weight, gradient in adjoints}
        self.loss, self.unread = detach(adjoints.target, difference)
        self.network = tape.into_network()
        self.plan = self.network.entry([self.loss]).carry(carry).lower()
        self.backward = self.network.entry([self.loss]).backward().lower()
        self.state = self.network.state()
        self.parameters = self.network.parameters()
        other = Tape()
        self.foreign = detach(other.parameter(1))
        self.foreign_parameters = other.into_network().parameters()
        self.feeds = {"x": normal(3, 4, 3), "target": normal(4, 4, 2) * 0.5}

    def step(self) -> Tensor:
        """One step in place; the loss before it."""
        return self.plan.advance(self.state, self.feeds).of(self.loss)

    def swept(self) -> Tensor:
        """One step by the engine's gradients over the caller's table; the loss before it."""
        run = self.backward.forward(self.parameters, self.feeds)
        gradients = run.backward(self.loss).parameters(self.parameters)
        self.parameters = self.parameters.step(gradients, lambda weight, gradient: weight - gradient * 0.05)
        return run.of(self.loss)

    def attempts(self) -> list[Callable[[], Any]]:
        """Ways in which a call is refused."""
        return [
            lambda: self.plan.advance(self.state, {"x": np.zeros((4, 5)), "target": self.feeds["target"]}),
            lambda: self.plan.forward(self.parameters, {"nothing": 1}),
            lambda: self.plan.forward(self.parameters, {self.foreign: 1}),
            lambda: self.record_badly(),
            lambda: Tensor([[1.0, 2.0]]) @ Tensor([[1.0, 2.0]]),
            lambda: Tensor([[1.0, 2.0]]) @ [object()],
            lambda: self.network.forward(self.parameters, {"x": [[1, 2], [3, 4]]}),
            lambda: self.network.forward(self.parameters, {"x": "text"}),
            lambda: self.network.forward(self.foreign_parameters),
            lambda: self.network.forward(self.parameters).of(self.foreign),
            lambda: self.network.forward(self.parameters).backward(self.foreign),
            lambda: self.plan.forward(self.parameters, self.feeds).backward(self.loss),
            lambda: self.plan.forward(self.parameters, self.feeds).of(self.unread),
        ]

    def fail(self, attempt: int) -> ToposError:
        """One of the refusals."""
        attempts = self.attempts()
        with pytest.raises(ToposError) as refused:
            attempts[attempt % len(attempts)]()
        error = refused.value
        del refused
        return error

    def record_badly(self) -> Value:
        """A tape of its own, on which a product does not fit."""
        tape = Tape()
        return (tape.input(shape=[2, 3]) * 2) @ tape.parameter(np.zeros((4, 5)))


def held_by(roots: Iterable[Any]) -> list[Any]:
    """Every object that the roots keep alive, but for code, types and the elements, which live for ever."""
    ends = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, Element)
    found: dict[int, Any] = {}
    left = list(roots)
    while left:
        held = left.pop()
        if id(held) not in found and not isinstance(held, ends):
            found[id(held)] = held
            left.extend(gc.get_referents(held))
    return list(found.values())


GRAPH = (Tape, Network, Plan, Run, State, Parameters, Value, FrameType, TracebackType)


def test_c73_stored_losses_hold_no_graph():
    """A loss that is kept is a number: no run, spec or larger buffer stays alive behind it."""
    training = Training()
    losses = [training.step() for _ in range(20)] + [training.swept() for _ in range(20)]
    held = held_by(losses)
    assert not [other for other in held if isinstance(other, GRAPH)]
    assert sum(array.nbytes for array in held if isinstance(array, np.ndarray)) <= 40 * 4
    assert float(losses[19]) < float(losses[0])
    assert_same_bits(losses[:20], losses[20:])  # the carried step and the engine's sweep are one rule


def test_c73_exceptions_hold_no_tape():
    """Without the traceback that Python hangs on it, an exception is a text."""
    training = Training()
    errors = [training.fail(attempt) for attempt in range(len(training.attempts()))]
    for error in errors:
        error.__traceback__ = None
    assert not [other for other in held_by(errors) if isinstance(other, GRAPH)]
    assert all(len(error.args) == 1 and isinstance(error.args[0], str) for error in errors)


def growths(work: Callable[[int], Any], count: int) -> Iterator[int]:
    """The bytes that Python and NumPy hold more after each round of `count` calls."""
    tracemalloc.start()
    try:
        while True:
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            for position in range(count):
                work(position)
            gc.collect()
            yield tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["step", "swept", "fail", "forward", "eager"])
def test_c73_memory_stays_flat(kind):
    """A few hundred calls keep nothing: not a reference per step, let alone a graph.

    Free lists and caches fill in the first rounds; what leaks grows in every one.
    """
    training = Training()
    work = {
        "step": lambda _: training.step(),
        "swept": lambda _: training.swept(),
        "fail": training.fail,
        "forward": lambda _: training.plan.forward(training.parameters, training.feeds),
        "eager": lambda _: (Tensor([1.0, 2.0]) * 3).softmax(0),
    }[kind]
    with closing(growths(work, 100)) as rounds:
        assert any(grown < 8 * 100 for grown in islice(rounds, 20))


def test_c73_cycles_do_not_wait_for_the_collector():
    """A step's values go when the last reference goes: with the collector off, memory is as flat."""
    training = Training()
    gc.disable()
    try:
        training.step(), training.swept()
        before = len(gc.get_objects())
        for _ in range(50):
            training.step(), training.swept()
        assert len(gc.get_objects()) - before < 50
    finally:
        gc.enable()


def resident() -> int:
    """The bytes of this process that lie in memory."""
    with open("/proc/self/statm") as counts:
        return int(counts.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_c73_memory_stays_flat_at_full_length():
    """10,000 steps with their losses kept, 100,000 calls and 200 refusals: less than 1 MB beside the list."""
    training, losses = Training(), []

    def work(steps: int) -> None:
        for position in range(steps):
            losses.append(training.step())
            for _ in range(10):
                training.plan.forward(training.parameters, training.feeds)
            if position % 50 == 0:
                training.fail(position)

    work(1000)
    gc.collect()
    before, kept = resident(), len(losses)
    work(9000)
    gc.collect()
    grown = resident() - before
    tracemalloc.start()
    sample = [training.step() for _ in range(200)]
    each = tracemalloc.get_traced_memory()[0] / len(sample)
    tracemalloc.stop()
    assert grown - 1.25 * each * (len(losses) - kept) < 1 << 20
