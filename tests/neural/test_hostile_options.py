"""What is wrong is refused where it is given, by name: options, initialisers, parts, and numbers in place of values."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import topos
from topos import (
    Activation,
    Adam,
    Attention,
    BatchNorm,
    Embedding,
    KeyValueCache,
    Linear,
    Mlp,
    Parallel,
    Positions,
    RecordedError,
    Residual,
    Rotary,
    Sequential,
    SettingError,
    Sgd,
    Tape,
    Tensor,
    ToposError,
    Value,
    clip_by_global_norm,
    conv2d,
    cross_entropy,
    f64,
    huber,
    init,
    max_pool,
    mean_squared_error,
    scaled_dot_product,
    schedule,
)
from topos.testing import assert_same_bits

zeros = init.zeros
tape = Tape()
x = tape.input(shape=[3, 2])
ones = Tensor(np.ones((3, 4)))
attention = Attention(tape, 4, 2, zeros)
token, at = tape.input(shape=[1, 4]), tape.selection([1], 5)

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a truth value for an extent": (
        lambda: Linear(tape, True, 2, zeros),
        "Linear wants an integer for extents, got True",
    ),
    "a name that is no text": (lambda: Linear(tape, 2, 2, zeros, name=3), "Linear wants a text for its name, got 3"),
    "numbers for a bias": (
        lambda: Linear(tape, 2, 2, zeros, bias=np.zeros(2)),
        "Linear wants True, False or an initialiser for bias, got ndarray",
    ),
    "numbers for an initialiser": (
        lambda: Linear(tape, 2, 2, 0.0, name="a"),
        "a: Linear wants an initialiser of its weight, such as init.kaiming(seed=1), got 0.0",
    ),
    "an initialiser that answers another shape": (
        lambda: Linear(tape, 2, 3, lambda shape, element: np.zeros((3, 2)), name="b"),
        "b: Linear wants a weight of [2, 3], its initialiser answered [3, 2]",
    ),
    "an initialiser that answers a number": (
        lambda: Positions(tape, 2, 3, lambda shape, element: 0.0, trained=False),
        "Positions wants a table of [2, 3], its initialiser answered []",
    ),
    "one extent of a perceptron": (lambda: Mlp(tape, 3, "relu", zeros), "Mlp wants two extents or more, got 3"),
    "no activation": (
        lambda: Mlp(tape, [2, 2, 2], None, zeros),
        "Mlp: part 0 wants a module or a function, got NoneType",
    ),
    "a list of parts": (
        lambda: Sequential([Value.relu]),
        "Sequential: part 0 wants a module or a function, got list; open it: *parts",
    ),
    "no body": (lambda: Residual(None), "Residual: part 0 wants a module or a function, got NoneType"),
    "a shortcut that is no part": (
        lambda: Residual(Value.relu, 1),
        "Residual: part 1 wants a module or a function, got int",
    ),
    "a branch that is no part": (
        lambda: Parallel(Value.relu, 1),
        "Parallel: part 1 wants a module or a function, got int",
    ),
    "an axis that is no integer": (
        lambda: Parallel(Value.relu, axis="x"),
        "Parallel wants an integer for axis, got 'x'",
    ),
    "a slope": (
        lambda: Activation("leaky_relu", slope=float("nan")),
        "Activation: slope must be a finite number, got nan",
    ),
    "an activation that is no name": (
        lambda: Activation(["relu"]),
        "Activation: none is called ['relu']; there are identity, relu, tanh, sigmoid, gelu, gelu_tanh, silu, "
        "softplus, leaky_relu",
    ),
    "no base": (lambda: Rotary(tape, 2, 2, base=0), "Rotary: base must be a number above 0, got 0"),
    "a rotary that is none": (
        lambda: Attention(tape, 4, 2, zeros, rotary=3),
        "Attention wants a Rotary or none, got int",
    ),
    "no cache": (lambda: attention.decode(token, at, None), "Attention wants a KeyValueCache to decode, got NoneType"),
    "a place that is a number": (
        lambda: attention.decode(token, 3, KeyValueCache(tape, [2, 5, 2])),
        "KeyValueCache wants a selection of one of 5 places, got 3",
    ),
    "numbers for a layer": (
        lambda: Linear(tape, 2, 2, zeros, name="c")(np.zeros((3, 2))),
        "c: Linear wants a value of a tape, got ndarray; numbers are fed to a tape.input, ids to a tape.selection",
    ),
    "a tensor for a norm": (
        lambda: BatchNorm(tape, 4).train(ones),
        "BatchNorm wants a value of a tape, got Tensor; numbers are fed to a tape.input, ids to a tape.selection",
    ),
    "numbers for ids": (
        lambda: Embedding(tape, 3, 2, zeros)(np.array([1])),
        "Embedding wants a value of a tape, got ndarray; numbers are fed to a tape.input, ids to a tape.selection",
    ),
    "numbers to attend": (
        lambda: attention(np.zeros((3, 4))),
        "Attention wants a value of a tape, got ndarray; numbers are fed to a tape.input, ids to a tape.selection",
    ),
    "an array for a function of images": (
        lambda: conv2d(np.zeros((1, 1, 4, 4)), ones),
        "conv2d: wants a tensor or a value, got ndarray",
    ),
    "an array for a pool": (
        lambda: max_pool(np.zeros((1, 1, 4, 4)), 2),
        "max_pool: wants a tensor or a value, got ndarray",
    ),
    "an array for attention": (
        lambda: scaled_dot_product(ones, ones.numpy(), ones),
        "scaled_dot_product: wants a tensor or a value, got ndarray",
    ),
    "an array for a loss": (
        lambda: mean_squared_error(np.zeros(2), np.zeros(2)),
        "mean_squared_error: wants a tensor or a value, got ndarray",
    ),
    "a text for a smoothing": (
        lambda: cross_entropy(ones, ones, smoothing="x"),
        "cross_entropy: smoothing must be a number from 0 to 1, got 'x'",
    ),
    "a text for a delta": (lambda: huber(ones, ones, "x"), "huber: delta must be a number above 0, got 'x'"),
    "a scale": (lambda: init.normal(0, float("nan")), "init.normal: scale must be a finite number, got nan"),
    "a gain": (lambda: init.orthogonal(0, "x"), "init.orthogonal: gain must be a finite number, got 'x'"),
    "a limit": (
        lambda: init.truncated_normal(0, 1, "x"),
        "init.truncated_normal: limit must be a number above 0, got 'x'",
    ),
    "a limit that lets nothing pass": (
        lambda: init.truncated_normal(0, 1, 1e-9),
        "init.truncated_normal: limit must be at least 0.001, got 1e-09; see init.uniform",
    ),
    "a name of gathered gradients": (
        lambda: topos.accumulate(tape, tape.differentiate(x.sum(), x), name=3),
        "accumulate: wants a text for its name, got 3",
    ),
    "a name of a recorded step": (
        lambda: Sgd().record(tape, tape.differentiate(x.sum(), x), name=3),
        "Sgd: wants a text for its name, got 3",
    ),
    "a mask's rate": (
        lambda: init.dropout(0, "x"),
        "init.dropout: rate must be a number at least 0 and below 1, got 'x'",
    ),
    "a constant": (lambda: init.constant("x"), "init.constant: wants a number, got 'x'"),
    "an element that is a text": (
        lambda: init.zeros([2], "f32"),  # type: ignore[arg-type]
        "init.constant: wants an element such as f32, got 'f32'",
    ),
    "a path that is no text": (
        lambda: init.normal(0).keyed().at("\ud800"),
        "init.normal: the path '\\ud800' is no text: surrogates not allowed",
    ),
    "a rate": (lambda: schedule.constant("x"), "constant: rate must be a finite number, got 'x'"),
    "a floor": (lambda: schedule.linear(1, 5, "x"), "linear: floor must be a finite number, got 'x'"),
    "half a step": (lambda: schedule.stairs(1, 0.5), "stairs: every must be a whole number above 0, got 0.5"),
    "a number to warm up to": (
        lambda: schedule.warmup(3, 0.1),
        "warmup: wants a schedule to go around, got 0.1; schedule.constant makes one",
    ),
    "no optimizer elsewhere": (
        lambda: Sgd().step_where(lambda symbol: True, 3),
        "Sgd: step_where wants a function of a symbol and an optimizer, got function and int",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_is_refused_by_name(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(ToposError) as caught:
        call()
    assert str(caught.value).splitlines()[0] == message


@pytest.mark.parametrize("case", [case for case in REFUSED if "array for" in case])
def test_what_is_no_operand_is_the_wrong_type_and_no_wrong_shape(case: str) -> None:
    with pytest.raises(RecordedError) as caught:
        REFUSED[case][0]()
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("case", ["numbers for a bias", "a rotary that is none"])
def test_what_is_no_option_is_a_setting(case: str) -> None:
    with pytest.raises(SettingError):
        REFUSED[case][0]()


def test_an_integer_beyond_floats_is_refused() -> None:
    for call in (
        lambda: Adam(epsilon=10**400),
        lambda: init.normal(0, -(10**400)),
        lambda: schedule.stairs(0.1, 10**400, 0.5),
        lambda: BatchNorm(Tape(), 3, epsilon=10**400),
    ):
        with pytest.raises(SettingError, match="must be a (finite|whole) number"):
            call()


def test_a_layer_that_is_refused_leaves_no_parameter_behind() -> None:
    tape = Tape()
    with pytest.raises(ToposError):
        Linear(tape, 2, 3, lambda shape, element: np.zeros((3, 2)))
    assert len(tape) == 0


def test_extents_of_narrow_integers_do_not_overflow() -> None:
    attention = Attention(tape, np.int8(64), np.int8(2), zeros)
    assert tape.resolve(attention.inward.weight).shape == [64, 192]


def test_numbers_of_numpy_are_numbers() -> None:
    assert Sgd(momentum=np.float32(0.5)).momentum == BatchNorm(tape, 2, epsilon=np.float32(0.5)).epsilon == 0.5
    assert schedule.cosine(np.float32(1), np.int64(4))(2) == 0.5
    network, weight = Tape.record(lambda tape: tape.parameter([3.0, 4.0]))
    clipped = clip_by_global_norm(network.parameters(), np.float32(2.5)).of(weight)
    assert_same_bits(clipped, Tensor([1.5, 2.0]))


def test_attention_over_tensors_takes_masks_and_over_values_symbols() -> None:
    rng = np.random.default_rng(0)
    parts = [Tensor(rng.normal(size=(2, 3, 4))) for _ in range(3)]
    mask = topos.causal_mask(3, float("-inf"), element=f64)
    added = scaled_dot_product(*parts, mask=mask)
    assert_same_bits(added, scaled_dot_product(*parts, where=topos.causal_mask(3)))

    def record(tape: Tape) -> Value:
        given = tape.input(mask).symbol()
        return scaled_dot_product(*map(tape.leaf, parts), mask=given)

    network, y = Tape.record(record, f64)
    assert_same_bits(network.entry(y).interpret(network.parameters()).of(y), added)


def test_an_optimizer_that_is_given_no_tables() -> None:
    network, weight = Tape.record(lambda tape: tape.parameter([1.0]))
    table = network.parameters()
    with pytest.raises(topos.KinshipError, match="Adam: steps Parameters, got dict"):
        Adam().step({weight: [1.0]}, table, 0.5)
    with pytest.raises(topos.KinshipError, match="Adam: wants tables by name, got NoneType"):
        Adam().tables = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda weight: None, "Rule: update answers a weight and what is kept by name, got None"),
        (
            lambda weight: (weight, []),
            "Rule: update answers a weight and what is kept by name, got (Tensor([1.], f32), [])",
        ),
        (lambda weight: (1.0, {}), "Rule: update answers tensors or values, as it is given, got 1.0"),
    ],
)
def test_a_rule_that_answers_something_else(answer: Any, message: str) -> None:
    class Rule(topos.Optimizer):
        def update(self, weight: Any, gradient: Any, kept: Any, common: Any) -> Any:
            return answer(weight)

    network, _ = Tape.record(lambda tape: tape.parameter([1.0]))
    with pytest.raises(ToposError) as caught:
        Rule().step(network.parameters(), network.parameters(), 0.5)
    assert caught.value.args[0] == message
