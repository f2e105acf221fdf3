"""A training step as one entry: the losses and weights of the step-by-step loop over tables, bit for bit."""

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest

import topos
from topos import (
    Adafactor,
    Adam,
    AdamW,
    Adjoints,
    Lion,
    Network,
    Numerics,
    Optimizer,
    Parameters,
    Sgd,
    Symbol,
    Tape,
    Update,
    accumulate,
    clip_by_global_norm,
    schedule,
)
from topos.testing import assert_same_bits

from .models import KINDS

OPTIMIZERS: dict[str, Callable[[], Optimizer]] = {
    "nesterov": lambda: Sgd(momentum=0.9, nesterov=True),
    "adam": Adam,
    "adamw": lambda: AdamW(decay=0.1),
    "lion": lambda: Lion(decay=0.1),
    "adafactor": Adafactor,
}
LIMIT = 0.5
RATE = schedule.warmup(3, schedule.cosine(0.05, 12))
STEPS = 6


class Training(NamedTuple):
    """A recorded training step: what is read of it and what its step carries."""

    network: Network
    loss: Symbol
    adjoints: Adjoints
    update: Update
    carry: dict[Symbol, Symbol]
    moved: dict[Symbol, Symbol]


def trained(kind: str, make: Callable[[], Optimizer]) -> Training:
    """Clipped gradients and one optimizer's step over a model; `adjoints` are what was not clipped yet."""

    def record(tape: Tape) -> Any:
        model = KINDS[kind].record(tape)
        adjoints = tape.differentiate(model.loss, model.weights)
        update = make().record(tape, clip_by_global_norm(adjoints, LIMIT))
        return model.loss, adjoints, update, {**model.carry, **update.carry}, model.carry

    network, names = Tape.record(record, KINDS[kind].element)
    return Training(network, *names)


def by_tables(training: Training, kind: str, make: Callable[[], Optimizer], steps: int) -> tuple[list[Any], Parameters]:
    """The losses and the weights of a loop that takes every part of a step by hand."""
    network, moved = training.network, training.moved
    entry = network.entry([training.loss, *training.adjoints.roots()]).observe(list(moved.values()))
    plan = entry.numerics(Numerics.EXACT).lower()
    optimizer, parameters, losses = make(), network.parameters(), []
    statistics = {source: network.payload(source) for source in moved}
    for step in range(steps):
        run = plan.forward(parameters, {**KINDS[kind].batch(step), **statistics})
        losses.append(run.of(training.loss))
        gradients = clip_by_global_norm(run.recorded_gradients(training.adjoints), LIMIT)
        parameters = optimizer.step(parameters, gradients, RATE(step))
        statistics = {source: run.of(following) for source, following in moved.items()}
    return losses, parameters


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = topos.threads()
    topos.threads(count)
    try:
        yield
    finally:
        topos.threads(before)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("kind", KINDS)
def test_one_advance_is_one_step_of_the_loop(kind: str, name: str) -> None:
    make = OPTIMIZERS[name]
    training = trained(kind, make)
    losses, parameters = by_tables(training, kind, make, STEPS)
    entry = training.network.entry(training.loss).carry(training.carry).numerics(Numerics.EXACT)
    for count in (1, 2):
        with threads(count):
            plan, state = entry.lower(), training.network.state()
            assert plan.explain().splitlines()[-1].startswith("native: ")
            for step in range(STEPS):
                run = plan.advance(state, {**KINDS[kind].batch(step), training.update.rate: RATE(step)})
                assert_same_bits(run.of(training.loss), losses[step])
            assert_same_bits(state.parameters().payloads(), parameters.payloads())


@pytest.mark.parametrize("kind", KINDS)
def test_many_steps_in_one_call_take_a_rate_each(kind: str) -> None:
    training = trained(kind, Adam)
    losses, parameters = by_tables(training, kind, Adam, STEPS)
    plan = training.network.entry(training.loss).carry(training.carry).lower()
    state = training.network.state()
    batches = [KINDS[kind].batch(step) for step in range(STEPS)]
    feeds = {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}
    rates = [RATE(step) for step in range(STEPS)]
    run = plan.advance(state, {**feeds, training.update.rate: rates}, steps=STEPS)
    assert_same_bits(run.of(training.loss), np.stack([loss.numpy() for loss in losses]))
    assert_same_bits(state.parameters().payloads(), parameters.payloads())


@pytest.mark.parametrize("kind", KINDS)
def test_training_that_is_resumed_is_training_that_went_on(kind: str) -> None:
    training = trained(kind, Adam)
    plan = training.network.entry(training.loss).carry(training.carry).lower()

    def run(state: Any, steps: range) -> Any:
        for step in steps:
            plan.advance(state, {**KINDS[kind].batch(step), training.update.rate: RATE(step)})
        return state

    whole = run(training.network.state(), range(STEPS))
    half = run(training.network.state(), range(STEPS // 2))
    kept = pickle.dumps(half)
    run(half, range(2))  # it goes another way meanwhile
    assert_same_bits(run(pickle.loads(kept), range(STEPS // 2, STEPS)).payloads(), whole.payloads())


@pytest.mark.parametrize("kind", KINDS)
def test_gathered_batches_are_the_loop_that_adds_tables(kind: str) -> None:
    """Four batches to a step: two entries over one network, against sums and means by hand."""

    def record(tape: Tape) -> Any:
        model = KINDS[kind].record(tape)
        adjoints = tape.differentiate(model.loss, model.weights)
        gathered = accumulate(tape, adjoints)
        update = AdamW().record(tape, clip_by_global_norm(gathered.adjoints, LIMIT))
        gather = {**model.carry, **gathered.gather}
        return model.loss, adjoints, gather, {**update.carry, **gathered.clear}, update, model.carry

    network, (loss, adjoints, gather, apply, update, moved) = Tape.record(record, KINDS[kind].element)
    gathering, stepping = network.entry(loss).carry(gather).lower(), network.entry(()).carry(apply).lower()
    looking = network.entry([loss, *adjoints.roots(), *moved.values()]).lower()
    state, at_once = network.state(), network.state()
    parameters, optimizer = network.parameters(), AdamW()
    statistics = {source: network.payload(source) for source in moved}
    for step in range(3):
        total: Parameters | None = None
        for part in range(4):
            batch = KINDS[kind].batch(4 * step + part)
            run = looking.forward(parameters, {**batch, **statistics})
            statistics = {source: run.of(following) for source, following in moved.items()}
            gradients = run.recorded_gradients(adjoints)
            total = gradients if total is None else total + gradients
            assert_same_bits(gathering.advance(state, batch).of(loss), run.of(loss))
        batches = [KINDS[kind].batch(4 * step + part) for part in range(4)]
        gathering.advance(at_once, {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}, steps=4)
        stepping.advance(at_once, {update.rate: RATE(step)})
        assert total is not None
        mean = total.map(lambda tensor: tensor / 4.0)
        parameters = optimizer.step(parameters, clip_by_global_norm(mean, LIMIT), RATE(step))
        stepping.advance(state, {update.rate: RATE(step)})
        assert_same_bits(state.parameters().payloads(), parameters.payloads())
        assert_same_bits(at_once.payloads(), state.payloads())


def test_narrow_gradients_are_gathered_wide_and_cleared() -> None:
    def record(tape: Tape) -> Any:
        weight, x = tape.parameter([1.0, 2.0], name="weight"), tape.input([0.0, 0.0], name="x")
        loss = (weight * x).sum()
        gathered = accumulate(tape, tape.differentiate(loss, [weight, weight]))
        return gathered, Sgd().record(tape, gathered.adjoints, rate=1.0), weight

    network, (gathered, update, weight) = Tape.record(record, topos.bf16)
    total = network.symbol("gathered.weight")
    gather = network.entry(()).carry(gathered.gather).lower()
    step = network.entry(()).carry({**update.carry, **gathered.clear}).lower()
    state = network.state()
    for number in (1.0, 2.0**-9, 2.0**-9, 2.0**-9):  # each of the small ones would be lost beside 1 in bf16
        gather.advance(state, {"x": [number, 0.0]})
    assert_same_bits(state.of(total), np.array([1 + 3 * 2.0**-9, 0], np.float32))
    step.advance(state)
    assert_same_bits(state.of(weight), topos.Tensor([0.75, 2.0], topos.bf16))
    assert_same_bits(state.of(total), np.zeros(2, np.float32))
    step.advance(state)  # the mean of no batch
    assert_same_bits(state.of(weight), topos.Tensor([0.75, 2.0], topos.bf16))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_steps_are_the_same_on_every_processor_and_by_any_number_of_threads(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, texts = [], set()
    training = trained(kind, lambda: AdamW(decay=0.1))
    entry = training.network.entry(training.loss).carry(training.carry).numerics(Numerics.EXACT)
    rate = schedule.warmup(10, schedule.cosine(0.05, 100))
    for cpu, count in (("", 1), ("", 2), ("x86-64-v3", 1), ("x86-64-v3", 2), ("x86-64", 2)):
        with monkeypatch.context() as processor, threads(count):
            if cpu:
                processor.setenv("TOPOS_CPU", cpu)
            try:
                plan, state = entry.lower().prepare(), training.network.state()
            except topos.SettingError as error:
                pytest.skip(str(error))
            texts.add(plan.llvm())
            for step in range(100):
                plan.advance(state, {**KINDS[kind].batch(step), training.update.rate: rate(step)})
            found.append(state.payloads())
    assert len(texts) > 1
    for others in found[1:]:
        assert_same_bits(others, found[0])
