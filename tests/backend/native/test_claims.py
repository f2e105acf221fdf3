"""What native plans claim to compute as a whole: nothing large inside is stored, bits are those of the interpreter,
and values are those of loops by hand; for the composition and its gradients, over drawn sizes and elements.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topos import Element, Formula, Network, Plan, Symbol, Tape, Tensor, Value, bf16, f32, f64, where
from topos.testing import assert_same_bits

from ..plans import threads
from . import by_hand

pytest.importorskip("llvmlite")

Array = by_hand.Array
TOLERANCES = {f32: 2e-4, f64: 1e-10}
"""By the largest number: sums of some hundred terms, each rounded. In `bf16` bits alone are compared."""


class Drawn(NamedTuple):
    """Operands, how they are composed, and what loops make of them and a cotangent."""

    operands: list[Array]
    compose: Callable[..., Value]
    loops: Callable[..., by_hand.Answer]


def numbers(draw: Any, *shape: int) -> Array:
    """Few values, so that there are ties."""
    drawn = np.random.default_rng(draw(st.integers(0, 99))).integers(-8, 9, shape)
    return drawn / 4.0


def sizes(draw: Any, least: int, most: int, count: int) -> list[int]:
    return [draw(st.integers(least, most)) for _ in range(count)]


# compositions


@st.composite
def convolutions(draw: Any) -> Drawn:
    rank = draw(st.integers(1, 2))
    images, channels = sizes(draw, 1, 3, 2)
    filters = draw(st.sampled_from([1, 3, 7, 8, 9, 16, 20]))
    kernel, steps, dilations = sizes(draw, 1, 3, rank), sizes(draw, 1, 4, rank), sizes(draw, 1, 2, rank)
    pads = sizes(draw, 0, 2, rank)
    least = [max(1, d * (k - 1) + 1 - 2 * p) for k, d, p in zip(kernel, dilations, pads, strict=True)]
    extents = [low + draw(st.integers(0, 7)) for low in least]
    axes = range(2, 2 + rank)

    def compose(tape: Tape, x: Value, weights: Value) -> Value:
        for axis, pad in zip(axes, pads, strict=True):
            x = x.pad(axis, pad, x.shape[axis] + 2 * pad) if pad else x
        for axis in reversed(axes):
            x = x.unfold(axis, kernel[axis - 2], steps[axis - 2], dilations[axis - 2])
        counts = [x.shape[2 + 2 * at] for at in range(rank)]
        order = [0, *(2 + 2 * at for at in range(rank)), 1, *(3 + 2 * at for at in range(rank))]
        terms = channels * int(np.prod(kernel))
        rows = x.permute(order).reshape([images * int(np.prod(counts)), terms])
        found: Value = rows @ weights.reshape([filters, terms]).transpose()
        return found.reshape([images, *counts, filters]).permute([0, 1 + rank, *range(1, 1 + rank)])

    def loops(x: Array, weights: Array, seed: Array) -> by_hand.Answer:
        return by_hand.convolution(x, weights, seed, steps, dilations, pads)

    x, weights = numbers(draw, images, channels, *extents), numbers(draw, filters, channels, *kernel)
    return Drawn([x, weights], compose, loops)


@st.composite
def pools(draw: Any) -> Drawn:
    largest, rank = draw(st.booleans()), draw(st.integers(1, 2))
    size, step = sizes(draw, 1, 3, 2)
    extents = [size + draw(st.integers(0, 9)) for _ in range(rank)]
    axes = [*range(2, 2 + rank)]

    def compose(tape: Tape, x: Value) -> Value:
        for axis in reversed(axes):
            x = x.unfold(axis, size, step)
        for at in reversed(range(rank)):
            x = x.max_along(3 + 2 * at) if largest else x.sum_along(3 + 2 * at)
        return x if largest else x / float(size**rank)

    def loops(x: Array, seed: Array) -> by_hand.Answer:
        return by_hand.pool(x, seed, axes[::-1], size, step, largest)

    return Drawn([numbers(draw, *sizes(draw, 1, 3, 2), *extents)], compose, loops)


@st.composite
def norms(draw: Any) -> Drawn:
    rows, columns = sizes(draw, 2, 40, 2)
    by_column, centred = draw(st.sampled_from([(False, True), (False, False), (True, True)]))
    axis = 0 if by_column else 1
    extent = rows if by_column else columns

    def compose(tape: Tape, x: Value, gain: Value, bias: Value) -> Value:
        own = x - x.mean_along(axis).broadcast_along(axis, extent) if centred else x
        deviation = ((own * own).mean_along(axis) + 0.25).sqrt().broadcast_along(axis, extent)
        return own / deviation * gain.broadcast_along(0, rows) + bias.broadcast_along(0, rows)

    def loops(x: Array, gain: Array, bias: Array, seed: Array) -> by_hand.Answer:
        return by_hand.norm(x, gain, bias, seed, 0.25, by_column, centred)

    return Drawn([numbers(draw, rows, columns), numbers(draw, columns), numbers(draw, columns)], compose, loops)


@st.composite
def attentions(draw: Any) -> Drawn:
    batch, width, depth = draw(st.integers(1, 3)), *sizes(draw, 1, 20, 2)
    queries, keys = sizes(draw, 1, 70, 2)
    how = draw(st.sampled_from(["", "selected", "added"]))
    mask = np.tril(np.ones((queries, keys)), draw(st.integers(0, keys))) if how else np.ones((queries, keys))

    def compose(tape: Tape, query: Value, key: Value, content: Value) -> Value:
        scores = query @ key.transpose() * 0.5
        if how == "selected":
            scores = where(tape.leaf(mask).broadcast_along(0, batch), scores, -np.inf)
        elif how == "added":
            scores = scores + tape.leaf(np.where(mask, 0.0, -np.inf)).broadcast_along(0, batch)
        return scores.softmax(2) @ content

    def loops(query: Array, key: Array, content: Array, seed: Array) -> by_hand.Answer:
        return by_hand.attention(query, key, content, mask, seed, 0.5)

    shapes = (batch, queries, depth), (batch, keys, depth), (batch, keys, width)
    return Drawn([numbers(draw, *shape) for shape in shapes], compose, loops)


@st.composite
def entropies(draw: Any) -> Drawn:
    rows, classes = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    by_row = draw(st.booleans())
    ids = np.arange(rows) * 7 % classes

    def compose(tape: Tape, scores: Value) -> Value:
        picked = tape.leaf(Tensor.selection(ids, classes)).select(scores.log_softmax(1), 0.0)
        return -(picked.sum_along(1).sum() if by_row else picked.sum()) / rows

    def loops(scores: Array, seed: Array) -> by_hand.Answer:
        return by_hand.entropy(scores, ids, float(seed), rows)

    return Drawn([numbers(draw, rows, classes)], compose, loops)


KINDS = {
    "convolution": convolutions(),
    "pool": pools(),
    "norm": norms(),
    "attention": attentions(),
    "cross entropy": entropies(),
}

# what is held against what


def recorded(drawn: Drawn, element: Element, gradients: bool) -> tuple[Network, list[Symbol], Array]:
    """The value, with `gradients` also the gradient of each operand, and the cotangent of the value."""

    def record(tape: Tape) -> Any:
        operands = [tape.parameter(operand) for operand in drawn.operands]
        value = drawn.compose(tape, *operands)
        seed = np.arange(value.shape.volume).reshape(value.shape) % 5 / 2.0 - 0.5
        if not gradients:
            return [value], seed
        weighted = (value * tape.leaf(seed)).sum()
        return [value, *(slope for _, slope in tape.differentiate(weighted, operands))], seed

    network, (symbols, seed) = Tape.record(record, element=element)
    return network, symbols, seed


def fused_rows(plan: Plan) -> set[int]:
    return {int(line.split()[0]) for line in plan.describe().splitlines() if line.endswith("fused")}


def stored_rows(plan: Plan) -> set[int]:
    """What the groups say that they store, their reasons and kernels aside."""
    groups = [line for line in plan.explain().splitlines() if "  stores " in line]
    return {int(row) for line in groups for row in line.partition("  stores ")[2].split("  ")[0].split(", ")}


def stored_inside(plan: Plan) -> list[int]:
    """What is said to be fused and is stored, and is not what a pattern hands out in another name."""
    nodes = {node.symbol.index: node for node in plan.nodes()}
    readers: dict[int, list[int]] = {}
    for row, node in nodes.items():
        for operand in node.operands:
            readers.setdefault(operand.index, []).append(row)
    fused = fused_rows(plan)

    def is_in_another_name(row: int) -> bool:
        while row in fused:
            if len(readers[row]) != 1 or nodes[readers[row][0]].shape.volume != nodes[row].shape.volume:
                return False
            (row,) = readers[row]
            if nodes[row].opcode.name not in ("Add", "Permute", "Reshape", "Fold", "Stop"):
                return False
        return True

    return sorted(row for row in fused & stored_rows(plan) if not is_in_another_name(row))


def check(network: Network, symbols: list[Symbol]) -> Plan:
    """Claims, and bits on every number of threads."""
    plan, parameters = network.entry(symbols).lower(), network.parameters()
    expected = network.entry(symbols).backends([]).lower().forward(parameters)
    assert stored_inside(plan) == []
    for pattern in plan.patterns():
        windows = {node.index for node in pattern.nodes if network.node(node).opcode.name == "Unfold"}
        assert windows.isdisjoint(stored_rows(plan))
        assert f"  of {pattern.kind}" in plan.explain() or f", {pattern.kind}" in plan.explain()
    for count in range(1, 9):
        with threads(count):
            found = plan.forward(parameters)
        for symbol in symbols:
            assert_same_bits(found.of(symbol), expected.of(symbol))
    return plan


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("element", [f32, f64, bf16], ids=lambda element: element.name)
@settings(max_examples=3)
@given(data=st.data())
def test_claims_bits_and_values(kind: str, element: Element, data: st.DataObject) -> None:
    drawn: Drawn = data.draw(KINDS[kind])
    for gradients in (False, True):
        network, symbols, seed = recorded(drawn, element, gradients)
        plan = check(network, symbols)
        if element in TOLERANCES:
            run = plan.forward(network.parameters())
            value, slopes = drawn.loops(*drawn.operands, seed)
            for symbol, expected in zip(symbols, [value, *slopes], strict=False):
                atol = TOLERANCES[element] * max(1.0, float(np.abs(expected).max()))
                np.testing.assert_allclose(run.of(symbol).numpy(), expected, rtol=0, atol=atol)


# what is claimed at sizes for which native code is made


def large(kind: str) -> Drawn:
    random = np.random.default_rng(3)

    def convolution(tape: Tape, x: Value, weights: Value) -> Value:
        windows = x.pad(2, 1, 14).pad(3, 1, 14).unfold(3, 3).unfold(2, 3).permute([0, 2, 4, 1, 3, 5])
        return windows.reshape([288, 36]) @ weights

    def attention(tape: Tape, query: Value, key: Value, content: Value) -> Value:
        return (query @ key.transpose() * 0.25).softmax(2) @ content

    def pool(tape: Tape, x: Value) -> Value:
        return (x * 2.0).unfold(3, 2, 2).unfold(2, 2, 2).max_along(5).max_along(3)

    def norm(tape: Tape, x: Value, gain: Value, bias: Value) -> Value:
        rows = x.shape[0]
        own = x - x.mean_along(0).broadcast_along(0, rows)
        deviation = ((own * own).mean_along(0) + 0.25).sqrt().broadcast_along(0, rows)
        return own / deviation * gain.broadcast_along(0, rows) + bias.broadcast_along(0, rows)

    def by_row(tape: Tape, x: Value, weights: Value, gain: Value, bias: Value) -> Value:
        """A product added to what it was made of, each row normalised, and a product of that."""
        batch, rows, columns = x.shape

        def spread(row: Value) -> Value:
            return row.broadcast_along(0, rows).broadcast_along(0, batch)

        def multiplied(value: Value) -> Value:
            return (value.reshape([batch * rows, columns]) @ weights).reshape([batch, rows, columns])

        y = x + multiplied(x)
        own = y if kind == "RMS norm" else y - y.mean_along(2).broadcast_along(2, columns)
        deviation = ((own * own).mean_along(2) + 0.25).sqrt().broadcast_along(2, columns)
        return multiplied(own / deviation * spread(gain) + spread(bias))

    def entropy(tape: Tape, scores: Value) -> Value:
        labels = tape.leaf(Tensor.selection(np.arange(40) % 30, 30))
        return (scores.logsumexp(1) - labels.select(scores, 0.0).sum_along(1)).sum() / 40

    shapes: Any = {
        "batch norm": [(2048, 32), (32,), (32,)],
        "cross entropy": [(40, 30)],
        "convolution": [(2, 4, 12, 12), (36, 16)],
        "attention": [(8, 64, 16), (8, 64, 16), (8, 64, 16)],
        "pool": [(2, 3, 8, 8)],
        "layer norm": (norms := [(4, 20, 24), (24, 24), (24,), (24,)]),
        "RMS norm": norms,
    }[kind]
    composed: Any = {"convolution": convolution, "attention": attention, "pool": pool}
    composed |= {"batch norm": norm, "cross entropy": entropy, "layer norm": by_row, "RMS norm": by_row}
    compose = composed[kind]
    return Drawn([random.normal(size=shape) for shape in shapes], compose, by_hand.entropy)


"""The value alone, and with gradients, which work out again what they read inside the composition: what is centred
from the mean, chances from the largest and the sum of their row, masks from what was compared."""
CLAIMED: dict[str, tuple[list[str], list[str]]] = {
    "convolution": (["window product"], ["window product", "window product kernel gradient"]),
    "attention": (["attention"], ["attention", "attention gradient"]),
    "pool": (["max pool"], ["max pool", "max pool gradient"]),
    "layer norm": (["layer norm"], ["layer norm", "layer norm gradient"]),
    "RMS norm": (["RMS norm"], ["RMS norm", "RMS norm gradient"]),
    "batch norm": (["batch norm training"], ["batch norm training", "batch norm training gradient"]),
    "cross entropy": (["cross entropy"], ["cross entropy", "cross entropy gradient"]),
}


@pytest.mark.parametrize("kind", CLAIMED)
def test_what_is_claimed(kind: str) -> None:
    for gradients, kinds in zip((False, True), CLAIMED[kind], strict=True):
        network, symbols, _ = recorded(large(kind), f32, gradients)
        plan = check(network, symbols)
        claimed = Counter(pattern.kind for pattern in plan.patterns())
        assert claimed == Counter(kinds)


INSIDE = {  # what somebody also reads, where it stands inside, and whether the composition hands it out
    "layer norm": [("Sub", 0, False), ("Div", 2, False), ("Sqrt", 0, True)],
    "RMS norm": [("Div", 1, False), ("Sqrt", 0, True)],
    "attention": [("Exp", 0, False), ("Div", 0, False), ("SumAlong", 0, True)],
    "pool": [("MaxAlong", 0, True)],
}


@pytest.mark.parametrize("kind", INSIDE)
def test_what_somebody_reads_inside_declines_unless_it_is_handed_out(kind: str) -> None:
    network, symbols, _ = recorded(large(kind), f32, True)
    nodes = network.entry(symbols).lower().nodes()
    for name, at, is_handed in INSIDE[kind]:
        inner = [node.symbol for node in nodes if node.opcode.name == name][at]
        plan = check(network, [*symbols, inner])
        found = [pattern for pattern in plan.patterns() if pattern.kind == CLAIMED[kind][0][0]]
        assert all(inner in (pattern.root, *pattern.results.values()) for pattern in found if inner in pattern.nodes)
        assert any(inner in pattern.results.values() for pattern in found) == is_handed
        assert inner.index not in fused_rows(plan)


def pooled(element: Element, largest: bool, show: Callable[[Value], list[Value]]) -> tuple[Network, list[Symbol]]:
    """A pool of a parameter, its cotangent with both zeros, and what is shown of its gradient."""

    def record(tape: Tape) -> Any:
        x = tape.parameter(np.random.default_rng(3).integers(-3, 4, (2, 3, 8, 8)) / 2.0)
        windows = x.unfold(3, 2, 2).unfold(2, 2, 2)
        value = windows.max_along(5).max_along(3) if largest else windows.sum_along(5).sum_along(3) / 4.0
        seed = np.where(np.arange(value.shape.volume) % 3, np.arange(value.shape.volume) % 5 - 2.0, -0.0)
        ((_, slope),) = tape.differentiate((value * tape.leaf(seed.reshape(value.shape))).sum(), [x])
        return [value, *show(slope)]

    return Tape.record(record, element=element)


SHOWN: dict[str, Callable[[Value], list[Value]]] = {
    "alone": lambda slope: [slope],
    "and what is made of it": lambda slope: [slope, slope * 2.0],
    "and its order of memory": lambda slope: [slope, slope.reshape([6, 64])],
    "only what is made of it": lambda slope: [slope * 2.0],
    "turned": lambda slope: [slope.permute([1, 0, 3, 2])],
}


@pytest.mark.parametrize("shown", SHOWN)
@pytest.mark.parametrize(
    ("element", "largest"), [(f32, True), (f64, True), (bf16, True), (f32, False), (f64, False)], ids=str
)
def test_the_gradient_of_a_pool_may_be_a_result(element: Element, largest: bool, shown: str) -> None:
    network, symbols = pooled(element, largest, SHOWN[shown])
    kinds = [pattern.kind for pattern in check(network, symbols).patterns()]
    assert kinds == (["max pool", "max pool gradient"] if largest else ["average pool", "average pool gradient"])


def test_a_gradient_of_a_pool_that_shows_what_is_inside_is_no_claim() -> None:
    network, symbols = pooled(f32, True, lambda slope: [slope])
    nodes = network.entry(symbols).lower().nodes()
    for inner in [node.symbol for node in nodes if node.shape.volume == 384 and node.opcode.name in ("Select", "Fold")]:
        plan = check(network, [*symbols, inner])
        assert all(inner not in pattern.nodes for pattern in plan.patterns())


def test_what_is_stored_is_counted_and_what_is_not_is_not() -> None:
    network, symbols, _ = recorded(large("convolution"), f32, False)
    native, plain = network.entry(symbols).lower(), network.entry(symbols).backends([]).lower()
    (pattern,) = native.patterns()
    patches = [node for node in native.nodes() if node.shape.volume == 288 * 36]
    assert {node.symbol.index for node in patches} <= fused_rows(native)
    assert network.node(pattern.operands["operand"]).opcode.name == "Pad"
    assert max(volume for _, volume in native.live_series()) + 288 * 36 < max(v for _, v in plain.live_series())


def test_few_columns_are_no_claim() -> None:
    """With fewer columns the windows are written out, as the product reads them better so."""
    drawn = large("convolution")
    narrow = drawn._replace(operands=[drawn.operands[0], drawn.operands[1][:, :7]])
    network, symbols, _ = recorded(narrow, f32, False)
    plan = check(network, symbols)
    assert plan.patterns() == []
    assert [pattern.kind for pattern in plan.patterns(Formula)] == ["window product"]
    assert "  of " not in plan.explain() and "fused" not in plan.describe()


def test_the_check_finds_what_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    from topos.backend.llvm_kernels import Fused

    monkeypatch.setattr(Fused, "stores", lambda self, task: {})
    drawn = large("convolution")
    narrow = drawn._replace(operands=[drawn.operands[0], drawn.operands[1][:, :7]])
    network, symbols, _ = recorded(narrow, f32, False)
    plan = network.entry(symbols).lower()
    assert [pattern.kind for pattern in plan.patterns()] == ["window product"]
    assert len(stored_inside(plan)) > 0
