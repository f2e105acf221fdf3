"""The grader of optimizers, graded: it passes what is right and names what is not."""

from typing import Any

import pytest

from topos import Optimizer, Tensor, bf16, f32, f64
from topos.testing import grade_optimizer


class Momentum(Optimizer):
    """A rule like a user's, which can be made wrong in one place."""

    def start(self, weight: Tensor) -> dict[str, Any]:
        return {"velocity": weight.zero_like()}

    def counts(self) -> dict[str, float]:
        return {"power": 1.0}

    def common(self, counts: Any, rate: Any) -> dict[str, Any]:
        return {"power": counts["power"] * 0.5, "rate": rate}

    def update(self, weight: Any, gradient: Any, kept: Any, common: Any) -> tuple[Any, dict[str, Any]]:
        velocity = kept["velocity"] * 0.9 + gradient * (1.0 - common["power"]).broadcast(weight.shape)
        return weight - velocity * common["rate"].broadcast(weight.shape), {"velocity": velocity}


def failure(make: Any, **options: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        grade_optimizer(make, **options)
    return str(caught.value).split("\n")[0]


def test_a_right_rule_passes() -> None:
    grade_optimizer(Momentum)
    grade_optimizer(Momentum, elements=[f64], shapes=[[2]])


def test_readings_that_differ_are_told_with_step_and_slot() -> None:
    class Apart(Momentum):
        def update(self, weight: Any, gradient: Any, kept: Any, common: Any) -> tuple[Any, dict[str, Any]]:
            doubled = gradient + gradient if isinstance(weight, Tensor) else gradient
            return super().update(weight, doubled, kept, common)

    first = failure(Apart, shapes=[[3]], elements=[f32])
    assert first.startswith("Apart over f32: step 0, interpreted, is not the step over tables: ")


def test_a_rule_that_counts_by_itself_is_told() -> None:
    class Counting(Momentum):
        steps = 0

        def update(self, weight: Any, gradient: Any, kept: Any, common: Any) -> tuple[Any, dict[str, Any]]:
            self.steps += 1
            return super().update(weight * (1.0 - 0.125 / self.steps), gradient, kept, common)

    first = failure(Counting, shapes=[[3]], elements=[f64])
    assert first.startswith("Counting over f64: step 1, interpreted, is not the step over tables: ")


def test_a_slot_that_moves_without_a_gradient_is_told() -> None:
    class Restless(Momentum):
        def step(self, parameters: Any, gradients: Any, rate: Any) -> Any:
            absent = {symbol: gradients.of(symbol) for symbol, tensor in gradients if tensor is not None}
            moved = {symbol: tensor + 1.0 for symbol, tensor in parameters if symbol not in absent}
            return super().step(parameters, gradients, rate).with_payloads(moved)

    first = failure(Restless, shapes=[[3], [2]], elements=[bf16])
    assert first.startswith("Restless over bf16: an absent slot changed: ")


def test_a_failed_step_that_leaves_a_mark_is_told() -> None:
    class Eager(Momentum):
        def step(self, parameters: Any, gradients: Any, rate: Any) -> Any:
            kept = self.tables
            try:
                return super().step(parameters, gradients, rate)
            except Exception:
                if kept:
                    self.tables = {name: table.map(lambda tensor: tensor + 1.0) for name, table in kept.items()}
                raise

    first = failure(Eager, shapes=[[3], [2]], elements=[f32])
    assert first.startswith("Eager over f32: a step that failed left its marks: ")


def test_a_gradient_that_does_not_fit_and_is_taken_is_told() -> None:
    class Lenient(Momentum):
        def step(self, parameters: Any, gradients: Any, rate: Any) -> Any:
            fitting = [
                symbol
                for symbol, tensor in gradients
                if tensor is not None and tensor.shape == parameters.of(symbol).shape
            ]
            only = type(gradients)(fitting[0].family, {symbol.index: gradients.of(symbol) for symbol in fitting})
            return super().step(parameters, only, rate)

    first = failure(Lenient, shapes=[[3], [2]], elements=[f32])
    assert first == "Lenient over f32: a gradient of another shape than its weight's was taken"


def test_an_optimizer_that_does_not_take_tables_up_is_told() -> None:
    class Forgetful(Momentum):
        @property
        def tables(self) -> Any:
            return super().tables

        @tables.setter
        def tables(self, tables: Any) -> None:
            """Begins anew."""

    assert failure(Forgetful, shapes=[[]], elements=[f32]).startswith(
        "Forgetful over f32: an optimizer that was given the tables goes another way: "
    )
