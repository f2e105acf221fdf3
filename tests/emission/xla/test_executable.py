"""A plan on XLA: the same surface, and the same numbers within a bound."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import Element, Emittable, Tape
from topos.emission import xla

from .model import ELEMENTS, LABELS, close, feeds, recorded

Elsewhere = Callable[..., None]


def check_that_it_answers_like_its_plan(element: str) -> None:
    network, loss, labels, carry, plan = recorded(element)
    executable = xla.compile(network.entry([loss, labels]).observe(list(carry)).carry(carry).lower())
    run = executable.forward(network.parameters(), feeds())
    close(run.of(loss), plan.forward(network.parameters(), feeds()).of(loss), element)
    assert run.of(labels).ids.tolist() == LABELS[0].tolist()
    assert [run.of(symbol).numpy().dtype for symbol in (loss, *carry)] == [ELEMENTS[element].dtype] * 3


@pytest.mark.parametrize("element", ELEMENTS)
def test_it_answers_like_its_plan(elsewhere: Elsewhere, element: str) -> None:
    elsewhere(check_that_it_answers_like_its_plan, element)


def check_that_steps_are_those_of_the_plan(element: str) -> None:
    network, loss, _, carry, plan = recorded(element)
    observed = network.entry(loss).observe(list(carry)).carry(carry).lower()
    executable = xla.compile(observed)
    ours, theirs = network.state(), network.state()
    before = ours.of(network.symbol("table"))
    kept = before.numpy().copy()
    found = executable.advance(ours, feeds(slice(0, 5)), steps=5)
    expected = observed.advance(theirs, feeds(slice(0, 5)), steps=5)
    for symbol in observed.results:
        close(found.of(symbol), expected.of(symbol), element, steps=5)
    close(executable.advance(ours, feeds(5)).of(loss), plan.advance(theirs, feeds(5)).of(loss), element, steps=6)
    for symbol in carry:
        close(ours.of(symbol), theirs.of(symbol), element, steps=6)
    np.testing.assert_array_equal(before.numpy(), kept)
    held = ours.of(network.symbol("table"))
    close(executable.forward(ours, feeds(0)).of(loss), plan.forward(theirs, feeds(0)).of(loss), element, steps=6)
    np.testing.assert_array_equal(ours.of(network.symbol("table")).numpy(), held.numpy())


@pytest.mark.parametrize("element", ELEMENTS)
def test_steps_are_those_of_the_plan(elsewhere: Elsewhere, element: str) -> None:
    elsewhere(check_that_steps_are_those_of_the_plan, element)


def check_sources_as_results() -> None:
    """A weight, a constant and a selection that are results; what replaces a source being another source; no carry."""
    tape = Tape()
    left, right = tape.parameter([1.0, 2.0]), tape.parameter([3.0, 4.0])
    constant, picks = tape.leaf([5.0, 6.0]), tape.selection([2], vocab=3, absent=-7, name="picks")
    left, right, constant, chosen = (value.symbol() for value in (left, right, constant, picks))
    network = tape.into_network()
    plan = network.entry([left, constant, chosen]).carry({left: right, right: left}).lower()
    state = network.state()
    run = xla.compile(plan).advance(state, {"picks": [2, -7]})
    assert [run.of(symbol).tolist() for symbol in (left, constant)] == [[1.0, 2.0], [5.0, 6.0]]
    assert run.of(chosen).ids.tolist() == [2, -1]
    assert [state.of(symbol).tolist() for symbol in (left, right)] == [[3.0, 4.0], [1.0, 2.0]]
    nothing = xla.compile(network.entry(chosen).lower()).forward(network.parameters(), {"picks": [0, 1]})
    assert nothing.of(chosen).ids.tolist() == [0, 1]
    nothing = xla.compile(network.entry(chosen).lower()).advance(state, {"picks": [0, -7]})
    assert nothing.of(chosen).ids.tolist() == [0, -1]


def test_sources_as_results(elsewhere: Elsewhere) -> None:
    elsewhere(check_sources_as_results)


class Halves(Element):
    """Binary32 whose products are halved."""

    name, dtype = "halves", np.dtype(np.float32)
    emittable = Emittable("f32", bodies={"mul": lambda m, x, y: m.mul(m.mul(x, y), m.number(0.5, x))})

    def round(self, numbers: Any) -> Any:
        return numbers.astype(np.float32)

    def mul(self, left: Any, right: Any) -> Any:
        return left * right * np.float32(0.5)


def check_an_element_of_ones_own() -> None:
    halves = Halves()
    network, root = Tape.record(lambda tape: tape.parameter([2.0, 3.0]) * tape.parameter([4.0, 5.0]), halves)
    found = xla.compile(network.entry(root).lower()).forward(network.parameters()).of(root)
    assert found.element is halves and found.numpy().tolist() == [4.0, 7.5]


def test_an_element_of_ones_own(elsewhere: Elsewhere) -> None:
    elsewhere(check_an_element_of_ones_own)


def check_nothing(expected: float) -> None:
    network, loss, *_, plan = recorded()
    found = xla.compile(plan).forward(network.parameters(), feeds()).of(loss)
    assert found.numpy() == expected


def test_a_check_can_fail(elsewhere: Elsewhere) -> None:
    with pytest.raises(AssertionError, match="assert found.numpy"):
        elsewhere(check_nothing, 0.25)


def check_that_threads_share_it() -> None:
    network, loss, _, carry, plan = recorded()
    executable, expected = xla.compile(plan), plan.forward(network.parameters(), feeds()).of(loss)
    failures: list[str] = []

    def work() -> None:
        try:
            state = network.state()
            for _ in range(20):
                close(executable.forward(network.parameters(), feeds()).of(loss), expected)
            executable.advance(state, feeds(slice(0, 5)), steps=5)
        except BaseException as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_threads_share_it(elsewhere: Elsewhere) -> None:
    elsewhere(check_that_threads_share_it)
