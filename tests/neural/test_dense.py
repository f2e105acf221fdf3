"""Dense layers, activations, and modules one after another or side by side."""

from math import erf, exp, log1p, pi, sqrt

import numpy as np
import pytest

from topos import (
    Activation,
    BatchNorm,
    Embedding,
    KinshipError,
    Linear,
    Mlp,
    Parallel,
    Residual,
    Sequential,
    SettingError,
    ShapeError,
    Tape,
    Tensor,
    Value,
    detach,
    f64,
)
from topos.testing import assert_same_bits


def drawn(shape, element):
    return np.random.default_rng(len(shape)).normal(size=tuple(shape))


def ones(shape, element):
    return Tensor.filled(shape, 1, element)


FORMULAS = {
    "identity": lambda z: z,
    "relu": lambda z: max(z, 0.0),
    "tanh": np.tanh,
    "sigmoid": lambda z: 1 / (1 + exp(-z)),
    "gelu": lambda z: z * (1 + erf(z / sqrt(2))) / 2,
    "gelu_tanh": lambda z: z * (1 + np.tanh(sqrt(2 / pi) * (z + 0.044715 * z**3))) / 2,
    "silu": lambda z: z / (1 + exp(-z)),
    "softplus": lambda z: max(z, 0.0) + log1p(exp(-abs(z))),
    "leaky_relu": lambda z: z if z >= 0 else 0.01 * z,
}


@pytest.mark.parametrize("kind", FORMULAS)
def test_activations(kind) -> None:
    points = np.linspace(-6, 6, 41)
    tape = Tape(f64)
    y = Activation(kind)(tape.input(points)).symbol()
    network = tape.into_network()
    found = network.forward(network.parameters()).of(y).numpy()
    np.testing.assert_allclose(found, [FORMULAS[kind](z) for z in points], rtol=1e-14, atol=1e-15)


def test_gains() -> None:
    """Those of gelu and silu keep the mean square of a standard normal number, as that of relu does."""
    nodes, share = np.polynomial.hermite_e.hermegauss(150)
    for kind in ("gelu", "gelu_tanh", "silu"):
        square = np.sum([FORMULAS[kind](z) ** 2 * w for z, w in zip(nodes, share, strict=True)]) / share.sum()
        assert Activation(kind).gain == pytest.approx(1 / sqrt(square), rel=1e-9)
    given = {kind: Activation(kind).gain for kind in ("relu", "tanh", "sigmoid", "identity", "softplus")}
    assert given == {"relu": sqrt(2), "tanh": 5 / 3, "sigmoid": 1, "identity": 1, "softplus": 1}
    assert Activation("leaky_relu", slope=0.2).gain == sqrt(2 / 1.04)


def test_an_activation_that_nobody_knows() -> None:
    with pytest.raises(SettingError) as caught:
        Activation("swish")
    known = "identity, relu, tanh, sigmoid, gelu, gelu_tanh, silu, softplus, leaky_relu"
    assert str(caught.value) == f"Activation: none is called 'swish'; there are {known}"


def test_a_bias_of_its_own_and_none() -> None:
    tape = Tape()
    assert Linear(tape, 2, 3, drawn, bias=False).bias is None
    layer = Linear(tape, 2, 3, drawn, bias=ones)
    assert_same_bits(tape.resolve(layer.bias).payload(), np.ones(3, np.float32))


def test_layers_of_no_rows_and_of_no_columns() -> None:
    tape = Tape()
    assert Linear(tape, 2, 3, drawn)(tape.input(shape=[0, 2])).shape == [0, 3]
    assert Linear(tape, 2, 3, drawn)(tape.input(shape=[4, 0, 2])).shape == [4, 0, 3]
    assert Linear(tape, 2, 3, drawn)(tape.input(shape=[2])).shape == [3]
    assert Linear(tape, 2, 0, drawn)(tape.input(shape=[5, 2])).shape == [5, 0]


def test_an_mlp_of_functions_and_names() -> None:
    tape = Tape()
    model = Mlp(tape, [2, 4, 4, 1], Value.sin, drawn, name="mlp")
    assert [layer.path for layer in model.layers] == ["mlp.layers.0", "mlp.layers.1", "mlp.layers.2"]
    assert [model.resolve(layer.weight, tape.input(0.0)).shape for layer in model.layers] == [[2, 4], [4, 4], [4, 1]]
    start = len(tape)
    model(tape.input(shape=[3, 2]))
    assert [n.opcode.name for n in tape.nodes()[start:]].count("Sin") == 2
    with pytest.raises(ShapeError) as caught:
        Mlp(tape, [2], "relu", drawn, name="short")
    assert str(caught.value) == "short: Mlp wants two extents or more, got [2]"


def test_a_sequence_carries_what_its_parts_carry() -> None:
    tape = Tape()
    norms = [BatchNorm(tape, 3) for _ in range(3)]
    model = Sequential(
        norms[0],
        Sequential(Value.relu, Residual(norms[1], shortcut=Linear(tape, 3, 3, drawn))),
        Parallel(Value.tanh, norms[2]),
    )
    assert len(model) == 3 and model[0] is norms[0]
    x = tape.input(shape=[5, 3])
    y, carry = model.train(x)
    statistics = [tape.resolve(s) for norm in norms for s in (norm.mean, norm.variance)]
    assert y.shape == model.infer(x).shape == [5, 3] and list(carry) == statistics
    with pytest.raises(KinshipError, match="is carried by two parts; a norm that moves is used once in a step"):
        Sequential(norms[0], norms[0]).train(x)


@pytest.mark.parametrize("kind", [Sequential, Parallel, Residual])
def test_a_part_that_is_no_part(kind) -> None:
    with pytest.raises(SettingError) as caught:
        kind([Value.relu, Value.tanh])
    assert str(caught.value) == (f"{kind.__name__}: part 0 wants a module or a function, got list; open it: *parts")


def test_branches_of_other_shapes() -> None:
    tape = Tape()
    x = tape.input(shape=[2, 3])
    wider = Linear(tape, 3, 4, drawn)
    with pytest.raises(ShapeError) as caught:
        Residual(wider)(x)
    message = "Residual wants a body that answers the shape of its shortcut, [2, 3], got [2, 4]"
    assert str(caught.value).splitlines()[0] == message
    with pytest.raises(ShapeError) as caught:
        Parallel(wider, Value.relu)(x)
    assert str(caught.value).splitlines()[0] == "Parallel wants branches of equal shapes to add, got [2, 4], [2, 3]"
    assert Parallel(wider, Value.relu, axis=1)(x).shape == [2, 7]
    with pytest.raises(SettingError, match="Parallel: wants at least one branch"):
        Parallel()


def test_branches_are_added_left_to_right() -> None:
    tape = Tape()
    x = tape.input([1e8, 1.0])
    y = Parallel(lambda x: x, lambda x: -x, Value.one_like)(x)
    found = detach(y)
    network = tape.into_network()
    assert network.forward(network.parameters()).of(found).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("options", [{"inputs": -1}, {"outputs": 2.5}])
def test_extents_that_are_none(options) -> None:
    with pytest.raises(ShapeError, match=r"^fc: Linear wants "):
        Linear(Tape(), **{"inputs": 2, "outputs": 2} | options, init=drawn, name="fc")


def test_a_last_axis_of_zero_is_a_sum_of_nothing() -> None:
    """A row of no numbers is a row: the leading axes stay, and the bias alone is left."""
    tape = Tape()
    x = tape.input(shape=[3, 4, 0])
    y = Linear(tape, 0, 2, drawn, bias=ones)(x).symbol()
    scores = Embedding(tape, 5, 0, drawn).score(x).symbol()
    network = tape.into_network()
    run = network.forward(network.parameters())
    assert_same_bits(run.of(y), np.ones((3, 4, 2), np.float32))
    assert_same_bits(run.of(scores), np.zeros((3, 4, 5), np.float32))
