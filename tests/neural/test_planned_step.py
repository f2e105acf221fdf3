"""A step like the one before is one call of a plan, with the bits of the walk from slot to slot."""

import gc
import math
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import topos
from topos import (
    Adafactor,
    Adam,
    AdamW,
    KinshipError,
    Lion,
    Optimizer,
    Parameters,
    Sgd,
    ShapeError,
    Tape,
    Tensor,
    bf16,
    clip_by_global_norm,
    f32,
    f64,
)
from topos.element import Element
from topos.neural import clipping, facts, planned_step, plans
from topos.neural.table_step import TableStep
from topos.testing import assert_same_bits

SHAPES = ((), (5,), (33, 40), (2, 3, 4), (0, 3))


def table(element: Element = f32, shapes: Any = SHAPES, seed: int = 0) -> Parameters:
    random = np.random.default_rng(seed)
    network, _ = Tape.record(lambda tape: [tape.parameter(random.normal(size=shape)) for shape in shapes], element)
    return network.parameters()


def without(parameters: Parameters, places: Any) -> Parameters:
    entries = {symbol.index: None if at in places else t for at, (symbol, t) in enumerate(parameters)}
    return Parameters(parameters.family, entries)


class Walking:
    """What walks, while it is entered: no plan is asked."""

    def __enter__(self) -> None:
        self.patch = pytest.MonkeyPatch()
        for module in (planned_step, clipping):
            self.patch.setattr(module, "computed", lambda *facts: None)

    def __exit__(self, *facts: object) -> None:
        self.patch.undo()


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The slots that were walked."""
    walked: list[Any] = []
    of = TableStep.of

    def counted(self: TableStep, symbol: Any, weight: Tensor, gradient: Tensor) -> Tensor:
        walked.append(symbol)
        return of(self, symbol, weight, gradient)

    monkeypatch.setattr(TableStep, "of", counted)
    yield walked


MADE: dict[str, Callable[[], Optimizer]] = {
    "sgd": Sgd,
    "nesterov": lambda: Sgd(momentum=0.9, nesterov=True),
    "adam": Adam,
    "adamw": lambda: AdamW(decay=0.1),
    "lion": Lion,
    "adafactor": Adafactor,
    "a policy": lambda: AdamW(decay=0.1).step_where(lambda symbol: symbol.index % 2 == 0, Sgd(momentum=0.5)),
    "some stay": lambda: Adam().step_where(lambda symbol: symbol.index > 0),
}


@pytest.mark.parametrize("element", [f32, f64, bf16])
@pytest.mark.parametrize("name", MADE)
def test_planned_steps_have_the_bits_of_walked_ones(name: str, element: Element, walks: list[Any]) -> None:
    start = table(element)
    absent: list[Any] = [(), (), (), (), (1,), (1,), (1,), (1,), ()]
    gradients = [without(table(element, seed=at).map(lambda t: t * 0.1), places) for at, places in enumerate(absent)]
    gradients = [Parameters(start.family, dict(zip(start.rows(), g.payloads(), strict=True))) for g in gradients]

    def steps() -> list[Any]:
        optimizer, parameters, found = MADE[name](), start, []
        for at, gradient in enumerate(gradients):
            parameters = optimizer.step(parameters, gradient, 0.1 / (at + 1))
            found.append((parameters.payloads(), {n: t.payloads() for n, t in optimizer.tables.items()}))
        return found

    with Walking():
        expected = steps()
    walked = len(walks)
    assert_same_bits(steps(), expected)
    assert len(walks) - walked < walked / 2
    assert_same_bits(steps(), expected)
    before = len(walks), topos.compiles()
    assert_same_bits(steps(), expected)
    first = before[0] + sum(t is not None for t in gradients[0].payloads())
    assert len(walks) == first, "the first step of an optimizer alone is walked, once plans are known"
    assert topos.compiles().since(before[1]).compiled == 0


def test_the_third_step_is_planned_and_the_plan_is_made_once(walks: list[Any]) -> None:
    parameters, optimizer = table(), Adam()
    seen = []
    for _ in range(5):
        before = len(walks)
        parameters = optimizer.step(parameters, parameters, 0.1)
        seen.append(len(walks) - before)
    assert seen == [5, 5, 0, 0, 0]


@pytest.mark.parametrize("rate", [0.5, np.float64(0.5), Tensor(0.5, f64), Tensor(0.5), 1])
def test_the_rate_is_whatever_a_rate_is(rate: Any) -> None:
    parameters, planned, walked = table(), Sgd(), Sgd()
    for _ in range(4):
        with Walking():
            expected = walked.step(parameters, parameters, rate)
        assert_same_bits(planned.step(parameters, parameters, rate).payloads(), expected.payloads())
    with pytest.raises(ShapeError) as caught:
        planned.step(parameters, parameters, [0.1, 0.2])
    assert str(caught.value) == "Sgd: the rate has rank 0, got shape [2]"


def test_options_that_are_set_between_steps_count() -> None:
    parameters = table()

    def steps() -> list[Any]:
        optimizer, found = Adam(), parameters
        for at in range(8):
            optimizer.beta1 = 0.9 if at < 4 else 0.5
            found = optimizer.step(found, parameters, 0.1)
        return found.payloads()

    with Walking():
        expected = steps()
    assert_same_bits(steps(), expected)


# rules of one's own
SCALE = 1.0


def scaled(x: Any) -> Any:
    return x * SCALE


class Plain(Optimizer):
    """A rule that a plan may stand for: it reads constants, and a function that reads one."""

    factor = 1.0

    def update(self, weight: Any, gradient: Any, kept: Any, common: Any) -> tuple[Any, dict[str, Any]]:
        moved = scaled(gradient) * self.factor * math.sqrt(4.0)
        return weight - moved * common["rate"].broadcast(weight.shape), {}


def steps_of(optimizer: Optimizer, change: Callable[[int], None]) -> list[Any]:
    parameters = found = table()
    for at in range(8):
        change(at)
        found = optimizer.step(found, parameters, 0.125)
    return found.payloads()


def test_a_rule_of_ones_own_is_planned_and_its_constants_count(
    monkeypatch: pytest.MonkeyPatch, walks: list[Any]
) -> None:
    for change in (
        lambda at: monkeypatch.setitem(globals(), "SCALE", 1.0 if at < 4 else 0.5),
        lambda at: monkeypatch.setattr(Plain, "factor", 1.0 if at < 4 else 0.25),
        lambda at: monkeypatch.setitem(globals(), "scaled", scaled if at < 4 else lambda x: x * 3),
    ):
        with Walking():
            expected = steps_of(Plain(), change)
        monkeypatch.undo()
        walks.clear()
        assert_same_bits(steps_of(Plain(), change), expected)
        assert len(walks) < 8 * len(SHAPES)
        monkeypatch.undo()


class Reading(Plain):
    def update(self, weight: Any, gradient: Any, kept: Any, common: Any) -> tuple[Any, dict[str, Any]]:
        return weight - gradient * float(gradient.sum()), {}


class Counting(Plain):
    turn = 0

    def update(self, weight: Any, gradient: Any, kept: Any, common: Any) -> tuple[Any, dict[str, Any]]:
        self.turn = (self.turn + 1) % 2
        return weight - gradient * self.turn, {}


class Printing(Plain):
    def update(self, weight: Any, gradient: Any, kept: Any, common: Any) -> tuple[Any, dict[str, Any]]:
        print("asked")
        return weight - gradient, {}


class Drawing(Plain):
    def update(self, weight: Any, gradient: Any, kept: Any, common: Any) -> tuple[Any, dict[str, Any]]:
        return weight - gradient * np.random.default_rng(0).random(), {}


class Holding(Plain):
    def __init__(self) -> None:
        self.factors = [0.5]

    def update(self, weight: Any, gradient: Any, kept: Any, common: Any) -> tuple[Any, dict[str, Any]]:
        return weight - gradient * self.factors[0], {}


class Listing(Plain):
    def common(self, counts: Any, rate: Any, listed: Any = []) -> dict[str, Any]:  # noqa: B006
        listed.append(1)
        return {"rate": rate * (len(listed) % 2)}


class Looking(Plain):
    def update(self, weight: Any, gradient: Any, kept: Any, common: Any) -> tuple[Any, dict[str, Any]]:
        return weight - gradient * len(self.tables), {}


class Telling(Plain):
    def update(self, weight: Any, gradient: Any, kept: Any, common: Any) -> tuple[Any, dict[str, Any]]:
        return weight - gradient if isinstance(weight, Tensor) else weight, {}


def closed() -> Optimizer:
    factors = iter(range(100))

    class Closed(Plain):
        def update(self, weight: Any, gradient: Any, kept: Any, common: Any) -> tuple[Any, dict[str, Any]]:
            return weight - gradient * next(factors), {}

    return Closed()


@pytest.mark.parametrize("make", [Reading, Counting, Printing, Drawing, Holding, Listing, Looking, Telling, closed])
def test_a_rule_that_does_more_is_asked_at_every_step(make: Callable[[], Optimizer], walks: list[Any]) -> None:
    with Walking():
        expected = steps_of(make(), lambda at: None)
    found = steps_of(make(), lambda at: None)
    assert_same_bits(found, expected)
    assert len(walks) == 16 * len(SHAPES)
    assert make is Reading or facts.facts_of(make()) is None


# refusals
def test_what_is_refused_is_refused_at_every_step() -> None:
    parameters = table()
    momentum, plain = Sgd(momentum=0.5), Sgd()
    momentum.step(parameters, parameters, 0.1)
    for _ in range(4):
        plain.tables = momentum.tables
        with pytest.raises(KinshipError) as caught:
            plain.step(parameters, parameters, 0.1)
        assert str(caught.value) == "Sgd: %0 wants nothing in the tables, which have 'velocity'"
    wrong = Parameters(parameters.family, {index: Tensor([1.0, 2.0]) for index in parameters.rows()})
    for _ in range(4):
        with pytest.raises(ShapeError) as told:
            momentum.step(parameters, wrong, 0.1)
        assert str(told.value) == "Sgd: %0 has shape [], its gradient [2]"


# what a plan holds
def test_what_was_answered_outlives_later_steps() -> None:
    parameters, optimizer = table(shapes=((), (7,), (300, 300))), Adam()
    answered, copies = [], []
    for _ in range(8):
        parameters = optimizer.step(parameters, parameters, 0.1)
        parameters = clip_by_global_norm(parameters, 3.0)
        tensors = [*parameters.payloads(), *(t for one in optimizer.tables.values() for t in one.payloads())]
        answered.append(tensors)
        copies.append([t.numpy().copy() for t in tensors if t is not None])
    assert_same_bits(answered, copies)


def test_ten_thousand_steps_take_no_more_memory_than_hundreds() -> None:
    parameters, optimizer = table(shapes=((3,), (20, 20))), Adam()

    def steps(count: int) -> None:
        nonlocal parameters
        for _ in range(count):
            parameters = optimizer.step(parameters, clip_by_global_norm(parameters, 1.0), 1e-3)

    steps(300)
    gc.collect()
    before = sys.getallocatedblocks()
    steps(10_000)
    gc.collect()
    assert sys.getallocatedblocks() - before < 1000


def test_plans_go_with_the_family() -> None:
    parameters, optimizer = table(), Adam()
    for _ in range(4):
        parameters = optimizer.step(parameters, clip_by_global_norm(parameters, 1.0), 0.1)
    family = weakref.ref(parameters.family)
    del parameters, optimizer
    gc.collect()
    assert family() is None


def test_signatures_that_do_not_come_again_are_forgotten() -> None:
    parameters, optimizer = table(), Adam()
    for at in range(5 * plans.MOST):
        optimizer.epsilon = 1e-8 * (at + 1)
        parameters = optimizer.step(parameters, parameters, 1e-3)
    held = plans._plans[parameters.family]
    assert len(held._recent) + len(held._older) <= 2 * plans.MOST


def test_a_family_has_few_plans_and_one_that_gave_way_comes_back(walks: list[Any]) -> None:
    parameters, optimizer = table(shapes=((3,),)), Adam()
    optimizer.step(parameters, parameters, 0.1)
    for at in [*range(plans.FEW + 1), *range(plans.FEW + 1)]:
        optimizer.beta1 = 0.1 * at
        optimizer.step(parameters, parameters, 0.1)
    assert sum(known.call is not None for known in plans._plans[parameters.family]._recent.values()) == plans.FEW
    optimizer.beta1 = 0.0
    for _ in range(plans.LATER):
        optimizer.step(parameters, parameters, 0.1)
    walks.clear()
    optimizer.step(parameters, parameters, 0.1)
    assert walks == []


def test_threads_that_step_at_once_make_one_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = table(shapes=((3,), (90, 90)))

    def steps() -> list[Any]:
        optimizer, found = Adam(), parameters
        for _ in range(40):
            found = optimizer.step(found, clip_by_global_norm(found, 5.0), 1e-2)
        return found.payloads()

    with Walking():
        expected = steps()
    made: list[Any] = []
    recorded = plans._recorded
    monkeypatch.setattr(plans, "_recorded", lambda *facts: made.append(1) or recorded(*facts))
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(steps())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_same_bits(answers, [expected] * 4)
    assert len(made) == 2


def test_a_plan_whose_making_was_interrupted_is_made_later(monkeypatch: pytest.MonkeyPatch, walks: list[Any]) -> None:
    def stop(*facts: Any) -> Any:
        raise KeyboardInterrupt

    parameters, optimizer = table(shapes=((3,),)), Adam()
    for _ in range(2):
        optimizer.step(parameters, parameters, 0.1)
    before = optimizer.tables
    with monkeypatch.context() as patch:
        patch.setattr(plans, "_recorded", stop)
        with pytest.raises(KeyboardInterrupt):
            optimizer.step(parameters, parameters, 0.1)
    assert_same_bits(optimizer.tables["first"].payloads(), before["first"].payloads())
    for _ in range(plans.LATER):
        optimizer.step(parameters, parameters, 0.1)
    assert len(walks) == 2 + plans.LATER - 1
    optimizer.step(parameters, parameters, 0.1)
    assert len(walks) == 2 + plans.LATER - 1


# clipping
@pytest.mark.parametrize("element", [f32, f64, bf16])
@pytest.mark.parametrize("bad", [None, np.nan, np.inf])
def test_a_planned_clip_has_the_bits_of_a_computed_one(element: Element, bad: Any) -> None:
    gradients = table(element)
    if bad is not None:
        gradients = gradients.map(lambda t: t + bad if t.shape.rank == 1 else t)
    gradients = without(gradients, (3,))
    for limit in (1.0, 0.5, 1e3, np.inf, 2.0):
        with Walking():
            expected = clip_by_global_norm(gradients, limit)
        assert_same_bits(clip_by_global_norm(gradients, limit).payloads(), expected.payloads())


def test_another_limit_is_the_same_plan() -> None:
    gradients = table()
    for _ in range(3):
        clip_by_global_norm(gradients, 1.0)
    before = topos.compiles()
    for limit in (0.25, 0.5, 3.0):
        clip_by_global_norm(gradients, limit)
    assert topos.compiles().since(before).compiled == 0
