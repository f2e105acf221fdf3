import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from topos import FeedError, KinshipError, Network, Run, Symbol, Tape, Tensor, bf16, f64
from topos.engine import interpreter
from topos.engine import plan as plans
from topos.testing import assert_same_bits


class Names(NamedTuple):
    x: Symbol
    n: Symbol
    ids: Symbol
    labels: Symbol
    w: Symbol
    total: Symbol
    rows: Symbol


def recorded() -> tuple[Network, Names]:
    def record(tape: Tape) -> Any:
        x = tape.input([[1.0, 2.0, 3.0]], name="x")
        n = tape.input(2.0, name="n", element=f64)
        ids, labels = tape.selection([2], 3, name="ids"), tape.selection([2], 3, absent=-100, name="labels")
        w = tape.parameter(np.arange(6.0).reshape(3, 2), name="w")
        rows = w.gather(ids) + w.gather(labels)
        return Names(x, n, ids, labels, w, (x @ w).sum() + rows.sum(), rows)  # type: ignore[arg-type]

    return Tape.record(record)


GOOD: dict[str, Any] = {"ids": [0, 1], "labels": [2, -100]}
ROUTES = ["whole", "interpret", "plan", "retaining"]


def forward(network: Network, route: str, root: Symbol) -> Callable[..., Run]:
    bound = network.entry(root)
    routes = {
        "whole": network.forward,
        "interpret": bound.interpret,
        "plan": bound.lower().forward,
        "retaining": bound.backward().lower().forward,
    }
    return routes[route]


@pytest.mark.parametrize("route", ROUTES)
def test_feeds_by_symbol_and_by_name(route: str) -> None:
    network, n = recorded()
    run = forward(network, route, n.total)
    parameters = network.parameters()
    by_name = run(parameters, {"x": [[1, 0, 0]], **GOOD})
    by_symbol = run(parameters, {n.ids: [0, 1], n.labels: [2, -100], n.x: np.array([[1, 0, 0]], np.int8)})
    mixed = run(parameters, MappingProxyType({"ids": [0, 1], n.labels: [2, -100], "x": Tensor([[1.0, 0.0, 0.0]])}))
    # 0 + 1 of the product; rows (0 1) and (2 3); rows (4 5) and nothing
    assert [float(r.of(n.total)) for r in (by_name, by_symbol, mixed)] == [16.0] * 3
    assert float(run(parameters, GOOD).of(n.total)) == 1 * 1 + 2 * 5 + 3 * 9 + 15


PAYLOADS: dict[str, Callable[[], Any]] = {
    "list": lambda: [[1, 2, 3]],
    "f32": lambda: np.array([[1, 2, 3]], np.float32),
    "f64": lambda: np.array([[1, 2, 3]], np.float64),
    "f16": lambda: np.array([[1, 2, 3]], np.float16),
    "bf16": lambda: np.array([[1, 2, 3]], ml_dtypes.bfloat16),
    "int": lambda: np.array([[1, 2, 3]]),
    "uint8": lambda: np.array([[1, 2, 3]], np.uint8),
    "big endian": lambda: np.array([[1, 2, 3]], ">f4"),
    "fortran": lambda: np.asfortranarray(np.array([[1, 2, 3]], np.float32)),
    "reversed": lambda: np.array([[3, 2, 1]], np.float32)[:, ::-1],
    "every second": lambda: np.array([[1, 0, 2, 0, 3, 0]], np.float32)[:, ::2],
    "tensor": lambda: Tensor([[1, 2, 3]]),
    "view of a tensor": lambda: Tensor([[1], [2], [3]]).transpose(),
    "memoryview": lambda: memoryview(np.array([[1, 2, 3]], np.float32)),
    "read-only": lambda: _read_only(np.array([[1, 2, 3]], np.float32)),
    "nested arrays": lambda: [np.array([1, 2, 3], np.float32)],
}


def _read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("payload", PAYLOADS)
def test_whatever_holds_numbers_is_fed(route: str, payload: str) -> None:
    network, (x, y) = Tape.record(lambda tape: (x := tape.input(shape=[1, 3], name="x"), x * 2.0))
    run = forward(network, route, y)(network.parameters(), {"x": PAYLOADS[payload]()})
    assert_same_bits(run.of(y), np.array([[2, 4, 6]], np.float32))


def test_a_feed_is_rounded_once_to_its_element() -> None:
    network, (x, y) = Tape.record(lambda tape: (x := tape.input(shape=[2]), x.stop()), bf16)
    # halfway between two bf16 numbers and a bit: rounding to f32 before would lose the bit
    run = network.forward(network.parameters(), {x: np.array([1 + 2**-8 + 2**-40, 1 + 2**-8])})
    assert run.of(y).tolist() == [1.0078125, 1.0]


BAD: dict[str, tuple[Any, str]] = {
    "shape": ({"x": [1.0, 2.0, 3.0]}, "feed: %0 Input [1, 3] 'x' HERE: wants shape [1, 3], got [3]"),
    "volume": ({"x": np.zeros((3, 1))}, "feed: %0 Input [1, 3] 'x' HERE: wants shape [1, 3], got [3, 1]"),
    "broadcastable": ({"x": 1.0}, "feed: %0 Input [1, 3] 'x' HERE: wants shape [1, 3], got []"),
    "stacked": ({"x": np.zeros((2, 1, 3))}, "feed: %0 Input [1, 3] 'x' HERE: wants shape [1, 3], got [2, 1, 3]"),
    "element": (
        {"x": Tensor([[1.0, 2.0, 3.0]], f64)},
        "feed: %0 Input [1, 3] 'x' HERE: payload: wants element f32, got a tensor of f64; see tensor.convert",
    ),
    "element of another input": (
        {"n": Tensor(1.0)},
        "feed: %1 Input [] f64 'n' HERE: payload: wants element f64, got a tensor of f32; see tensor.convert",
    ),
    "integer": (
        {"x": [[2**24 + 1, 0, 0]]},
        "feed: %0 Input [1, 3] 'x' HERE: f32: cannot hold the integer 16777217 exactly; f32 has 24 bits",
    ),
    "text": ({"x": [["a", "b", "c"]]}, "feed: %0 Input [1, 3] 'x' HERE: payload: cannot read numbers from list "),
    "object": ({"x": object()}, "feed: %0 Input [1, 3] 'x' HERE: payload: cannot read numbers from object "),
    "none": ({"x": None}, "feed: %0 Input [1, 3] 'x' HERE: payload: cannot read numbers from NoneType "),
    "complex": ({"x": [[1j, 0, 0]]}, "feed: %0 Input [1, 3] 'x' HERE: "),
    "ragged": ({"x": [[1], [1, 2]]}, "feed: %0 Input [1, 3] 'x' HERE: payload: cannot read numbers from list: "),
    "selection to dense": (
        {"x": Tensor.selection([0], 3)},
        "feed: %0 Input [1, 3] 'x' HERE: wants a dense payload, got a selection",
    ),
    "name": ({"y": 1.0}, "feed: no node is named 'y'; named inputs are: 'x', 'n', 'ids', 'labels'"),
    "not an input": ({"w": np.zeros((3, 2))}, "feed: %4 Parameter [3, 2] 'w' HERE is not an input"),
    "key": ({3: 1.0}, "feed: wants a symbol, got int"),
    "list": ([("x", 1.0)], "feed: wants a mapping from symbols or names to payloads, got list"),
    "array": (np.zeros((1, 3)), "feed: wants a mapping from symbols or names to payloads, got ndarray"),
    "tensor": (Tensor([1.0]), "feed: wants a mapping from symbols or names to payloads, got Tensor"),
    "unfed selection": ({}, "feed: %2 Input [2, 3] 'ids' HERE is a selection and must be fed"),
    "dense to selection": (
        {"ids": Tensor(np.eye(3)[:2])},
        "feed: %2 Input [2, 3] 'ids' HERE: wants ids or a selection, got a dense tensor",
    ),
    "floating ids": ({"ids": [0.0, 1.0]}, "feed: %2 Input [2, 3] 'ids' HERE: ids: ids must be integers, got float64"),
    "bool ids": ({"ids": [True, False]}, "feed: %2 Input [2, 3] 'ids' HERE: ids: ids must be integers, got bool"),
    "number of ids": ({"ids": [0, 1, 2]}, "feed: %2 Input [2, 3] 'ids' HERE: wants ids of shape [2], got [3]"),
    "rank of ids": ({"ids": [[0], [1]]}, "feed: %2 Input [2, 3] 'ids' HERE: wants ids of shape [2], got [2, 1]"),
    "id": (
        {"ids": [0, 3]},
        "feed: %2 Input [2, 3] 'ids' HERE: ids: id 3 at [1] is not one of the vocab's 0 .. 2",
    ),
    "negative id": (
        {"ids": [-1, 0]},
        "feed: %2 Input [2, 3] 'ids' HERE: ids: id -1 at [0] is not one of the vocab's 0 .. 2",
    ),
    "not the absent id": (
        {"ids": [0, 1], "labels": [-1, 0]},
        "feed: %3 Input [2, 3] 'labels' HERE: ids: id -1 at [0] is not one of the vocab's 0 .. 2",
    ),
    "huge id": (
        {"ids": np.array([0, 2**64 - 1], np.uint64)},
        "feed: %2 Input [2, 3] 'ids' HERE: ids: id 18446744073709551615 at [1] is not one of the vocab's 0 .. 2",
    ),
    "vocab": (
        {"ids": Tensor.selection([0, 1], 4)},
        "feed: %2 Input [2, 3] 'ids' HERE: wants shape [2, 3], got [2, 4]",
    ),
    "absent in a selection": (
        {"ids": Tensor.selection([0, -1], 3, absent=-1)},
        "feed: %2 Input [2, 3] 'ids' HERE: the selection selects nothing in some row, but this input declares no "
        "absent id",
    ),
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", BAD)
def test_a_bad_feed_names_the_input_and_nothing_runs(name: str, route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network, n = recorded()
    run = forward(network, route, n.total)
    feeds, text = BAD[name]
    if isinstance(feeds, dict) and "ids" not in str(feeds) and name != "unfed selection":
        feeds = {**feeds, **GOOD}

    def executed(*arguments: Any) -> None:
        raise AssertionError("something ran before the feeds were seen")

    monkeypatch.setattr(interpreter, "execute", executed)
    monkeypatch.setattr(plans, "execute", executed)
    with pytest.raises(FeedError) as caught:
        run(network.parameters(), feeds)
    found = re.sub(r"\S*test_feeds\.py:\d+( \(selection\))?", "HERE", str(caught.value))
    assert found == text or (text.endswith((" ", ": ")) and found.startswith(text))
    assert isinstance(caught.value, ValueError)


def test_an_input_is_fed_once() -> None:
    network, n = recorded()
    with pytest.raises(FeedError) as caught:
        network.forward(network.parameters(), {"x": [[1, 2, 3]], n.x: [[1, 2, 3]], **GOOD})
    assert str(caught.value).startswith("feed: %0 Input [1, 3] 'x' ")
    assert str(caught.value).endswith(" is fed twice")


def test_symbols_of_other_specs_and_prefixes_are_refused() -> None:
    network, n = recorded()
    plan = network.entry(n.total).lower()
    with pytest.raises(FeedError) as caught:
        plan.forward(network.parameters(), {recorded()[1].x: [[1, 2, 3]], **GOOD})
    assert str(caught.value) == "feed: symbol %0 belongs to another spec than this one"
    parameters = network.parameters()
    tape = network.into_tape()
    late = tape.input(1.0, name="late").symbol()
    for key, text in ((late, "is not among the 12 nodes that this covers"), ("late", "no node is named 'late'")):
        with pytest.raises(FeedError) as caught:
            plan.forward(parameters, {key: 1.0, **GOOD})
        assert text in str(caught.value)


def test_an_input_that_the_plan_does_not_read_is_checked_and_ignored() -> None:
    network, n = recorded()
    plan = network.entry(n.rows).lower()
    parameters = network.parameters()
    assert plan.forward(parameters, {"x": [[7, 8, 9]], **GOOD}).of(n.rows).shape == [2, 2]
    with pytest.raises(FeedError):
        plan.forward(parameters, {"x": [7, 8, 9], **GOOD})
    assert network.entry(n.w).lower().forward(parameters).of(n.w).shape == [3, 2]  # no ids are wanted


def test_selections_are_fed_as_ids_of_any_integer_or_as_selections() -> None:
    network, n = recorded()
    expected = network.forward(network.parameters(), GOOD).of(n.rows)
    for ids, labels in (
        (np.array([0, 1], np.uint8), np.array([2, -100], np.int16)),
        (Tensor.selection([0, 1], 3), Tensor.selection([2, 7], 3, absent=7)),
        ((0, 1), (2, -100)),
    ):
        run = network.forward(network.parameters(), {"ids": ids, "labels": labels})
        assert_same_bits(run.of(n.rows), expected)


# tables


@pytest.mark.parametrize("route", ROUTES)
def test_a_table_has_a_payload_for_every_parameter_it_is_asked_for(route: str) -> None:
    network, n = recorded()
    run = forward(network, route, n.total)
    parameters = network.parameters()

    def message(table: Any, kind: type[Exception] = FeedError) -> str:
        with pytest.raises(kind) as caught:
            run(table, GOOD)
        return re.sub(r"\S*test_feeds\.py:\d+", "HERE", str(caught.value))

    absent = parameters._with(dict.fromkeys(parameters.rows()))
    assert message(absent) == "run: the table has no payload for %4 Parameter [3, 2] 'w' HERE"
    assert message(parameters.map(lambda tensor: tensor.sum())) == (
        "run: %4 Parameter [3, 2] 'w' HERE wants [3, 2] f32, the table holds [] f32"
    )
    assert message(parameters.map(lambda tensor: tensor.to(f64))) == (
        "run: %4 Parameter [3, 2] 'w' HERE wants [3, 2] f32, the table holds [3, 2] f64"
    )
    assert message(recorded()[0].parameters(), KinshipError) == "run: the table of parameters belongs to another spec"
    for other in (None, {n.w: 1.0}, [1.0], network):
        assert message(other) == f"run: wants Parameters or a State, got {type(other).__name__}"


def test_a_feed_may_be_any_mapping() -> None:
    class Lazy(Mapping[str, Any]):
        def __getitem__(self, key: str) -> Any:
            return GOOD[key]

        def __iter__(self) -> Any:
            return iter(GOOD)

        def __len__(self) -> int:
            return len(GOOD)

    network, n = recorded()
    assert network.entry(n.rows).interpret(network.parameters(), Lazy()).of(n.rows).shape == [2, 2]


# as a function


def test_a_plan_as_a_positional_function() -> None:
    network, n = recorded()
    plan = network.entry([n.total, n.rows]).lower()
    call = plan.function(["ids", n.labels, "x"], [n.rows, n.total, n.rows])
    parameters = network.parameters()
    rows, total, again = call(parameters, [0, 1], [2, -100], [[1, 0, 0]])
    run = plan.forward(parameters, {"x": [[1, 0, 0]], **GOOD})
    assert_same_bits([rows, total, again], run.of([n.rows, n.total, n.rows]))
    for arrays in ((), ([0, 1],), ([0, 1], [2, 0], [[1, 0, 0]], 1)):
        with pytest.raises(FeedError) as caught:
            call(parameters, *arrays)
        assert str(caught.value) == f"function: wants 3 arrays after the parameters, got {len(arrays)}"
    with pytest.raises(FeedError) as caught:
        call(parameters, [0, 1], [2, 0], [1, 0, 0])
    assert "wants shape [1, 3], got [3]" in str(caught.value)
    assert call(network.state(), [0, 1], [2, -100], [[1, 0, 0]])[1].tolist() == total.tolist()


def test_a_function_names_each_input_once_and_only_results() -> None:
    network, n = recorded()
    plan = network.entry(n.rows).lower()
    for inputs, outputs, text in (
        (["x", n.x], [n.rows], "function: an input is named twice"),
        (["w"], [n.rows], "is not an input"),
        (["z"], [n.rows], "feed: no node is named 'z'"),
        ([], [n.total], "is no result"),
    ):
        with pytest.raises(Exception) as caught:
            plan.function(inputs, outputs)
        assert text in str(caught.value)
    for inputs, outputs, text in (
        ("x", [n.rows], "function: wants a sequence of inputs, got str"),
        (["x"], n.rows, "function: wants a sequence of outputs, got Symbol"),
        (None, [n.rows], "function: wants a sequence of inputs, got NoneType"),
    ):
        with pytest.raises(FeedError) as refused:
            plan.function(inputs, outputs)
        assert str(refused.value) == text
    assert network.entry(n.w).lower().function([], [])(network.parameters()) == ()
