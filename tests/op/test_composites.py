"""Compositions: values by NumPy or by hand, the same bits eager and recorded, and no trace of a failed one."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import Element, RecordedError, Tape, Tensor, ToposError, bf16, concat, einsum, f32, f64, stack, where
from topos.op import composites, functions
from topos.op.composites import Composites
from topos.testing import assert_same_bits, check_gradient

INF, NAN = float("inf"), float("nan")
CORNERS = np.array([-INF, -30.0, -1.5, -1.0, -0.0, 0.0, 0.25, 1.0, 2.0, 30.0, INF, NAN])
MATRIX = np.array([[0.5, -1.25, 2.0], [-0.75, 0.25, -0.0]])
CUBE = np.linspace(-2.0, 2.0, 24).reshape(2, 3, 4)

erf = np.vectorize(math.erf)


def logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def softmax(x: Any, axis: int) -> Any:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def by_tanh(x: Any) -> Any:
    return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


Case = tuple[str, Callable[..., Any], Callable[..., Any], tuple[Any, ...]]

CASES: list[Case] = [
    # name, over recordables, over NumPy, operands
    ("abs", lambda x: x.abs(), np.abs, (CORNERS,)),
    ("__abs__", abs, np.abs, (CORNERS,)),
    ("minimum", lambda x, y: x.minimum(y), np.minimum, (CORNERS, CORNERS[::-1])),
    ("minimum number", lambda x: x.minimum(0.5), lambda x: np.minimum(x, 0.5), (CORNERS,)),
    ("minimum integer", lambda x: x.minimum(0), lambda x: np.minimum(x, 0), (CORNERS,)),
    ("clip", lambda x: x.clip(-1.0, 2), lambda x: np.clip(x, -1, 2), (CORNERS,)),
    ("clip tensors", lambda x, a, b: x.clip(a, b), np.clip, (MATRIX, MATRIX - 1, MATRIX[::-1] + 1)),
    ("clip one side", lambda x: x.clip(-INF, 1.0), lambda x: np.minimum(x, 1.0), (CORNERS,)),
    ("relu", lambda x: x.relu(), lambda x: np.maximum(x, 0), (CORNERS,)),
    ("sigmoid", lambda x: x.sigmoid(), logistic, (CORNERS,)),
    ("silu", lambda x: x.silu(), lambda x: x * logistic(x), (CORNERS[1:-2],)),
    ("softplus", lambda x: x.softplus(), lambda x: np.logaddexp(0, x), (CORNERS,)),
    ("gelu", lambda x: x.gelu(), lambda x: x * (1 + erf(x / np.sqrt(2.0))) / 2, (CORNERS[2:-2],)),
    ("gelu_tanh", lambda x: x.gelu_tanh(), by_tanh, (CORNERS[2:-2],)),
    ("mean", lambda x: x.mean(), lambda x: x.mean(), (CUBE + 1,)),
    ("mean_along", lambda x: x.mean_along(1), lambda x: x.mean(1), (CUBE,)),
    ("mean_along end", lambda x: x.mean_along(-1), lambda x: x.mean(-1), (CUBE,)),
    ("softmax", lambda x: x.softmax(1), lambda x: softmax(x, 1), (CUBE,)),
    ("softmax end", lambda x: x.softmax(-1), lambda x: softmax(x, -1), (MATRIX * 40,)),
    ("transpose", lambda x: x.transpose(), lambda x: x.swapaxes(-1, -2), (CUBE,)),
    ("swap", lambda x: x.swap(0, -1), lambda x: x.swapaxes(0, -1), (CUBE,)),
    ("squeeze", lambda x: x.unsqueeze(1).squeeze(1), lambda x: x, (MATRIX,)),
    ("squeeze end", lambda x: x.unsqueeze(-1).squeeze(-1), lambda x: x, (MATRIX,)),
    ("unsqueeze", lambda x: x.unsqueeze(1), lambda x: x[:, None], (MATRIX,)),
    ("unsqueeze end", lambda x: x.unsqueeze(-1), lambda x: x[..., None], (MATRIX,)),
    ("unsqueeze front", lambda x: x.unsqueeze(-3), lambda x: x[None], (MATRIX,)),
    ("broadcast_to", lambda x: x.broadcast_to((4, 2, 3)), lambda x: np.broadcast_to(x, (4, 2, 3)), (MATRIX,)),
    (
        "broadcast_to ones",
        lambda x: x.broadcast_to((2, 5, 3)),
        lambda x: np.broadcast_to(x, (2, 5, 3)),
        (CUBE[:, :1, :3],),
    ),
    ("broadcast_to scalar", lambda x: x.broadcast_to((2, 0)), lambda x: np.broadcast_to(x, (2, 0)), (np.array(2.0),)),
    ("broadcast_to itself", lambda x: x.broadcast_to((2, 3)), lambda x: x, (MATRIX,)),
    ("broadcast_to nothing", lambda x: x.broadcast_to(()), lambda x: x, (np.array(2.0),)),
    ("broadcast_to empty", lambda x: x.broadcast_to((2, 0)), lambda x: np.zeros((2, 0)), (np.zeros((2, 1)),)),
    ("square", lambda x: x**2, lambda x: x * x, (CORNERS,)),
    ("power", lambda x: x**3, lambda x: x**3.0, (CORNERS,)),
    ("root", lambda x: abs(x) ** 0.5, lambda x: np.abs(x) ** 0.5, (CORNERS,)),
    ("power of values", lambda x, y: abs(x) ** y, lambda x, y: np.abs(x) ** y, (CORNERS[1:-2], CORNERS[2:-1])),
    ("power of a number", lambda x: 2.0**x, lambda x: 2.0**x, (CORNERS,)),
    ("subtracted from", lambda x: 1 - x, lambda x: 1 - x, (CORNERS,)),
    ("divides", lambda x: 1 / x, lambda x: 1 / x, (CORNERS[CORNERS != 0],)),
    ("where", where, lambda m, a, b: np.where(m != 0, a, b), (CORNERS, CORNERS + 1, CORNERS[::-1])),
    ("where numbers", lambda m: where(m, 1.0, -2), lambda m: np.where(m != 0, 1.0, -2.0), (CORNERS,)),
    ("where mask", lambda a: where([True, False, True], a, 0.0), lambda a: a * [1, 0, 1], (np.array([1.0, 2.0, 3.0]),)),
    ("concat", lambda *x: concat(x, 0), lambda *x: np.concatenate(x), (MATRIX, -MATRIX, MATRIX[:1])),
    ("concat end", lambda *x: concat(x, -1), lambda *x: np.concatenate(x, -1), (CUBE, CUBE[..., :0], CUBE[..., :1])),
    ("concat one", lambda x: concat([x], 1), lambda x: x, (MATRIX,)),
    ("concat corners", lambda *x: concat(x, 0), lambda *x: np.concatenate(x), (CORNERS, CORNERS)),
    ("stack", lambda *x: stack(x, 0), lambda *x: np.stack(x), (MATRIX, -MATRIX)),
    ("stack end", lambda *x: stack(x, -1), lambda *x: np.stack(x, -1), (CORNERS, CORNERS[::-1], CORNERS)),
    ("stack scalars", lambda *x: stack(x, 0), lambda *x: np.stack(x), (np.array(-0.0), np.array(NAN), np.array(2.0))),
    *[
        (f"einsum {spec}", lambda *x, spec=spec: einsum(spec, *x), lambda *x, spec=spec: np.einsum(spec, *x), operands)
        for spec, operands in (
            ("ij,jk->ik", (MATRIX, MATRIX.T)),
            ("ij,kj->ki", (MATRIX, MATRIX)),
            ("bij,bjk->bik", (CUBE, CUBE.swapaxes(1, 2))),
            ("bij,bjk->kib", (CUBE, CUBE.swapaxes(1, 2))),
            ("ij->ji", (MATRIX,)),
            ("ij->", (MATRIX,)),
            ("ij->j", (MATRIX,)),
            ("ij->ij", (MATRIX,)),
            ("ij,ij->ij", (MATRIX, MATRIX)),
            ("ij,ij->", (MATRIX, MATRIX)),
            ("i,j->ij", (MATRIX[0], MATRIX[1])),
            ("i,i->", (MATRIX[0], MATRIX[1])),
            (",ij->ij", (np.array(3.0), MATRIX)),
            ("ij,jk,kl->il", (MATRIX, MATRIX.T, MATRIX)),
            ("ij,k->i", (MATRIX, MATRIX[0])),
            ("bhqd,bhkd->bhqk", (CUBE.reshape(1, 2, 3, 4), CUBE.reshape(1, 2, 3, 4))),
            (" ij , jk -> ik ", (MATRIX, MATRIX.T)),
            ("ij,jk->ik", (MATRIX[:, :0], MATRIX.T[:0])),
        )
    ],
]

each_case = pytest.mark.parametrize(
    ("over", "numpy", "operands"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
each_element = pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)

# Each composition is a handful of operations, each within one unit in the last place; the worst here is gelu.
TOLERANCES = {f64: 1e-14, f32: 2e-6, bf16: 0.06}


def test_every_composition_has_a_case() -> None:
    text = inspect.getsource(inspect.getmodule(test_every_composition_has_a_case))  # type: ignore[arg-type]
    own = [n for n, f in vars(Composites).items() if inspect.isfunction(f) and f.__module__ == composites.__name__]
    for name in own:
        assert f".{name}(" in text or name.startswith("_"), name
    for name, function in vars(functions).items():
        if inspect.isfunction(function) and function.__module__ == functions.__name__ and not name.startswith("_"):
            assert any(case[0].split()[0] == name for case in CASES), name


@each_element
@each_case
def test_a_composition_is_what_numpy_computes(
    over: Callable[..., Any], numpy: Callable[..., Any], operands: tuple[Any, ...], element: Element
) -> None:
    tensors = [Tensor(np.array(operand), f64).convert(element) for operand in operands]
    with np.errstate(all="ignore"):
        expected = numpy(*[tensor.numpy().astype(np.float64) for tensor in tensors])
    result = over(*tensors)
    assert result.element is element
    assert result.shape == expected.shape
    tolerance = TOLERANCES[element]
    np.testing.assert_allclose(result.numpy().astype(np.float64), expected, rtol=tolerance, atol=tolerance / 10)


@each_element
@each_case
def test_a_composition_records_the_bits_that_it_computes(
    over: Callable[..., Any], numpy: Callable[..., Any], operands: tuple[Any, ...], element: Element
) -> None:
    tensors = [Tensor(np.array(operand), f64).convert(element) for operand in operands]
    tape = Tape(element)
    value = over(*[tape.input(tensor) for tensor in tensors]).symbol()
    network = tape.into_network()
    assert_same_bits(network.forward(network.parameters()).of(value), over(*tensors))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat_copies_every_bit(axis: int) -> None:
    parts = [Tensor([[-0.0, NAN], [INF, 5e-324]], f64), Tensor([[0.0, -INF], [-5e-324, -0.0]], f64)]
    joined = concat(parts, axis)
    assert_same_bits(joined, np.concatenate([part.numpy() for part in parts], axis))


# By hand: what NumPy does not say
def test_the_corners_of_the_activations() -> None:
    x = Tensor([-0.0, 0.0, NAN, INF, -INF])
    assert_same_bits(x.relu(), Tensor([0.0, 0.0, NAN, INF, 0.0]))
    assert_same_bits(x.abs(), Tensor([0.0, 0.0, NAN, INF, INF]))
    assert_same_bits(x.sigmoid(), Tensor([0.5, 0.5, NAN, 1.0, 0.0]))
    assert_same_bits(x.softplus(), Tensor([np.log(2.0), np.log(2.0), NAN, INF, 0.0]))
    assert_same_bits(x.minimum(0), Tensor([-0.0, 0.0, NAN, 0.0, -INF]))
    assert_same_bits(x.clip(-1, 1), Tensor([-0.0, 0.0, NAN, 1.0, -1.0]))


def test_sigmoid_and_softplus_keep_their_digits_far_out() -> None:
    x = Tensor([-103.0, -87.0, 90.0], f32)
    np.testing.assert_allclose(x.sigmoid().numpy(), np.exp([-103.0, -87.0, 0.0]), rtol=1e-6, atol=1e-45)
    np.testing.assert_allclose(x.softplus().numpy(), [np.exp(-103.0), np.exp(-87.0), 90.0], rtol=1e-6, atol=1e-45)
    tape = Tape()
    value = tape.parameter(x)
    ((_, gradient),) = tape.differentiate(value.sigmoid().sum(), value)
    symbol = gradient.symbol()
    network = tape.into_network()
    slopes = network.forward(network.parameters()).of(symbol).numpy()
    assert (slopes >= 0).all()
    assert slopes[0] > 0


def slope(function: Callable[[Any], Any], at: float) -> float:
    tape = Tape(f64)
    x = tape.parameter(at)
    ((_, gradient),) = tape.differentiate(function(x), x)
    symbol = gradient.symbol()
    network = tape.into_network()
    return float(network.forward(network.parameters()).of(symbol))


@pytest.mark.parametrize("two", [2, 2.0, np.int64(2), np.float32(2), np.float64(2)], ids=lambda two: type(two).__name__)
def test_a_square_is_a_product_however_two_is_spelled(two: Any) -> None:
    tape = Tape()
    tape.input(3.0) ** two
    assert [node.opcode.name for node in tape.nodes()] == ["Input", "Mul"]


def test_slopes_on_the_kinks() -> None:
    assert slope(lambda x: x.relu(), 0.0) == 0.0
    assert slope(lambda x: x.abs(), 0.0) == 1.0
    assert slope(lambda x: x.clip(-1.0, 1.0), 1.0) == 1.0
    assert slope(lambda x: x.clip(-1.0, 1.0), -1.0) == 1.0
    assert slope(lambda x: x.clip(-1.0, 1.0), 1.5) == 0.0
    assert slope(lambda x: x.minimum(2.0), 2.0) == 1.0
    assert slope(lambda x: x.maximum(2.0), 2.0) == 1.0
    assert slope(lambda x: x**2, 0.0) == 0.0
    assert slope(lambda x: x**1, 0.0) == 1.0


def test_a_mean_divides_and_a_mean_of_nothing_is_nan() -> None:
    third = Tensor([1.0, 1.0, 1.0]).mean()
    assert third.tolist() == 1.0
    assert Tensor([0.1] * 10).mean().tolist() == float(Tensor([0.1] * 10).sum() / 10.0)
    assert math.isnan(float(Tensor.filled((0, 2), 1.0).mean()))
    assert Tensor.filled((2, 0), 1.0).mean_along(0).shape == (0,)
    assert Tensor.filled((2, 0), 1.0).softmax(1).shape == (2, 0)
    assert Tensor.filled((2, 0), 1.0).softmax(0).shape == (2, 0)


def test_a_softmax_masks_what_is_minus_infinite() -> None:
    x = Tensor([[0.0, -INF, 0.0], [-INF, -INF, -INF]])
    assert_same_bits(x.softmax(-1), Tensor([[0.5, 0.0, 0.5], [NAN, NAN, NAN]]))


GRADED: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
    (name, over, operands)
    for name, over, _, operands in CASES
    if all(np.isfinite(operand).all() and (operand != 0).all() and operand.size for operand in operands)
]
GRADED += [
    (name, getattr(Tensor, name), (np.array([-3.0, -0.4, 0.3, 2.5]),))
    for name in ("relu", "abs", "sigmoid", "silu", "softplus", "gelu", "gelu_tanh")
]


@pytest.mark.parametrize(("name", "over", "operands"), GRADED, ids=[case[0] for case in GRADED])
def test_the_gradient_of_a_composition(name: str, over: Callable[..., Any], operands: tuple[Any, ...]) -> None:
    def contracted(*values: Any) -> Any:
        result = getattr(values[0], name)() if over is getattr(Tensor, name, None) else over(*values)
        return (result * np.cos(np.arange(1.0, 1.0 + result.shape.volume)).reshape(result.shape)).sum()

    check_gradient(contracted, *operands, element=f32)


# A composition that fails leaves a tape as it was
def named(value: Any, name: str) -> Any:
    """Another value of the same tape, recorded before."""
    (symbol,) = [node.symbol for node in value.tape.nodes() if node.name == name]
    return value.tape.resolve(symbol)


def failing() -> list[tuple[str, Callable[[Any, Any], Any]]]:
    """Over a [2, 3] value and a [3] value."""
    return [
        ("clip, first limit", lambda x, y: x.clip(y, 1.0)),
        ("clip, second limit", lambda x, y: x.clip(0.0, y)),
        ("clip, second limit is text", lambda x, y: x.clip(0.0, "high")),
        ("clip, second limit is inexact", lambda x, y: x.clip(0.0, 2**24 + 1)),
        ("minimum, shape", lambda x, y: x.minimum(y)),
        ("minimum, list", lambda x, y: x.minimum([1.0, 2.0])),
        ("minimum, text", lambda x, y: x.minimum("low")),
        ("minimum, object", lambda x, y: x.minimum(object())),
        ("minimum, inexact", lambda x, y: x.minimum(2**24 + 1)),
        ("softmax, axis", lambda x, y: x.softmax(2)),
        ("mean_along, axis", lambda x, y: x.mean_along(2)),
        ("transpose, rank", lambda x, y: y.transpose()),
        ("swap, axis", lambda x, y: x.swap(0, 2)),
        ("squeeze, extent", lambda x, y: x.squeeze(0)),
        ("unsqueeze, axis", lambda x, y: x.unsqueeze(4)),
        ("broadcast_to, shape", lambda x, y: x.broadcast_to((4, 3))),
        ("broadcast_to, negative", lambda x, y: y.broadcast_to((-1, 3))),
        ("where, shapes", lambda x, y: where(x, y, x)),
        ("where, other", lambda x, y: where(x, 1.0, "b")),
        ("where, third of another shape", lambda x, y: where(x, [[1.0] * 3] * 2, y)),
        ("where, numbers only", lambda x, y: where(1.0, 2.0, 3.0)),
        ("select, list", lambda x, y: x.select([1.0], 0.0)),
        ("concat, shapes", lambda x, y: concat([x, y], 0)),
        ("concat, elements", lambda x, y: concat([x, x, named(x, "f64")], 0)),
        ("concat, not a value", lambda x, y: concat([x, [[1.0] * 3]], 0)),
        ("concat, axis", lambda x, y: concat([x, x], 2)),
        ("concat, two tapes", lambda x, y: concat([x, x, Tape().input(shape=(2, 3))], 0)),
        ("stack, shapes", lambda x, y: stack([x, y], 0)),
        ("stack, axis", lambda x, y: stack([x, x], 3)),
        ("stack, elements", lambda x, y: stack([x, x, named(x, "f64")], 0)),
        ("stack, two tapes", lambda x, y: stack([x, Tape().input(shape=(2, 3))], 0)),
        ("einsum, extents", lambda x, y: einsum("ij,i->j", x, y)),
        ("einsum, spec", lambda x, y: einsum("ij,j", x, y)),
        ("einsum, elements", lambda x, y: einsum("ij,jk->ik", x, named(x, "f64 transposed"))),
        ("einsum, two tapes", lambda x, y: einsum("ij,ij,jk->ik", x, x, Tape().input(shape=(3, 2)))),
        ("index, range", lambda x, y: x[0, 3]),
        ("index, second part", lambda x, y: x[0:1, "a"]),
        ("index, step", lambda x, y: x[0, ::2]),
        ("add, list", lambda x, y: x + [1.0, 2.0]),
        ("add, ragged", lambda x, y: x + [[1.0], [1.0, 2.0]]),
        ("power, text", lambda x, y: x ** "2"),
        ("power, shape", lambda x, y: x**y),
        ("power of a list", lambda x, y: [1.0, 2.0] ** x),
        ("maximum, complex", lambda x, y: x.maximum(1j)),
        ("cast, no element", lambda x, y: x.to("f64")),
        ("step, inexact", lambda x, y: x.step(2**24 + 1)),
    ]


@pytest.mark.parametrize(("name", "call"), failing(), ids=[name for name, _ in failing()])
def test_a_failing_composition_leaves_the_tape_as_it_was(name: str, call: Callable[[Any, Any], Any]) -> None:
    tape = Tape()
    x, y = tape.input(shape=(2, 3), name="x"), tape.parameter([1.0, 2.0, 3.0], name="y")
    tape.input(shape=(2, 3), name="f64", element=f64)
    tape.input(shape=(3, 2), name="f64 transposed", element=f64)
    length, text = len(tape), tape.describe(names=True, lines=True)
    with pytest.raises((ToposError, TypeError)):
        call(x, y)
    assert len(tape) == length
    assert tape.describe(names=True, lines=True) == text
    assert (x + x).index == length


def test_a_failing_composition_over_tensors_and_values_leaves_the_tape_as_it_was() -> None:
    tape = Tape()
    x = tape.input(shape=(2, 3))
    with pytest.raises(ToposError):
        concat([Tensor([[1.0, 2.0, 3.0]]), x, tape.input(shape=(2, 3)), Tape().input(shape=(2, 3))], 0)
    assert len(tape) == 2


def test_questions_that_only_a_computed_value_answers() -> None:
    tape = Tape()
    for operand in (tape.input(shape=(2,)), Tensor([1.0, 2.0])):
        cases: list[tuple[Callable[[], Any], str]] = [
            (
                lambda o=operand: iter(o),
                "iteration: a value is not iterated; take parts with x[i], or read the numbers: run.of(symbol).numpy()",
            ),
            (
                lambda o=operand: [*o],
                "iteration: a value is not iterated; take parts with x[i], or read the numbers: run.of(symbol).numpy()",
            ),
            (lambda o=operand: o < 1.0, "comparison: "),
            (lambda o=operand: o >= 1.0, "comparison: "),
            (lambda o=operand: o > o, "comparison: "),
            (lambda o=operand: bool(o), "bool: "),
        ]
        for call, message in cases:
            with pytest.raises(RecordedError) as caught:
                call()
            assert str(caught.value).startswith(message)
        for call in (lambda o=operand: o // 2.0, lambda o=operand: o % 2.0, lambda o=operand: 2.0 // o):
            with pytest.raises(TypeError):
                call()
    assert len(tape) == 1


# x[...] against NumPy
GRID = np.arange(24.0).reshape(2, 3, 4)
INDICES: list[Any] = [
    0,
    -1,
    1,
    (0, 1),
    (0, 1, 2),
    (0, -1, -4),
    slice(None),
    slice(1, None),
    slice(None, -1),
    slice(-1, None),
    slice(0, 0),
    slice(5, 9),
    slice(2, 1),
    slice(-9, 1),
    slice(None, None, 1),
    ...,
    (..., 0),
    (0, ...),
    (0, ..., 1),
    (..., slice(1, 3)),
    (slice(None), 1),
    (slice(1), slice(1, 2), slice(2, 3)),
    (slice(None), slice(0, 0), 0),
    (..., slice(None), 2, slice(1, None)),
    (),
    (0, 1, 2, ...),
    (..., 0, 1, 2),
    np.int64(1),
    (np.uint8(1), np.int32(-1)),
    slice(np.int64(1), np.int64(2)),
    (slice(None, 1), ..., -1),
    (Ellipsis, -1, slice(-2, None)),
]


@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_an_index_means_what_it_means_to_numpy(index: Any) -> None:
    expected = GRID[index]
    result = Tensor(GRID)[index]
    assert_same_bits(result, np.array(expected))
    tape = Tape(f64)
    value = tape.parameter(GRID)[index]
    assert value.shape == expected.shape
    assert {node.opcode.name for node in tape.nodes()} <= {"Parameter", "Narrow", "Reshape"}
    symbol = value.symbol()
    network = tape.into_network()
    assert_same_bits(network.forward(network.parameters()).of(symbol), np.array(expected))


def test_a_whole_index_records_nothing() -> None:
    tape = Tape()
    value = tape.input(shape=(2, 3))
    assert value[...] == value
    assert value[:, :] == value
    assert value[()] == value
    assert value[-2:] == value
    assert len(tape) == 1


def test_the_gradient_of_an_index_lands_where_it_was_taken() -> None:
    check_gradient(lambda x: (x[1, :2] * x[0, 1:]).sum() * x[-1, -1], np.arange(1.0, 7.0).reshape(2, 3))
