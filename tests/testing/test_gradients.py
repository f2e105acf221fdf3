"""The grader of gradients, graded: it passes what is right and names what is not."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from topos import Tape, Tensor, Value, bf16, f32, f64
from topos.element.floating import Floating
from topos.engine import Plan
from topos.op import Elementwise
from topos.testing import check_gradient


class Cube(Elementwise):
    """`x * x * x` with a rule that can be set."""

    __slots__ = ()
    roles = ("operand",)
    rules: dict[str, Any] = {}

    def body(self, m: Any, x: Any) -> Any:
        return m.mul(m.mul(x, x), x)

    def derivative(self, seed: Any, output: Any, x: Any) -> Any:
        return (self.rules["now"](seed, x),)


def cube(x: Any) -> Any:
    return x.apply(Cube(), (x,))


@pytest.fixture(autouse=True)
def right_rule() -> None:
    Cube.rules["now"] = lambda seed, x: seed * (x * x * x.counted(3))


def failure(function: Any, *payloads: Any, **options: Any) -> list[str]:
    with pytest.raises(AssertionError) as caught:
        check_gradient(function, *payloads, **options)
    return str(caught.value).split("\n")


def test_a_right_rule_passes() -> None:
    check_gradient(lambda x: cube(x).sum(), [1.0, -2.0, 0.5])
    check_gradient(lambda x, y: (cube(x) * y).sum(), [1.0, -2.0], np.array([3, 4]), element=f32)
    check_gradient(lambda x: cube(x), 2.0, element=bf16)
    check_gradient(lambda x: x.sum(), Tensor([1.0, 2.0]), element=f32)
    check_gradient(lambda x: x.sum(), np.zeros((0, 2)))


def test_a_wrong_rule_is_named_with_operand_index_and_both_numbers() -> None:
    Cube.rules["now"] = lambda seed, x: seed * (x * x * x.counted(2))
    first, gradient, difference, allowed = failure(lambda w, x: (w + cube(x)).sum(), [[1.0, 2.0]], [[0.0, 2.0]])
    assert first == "gradient: operand 1 at [0, 1] is not the central difference"
    assert gradient == "  gradient    8.0"
    assert difference.startswith("  difference  12.000000")
    assert allowed == "  allowed     1.1e-06 apart"


def test_a_small_error_of_one_entry_is_seen() -> None:
    Cube.rules["now"] = lambda seed, x: seed * (x * x * x.counted(3)) * Tensor([1.0, 1.0 + 1e-5], f64)
    assert failure(lambda x: cube(x).sum(), [1.0, 1.0])[0] == "gradient: operand 0 at [1] is not the central difference"
    check_gradient(lambda x: cube(x).sum(), [1.0, 1.0], tolerance=1e-4)


def test_a_nan_is_not_a_gradient() -> None:
    Cube.rules["now"] = lambda seed, x: seed / (x - x)
    assert failure(lambda x: cube(x).sum(), [1.0])[1] == "  gradient    inf"
    Cube.rules["now"] = lambda seed, x: seed * ((x - x) / (x - x))
    assert failure(lambda x: cube(x).sum(), [1.0])[1] == "  gradient    nan"


def test_a_rule_that_records_other_than_it_computes_is_named() -> None:
    def other(seed: Any, x: Any) -> Any:
        scale = x.counted(3) if isinstance(x, Tensor) else x.counted(3) * (1.0 + 2.0**-52)
        return seed * (x * x * scale)

    Cube.rules["now"] = other
    lines = failure(lambda x: cube(x).sum(), [1.0])
    assert lines[0].startswith(
        "gradient: operand 0: recorded (actual) is not the engine's (expected): bits: 1 of 1 differ"
    )
    assert lines[-1] == "  distance  2 ulp"


def test_another_element_is_graded_in_bits() -> None:
    def other(seed: Any, x: Any) -> Any:
        scale = x.counted(3 if x.element is f64 or isinstance(x, Tensor) else 4)
        return seed * (x * x * scale)

    Cube.rules["now"] = other
    check_gradient(lambda x: cube(x).sum(), [1.0])
    assert "recorded (actual) is not the engine's" in failure(lambda x: cube(x).sum(), [1.0], element=f32)[0]


def test_an_executor_of_other_bits_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = Plan.forward

    def wrong(self: Plan, parameters: Any, feeds: Any = None) -> Any:
        return forward(self, parameters.map(lambda tensor: tensor + 1.0), feeds)

    monkeypatch.setattr(Plan, "forward", wrong)
    line = failure(lambda x: cube(x).sum(), [1.0])[0]
    assert line.startswith("gradient: plan.forward is not network.forward (value, then gradients): bits: 1 of 1 differ")


def test_a_modules_own_parameters_are_graded_after_the_operands() -> None:
    class Layer:
        def __init__(self, tape: Tape) -> None:
            self.weight = tape.parameter([[0.5], [-1.0]])

        def __call__(self, x: Value) -> Value:
            return cube(x @ self.weight)

    check_gradient(lambda x: Layer(x.tape)(x).sum(), [[1.0, 2.0]])
    Cube.rules["now"] = lambda seed, x: seed * x
    assert failure(lambda x: Layer(x.tape)(x.stop()).sum(), [[1.0, 2.0]])[0].startswith("gradient: operand 0 at [0, 0]")
    wrong = failure(lambda x: Layer(x.tape)(x * 0.0 + 1.0).sum(), [[1.0, 2.0]])[0]
    assert wrong == "gradient: parameter %1 at [0, 0] is not the central difference"


def test_a_selection_is_data() -> None:
    picked = Tensor.selection([2, 0, 2], 3)
    check_gradient(lambda table, ids: cube(table.gather(ids)).sum(), [[1.0], [2.0], [3.0]], picked, element=f32)


def test_entries_bound_what_is_stepped() -> None:
    stepped: list[int] = []

    def other(seed: Any, x: Any) -> Any:
        numbers = np.where(np.arange(101) % 50 == 0, 3.0, 7.0)
        stepped.append(1)
        return seed * (x * x * Tensor(numbers, f64))

    Cube.rules["now"] = other
    check_gradient(lambda x: cube(x).sum(), np.ones(101), entries=3)
    assert failure(lambda x: cube(x).sum(), np.ones(101), entries=4)[0].startswith("gradient: operand 0 at [33]")
    assert failure(lambda x: cube(x).sum(), np.ones(101))[0].startswith("gradient: operand 0 at [1]")


def test_a_users_element_is_graded() -> None:
    check_gradient(lambda x: (cube(x).tanh() * x).sum(), [0.5, 0.25], element=mine)


mine = Floating("mine", np.float32, 24, f32.bodies)


def test_hypothesis_is_loaded_only_by_the_strategies() -> None:
    code = "import sys, topos, topos.testing; assert 'hypothesis' not in sys.modules and 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
