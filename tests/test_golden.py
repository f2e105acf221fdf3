"""Every stage's print, byte for byte, and the values that the worked examples are known to have."""

import re
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NamedTuple

import numpy as np
import pytest

from topos import (
    Adjoints,
    Element,
    Network,
    ShapeError,
    Symbol,
    Tape,
    Tensor,
    ToposError,
    Value,
    bf16,
    concat,
    f32,
    f64,
    where,
)
from topos.testing import assert_same_bits

Golden = Callable[[str, str], None]


def placed(text: str, *functions: Any) -> str:
    """The text with `recording:n`, n counted from the first line of the functions that recorded, for file and line."""
    numbers = {}
    for function in functions:
        first = function.__code__.co_firstlineno
        numbers.update({number: number - first for number in _lines(function.__code__)})
    return re.sub(r"\S*test_golden\.py:(\d+)", lambda found: f"recording:{numbers[int(found.group(1))]}", text)


def _lines(code: CodeType) -> Iterator[int]:
    yield from (number for _, _, number in code.co_lines() if number is not None)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _lines(constant)


class Walk(NamedTuple):
    tape: Tape
    weights: Value
    input: Value
    hidden: Value
    loss: Value


def walk() -> Walk:
    tape = Tape(f32)
    weights = tape.parameter([[0.5, -0.25], [0.25, 0.4]])
    input = tape.input([[1, 2]])
    hidden = (input @ weights).tanh()
    loss = (hidden * hidden).sum()
    return Walk(tape, weights, input, hidden, loss)


class Sealed(NamedTuple):
    network: Network
    weights: Symbol
    hidden: Symbol
    loss: Symbol
    adjoints: Adjoints


def sealed() -> Sealed:
    tape, weights, _, hidden, loss = walk()
    adjoints = tape.differentiate(loss, [weights])
    symbols = weights.symbol(), hidden.symbol(), loss.symbol(), adjoints.detach()
    return Sealed(tape.into_network(), *symbols)


# the walk: a layer and a loss


def test_the_spec(golden: Golden) -> None:
    tape = walk().tape
    golden(tape.describe(), "walk_spec.txt")
    network = tape.into_network()
    assert network.describe() == network.into_tape().describe().replace("\ntape:", "\nnetwork:")


def test_the_derivative_is_appended(golden: Golden) -> None:
    tape, weights, _, _, loss = walk()
    before = tape.describe().splitlines()[:-1]
    tape.differentiate(loss, [weights])
    text = tape.describe().splitlines()
    assert text[:6] == before
    golden("\n".join(text[6:]), "walk_derivative.txt")


def test_the_plan_of_the_derivative(golden: Golden) -> None:
    network, _, hidden, _, adjoints = sealed()
    plan = network.entry(adjoints.roots()).observe(hidden).lower()
    golden(plan.describe(), "walk_plan.txt")
    scheduled = [node.symbol.index for node in plan.nodes()]
    assert sorted(set(range(29)) - set(scheduled)) == [21, 22, 25, 26]
    assert not plan.can_backward


@pytest.mark.parametrize(
    ("observed", "backward", "name"),
    [(False, False, "plan_plain.txt"), (True, False, "plan_observed.txt"), (False, True, "plan_backward.txt")],
)
def test_the_plans_of_the_spec(golden: Golden, observed: bool, backward: bool, name: str) -> None:
    tape, _, _, hidden, loss = walk()
    symbols = hidden.symbol(), loss.symbol()
    entry = tape.into_network().entry(symbols[1])
    entry = entry.observe(symbols[0]) if observed else entry
    plan = (entry.backward() if backward else entry).lower()
    golden(plan.describe(), name)
    assert plan.can_backward == backward


def test_the_series_of_live_volumes() -> None:
    tape, _, _, _, loss = walk()
    symbol = loss.symbol()
    plan = tape.into_network().entry(symbol).lower()
    # the 2x2 weights and 1x2 input live until the product; then two rows of two; at last a row and the loss
    assert [(at.index, volume) for at, volume in plan.live_series()] == [(0, 4), (1, 6), (2, 8), (3, 4), (4, 4), (5, 3)]


@pytest.mark.parametrize("route", ["whole", "interpret", "plan"])
def test_the_values_of_the_walk(route: str) -> None:
    network, weights, hidden, loss, adjoints = sealed()
    entry = network.entry(adjoints.roots()).observe(hidden)
    forward = {"whole": network.forward, "interpret": entry.interpret, "plan": entry.lower().forward}[route]
    run = forward(network.parameters())
    assert str(run.of(loss).scalar()) == "0.83054614"
    assert_same_bits(run.of(hidden), np.array([[0.7615942, 0.5005202]], np.float32))
    gradient = run.of(adjoints.of(weights))
    assert_same_bits(gradient, np.array([[0.6397, 0.75025934], [1.2794, 1.5005187]], np.float32))


def test_the_engine_gradient_has_the_bits_of_the_recorded_one() -> None:
    network, weights, _, loss, adjoints = sealed()
    run = network.forward(network.parameters())
    assert_same_bits(run.backward(loss).of(weights), run.of(adjoints.of(weights)))


@pytest.mark.parametrize("recorded", [True, False])
def test_five_steps_of_descent(recorded: bool) -> None:
    network, _, _, loss, adjoints = sealed()
    parameters = network.parameters()
    losses = []
    for _ in range(6):
        run = network.forward(parameters)
        losses.append(f"{float(run.of(loss)):.4f}")
        engine = run.backward(loss).parameters(parameters)
        gradients = run.recorded_gradients(adjoints) if recorded else engine
        parameters = parameters.step(gradients, lambda weight, gradient: weight - gradient * 0.05)
    assert losses == ["0.8305", "0.5910", "0.3760", "0.2014", "0.0826", "0.0260"]


# scalars


def test_a_scalar_spec(golden: Golden) -> None:
    tape = Tape()
    constant = tape.leaf(1.0)
    weight, x = tape.parameter(2.0), tape.input(3.0)
    (weight * x + constant).tanh()
    golden(tape.describe(), "scalar_spec.txt")


def test_a_scalar_derivative(golden: Golden) -> None:
    tape = Tape()
    weight, x, y = tape.parameter(2.0), tape.input(3.0), tape.input(5.0)
    error = weight * x - y
    adjoints = tape.differentiate(error * error, [weight])
    golden(tape.describe(), "scalar_derivative.txt")
    assert adjoints.of(weight).symbol().index == 20
    gradient = adjoints.of(weight).symbol()
    network = tape.into_network()
    assert float(network.forward(network.parameters()).of(gradient)) == 6.0


# elements


@pytest.mark.parametrize(
    ("element", "value"), [(f64, "3.7912668765691295"), (f32, "3.791267"), (bf16, "3.78125")], ids=str
)
def test_one_spec_text_over_three_elements(element: Element, value: str) -> None:
    def record(element: Element) -> tuple[Tape, Value]:
        tape = Tape(element)
        weights = tape.parameter(Tensor([[0.5, -0.25], [0.25, 0.4]]).convert(element))
        return tape, (tape.input(Tensor([[1, 2]]).convert(element)) @ weights).tanh().exp().sum()

    tape, total = record(element)
    assert tape.describe() == record(f32)[0].describe()
    symbol = total.symbol()
    network = tape.into_network()
    for run in (
        network.forward(network.parameters()),
        network.entry(symbol).interpret(network.parameters()),
        network.entry(symbol).lower().forward(network.parameters()),
    ):
        assert str(run.of(symbol).scalar()) == value
        assert run.of(symbol).element is element


# our own texts


def model(tape: Tape) -> dict[str, Any]:
    x = tape.input(shape=[2, 3], name="x")
    with tape.scope("block"):
        weights = tape.parameter([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], name="weights")
        hidden = (x @ weights).softmax(1).named("hidden")
    doubled = 2.0 * hidden
    loss = (doubled.gelu()).mean()
    return {"hidden": hidden, "loss": loss, "adjoints": tape.differentiate(loss, weights)}


def test_names_and_lines(golden: Golden) -> None:
    network, names = Tape.record(model)
    golden(placed(network.describe(names=True, lines=True), model), "names_and_lines.txt")
    plan = network.entry(names["loss"]).lower()
    golden(placed(plan.describe(names=True, lines=True), model), "names_and_lines_plan.txt")
    assert network.describe() == Tape.record(model)[0].describe()


def test_mixed_elements(golden: Golden) -> None:
    tape = Tape()
    master = tape.parameter([[1.0, 2.0], [3.0, 4.0]])
    narrow = tape.parameter([[0.5, 0.25]], element=bf16)
    product = narrow @ master.to(bf16)
    wide = product.to(f64) * tape.leaf([[1.0, 2.0]], element=f64)
    tape.differentiate(wide.to(f32).sum(), [master, narrow])
    golden(tape.describe(), "elements.txt")


def test_attributes(golden: Golden) -> None:
    tape = Tape()
    table = tape.parameter(np.zeros((5, 4)), name="table")
    ids = tape.selection([2, 3], 5, absent=-1)
    fixed = tape.leaf(Tensor.selection([4, 0, 1], 5))
    rows = table.gather(ids)
    rows.scatter(ids)
    table.gather(fixed).scatter(fixed)
    padded = rows.pad(0, 1, 9).pad(1, 0, 5, -np.inf)
    windows = padded.unfold(0, 3, 2, 2)
    windows.fold(0, 3, 2, 2, 9)
    windows.permute([2, 0, 1]).narrow(0, 1, 2).reshape([2, 9]).max_along(1)
    rows.sum_along(-1).broadcast_along(0, 2).log_softmax(0).logsumexp(1).sum().broadcast([1])
    rows[0, 1:3]
    concat([rows, rows], 1)
    where(ids, 1.0, 0.0)
    golden(tape.describe(names=True), "attributes.txt")


def test_a_carrying_plan(golden: Golden) -> None:
    network, _, hidden, loss, adjoints = sealed()
    tape = network.into_tape()
    weights, gradient = (tape.resolve(symbol) for pair in adjoints for symbol in pair)
    following = (weights - gradient * 0.05).symbol()
    seen = tape.input(0.0)
    counted = (seen + 1.0).symbol()
    symbols = weights.symbol(), seen.symbol()
    network = tape.into_network()
    plan = network.entry(loss).carry({symbols[0]: following, symbols[1]: counted}).lower()
    golden(plan.describe(), "plan_carry.txt")
    assert plan.results == [loss]


def refused() -> Iterator[Exception]:
    tape = Tape()
    x = tape.input(shape=[2, 3], name="x")
    w = tape.parameter(np.zeros((4, 5)))
    h = x.tanh()
    v = tape.leaf([1.0, 2.0, 3.0])
    total = w.sum()
    wide = x.to(f64)
    ids = tape.selection([2], 3)
    gradient = tape.differentiate((h * h).sum(), x).of(x)
    attempts: list[Callable[[], Any]] = [
        lambda: h @ w,
        lambda: gradient @ w,
        lambda: x + v,
        lambda: x + [[1.0, 2.0]],
        lambda: x * total,
        lambda: where(x, w, 0.0),
        lambda: x + wide,
        lambda: where(x, wide, 1.0),
        lambda: x + (2**24 + 1),
        lambda: x.softmax(2),
        lambda: x.gather(x),
        lambda: v.gather(ids).scatter(h),
        lambda: tape.differentiate(x, [w]),
        lambda: tape.vjp(x, [1.0], [w]),
        lambda: tape.vjp(x, wide, [w]),
        lambda: tape.input([[1.0]], shape=[2]),
        lambda: tape.parameter(1.0, name="x"),
    ]
    for attempt in attempts:
        with pytest.raises(ToposError) as caught:
            attempt()
        yield caught.value


def test_refusals(golden: Golden) -> None:
    texts = [f"{type(error).__name__}: {placed(str(error), refused)}" for error in refused()]
    golden("\n".join(texts), "refusals.txt")


def divided(tape: Tape) -> dict[str, Value]:
    p = tape.parameter([4.0, 1.0], name="p")
    q = tape.input([2.0, 1.0], name="q")
    r = (p + q) / (p - q)
    s = r - r
    t = (s * p).sum()
    return {"p": p, "r": r, "s": s, "t": t}


def rooted(tape: Tape) -> dict[str, Value]:
    p = tape.parameter([4.0, 1.0], name="p")
    q = tape.input([2.0, 1.0], name="q")
    root = ((p - q).sqrt() * 0.0).sum()
    return {"gradient": tape.differentiate(root, p).of(p)}


def test_reports(golden: Golden) -> None:
    texts = []
    for record, root in ((divided, "t"), (rooted, "gradient")):
        network, names = Tape.record(record)
        entry = network.entry(names[root]).diagnose()
        report = entry.interpret(network.parameters()).report()
        assert str(entry.lower().forward(network.parameters()).report()) == str(report)
        texts.append(placed(str(report), record))
    golden("\n\n".join(texts), "reports.txt")


def test_placed_counts_from_the_function() -> None:
    with pytest.raises(ShapeError) as caught:
        walk().hidden.sum_along(4)
    assert placed(str(caught.value), walk) == "sum_along: no axis 4 in shape [1, 2] of rank 2"
    text = placed(walk().tape.describe(lines=True), walk).splitlines()
    assert text[3].endswith("recording:4")
