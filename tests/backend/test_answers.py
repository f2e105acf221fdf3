"""What a translated stretch answers is checked: anything but what was wanted counts as raising."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topos import Backend, Status, Tensor
from topos.testing import assert_same_bits

from .mine import Mine, Step, recorded
from .test_lowering import Walk, Whole


class Answering(Whole):
    """Translates by the reference, and alters the answer."""

    def __init__(self, altered: Callable[[Any], Any]) -> None:
        super().__init__()
        self.altered = altered

    def offer(self, task: Any) -> Any:
        walk, altered = Walk(task), self.altered

        class Altered:
            def run(self, sources: Any) -> Any:
                return altered(walk.run(sources))

        return Altered()


@pytest.fixture
def step() -> Step:
    return recorded()


@pytest.mark.parametrize(
    ("altered", "told"),
    [
        (lambda values: {}, "run: wants [] f32 of row 9, got NoneType"),
        (lambda values: list(values), "run: wants a mapping from rows to tensors, got list"),
        (lambda values: {**values, 9: Tensor([1.0])}, "run: wants [] f32 of row 9, got [1] f32"),
        (lambda values: {**values, 9: values[9].numpy()}, "run: wants [] f32 of row 9, got ndarray"),
    ],
    ids=["nothing", "list", "shape", "array"],
)
def test_another_answer_than_wanted_is_computed_by_the_reference(step: Step, altered: Any, told: str) -> None:
    backend = Answering(altered)
    with pytest.warns(RuntimeWarning) as warned:
        assert_same_bits(step.run(step.entry(backend, *Backend.ALL)), step.expected)
    message = f"ElementError: {told}"
    assert [str(warning.message) for warning in warned] == [f"backend WHOLE is asked no more: it raised {message}"]
    assert backend.status() == Status(False, f"poisoned: {message}")


@pytest.mark.parametrize("altered", [lambda values: {**values, 0: Tensor(7.0), 999: 3}, lambda values: None])
def test_rows_that_nobody_wanted_are_left_out_and_none_declines(step: Step, altered: Any) -> None:
    backend = Answering(altered)
    assert_same_bits(step.run(step.entry(backend, *Backend.ALL)), step.expected)
    assert not backend.is_poisoned


def test_who_finds_no_status_is_not_ready(step: Step) -> None:
    class Vague(Mine):
        def found(self) -> Any:
            return "here"

    backend = Vague()
    assert backend.status() == Status(False, "setup failed: found answered str, wants a Status")
    assert_same_bits(step.run(step.entry(backend, *Backend.ALL)), step.expected)
