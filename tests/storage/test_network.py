"""A network that was saved and loaded is the same: its text, its bits, what can still be done with it."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import topos
from topos import (
    Adjoints,
    CheckpointError,
    Element,
    Entry,
    Linear,
    Network,
    Numerics,
    State,
    Symbol,
    Tape,
    Tensor,
    Value,
    bf16,
    detach,
    f64,
    load,
    load_tensors,
    save,
)
from topos.testing import assert_same_bits
from topos.testing.programs import Program, programs


class Case(NamedTuple):
    network: Network
    names: Any
    feeds: dict[Symbol, Any]


def recorded(program: Program) -> Case:
    tape, run = program.record()
    sources = [value for value in run.values if tape.nodes()[value.index].is_source and value.element is not None]
    names = detach({"target": run.target, "values": run.values, "adjoints": tape.differentiate(run.target, sources)})
    return Case(tape.into_network(), names, dict(run.feeds))


def again(path: Path, network: Network, *rest: Any, elements: Any = None, **options: Any) -> topos.Loaded:
    save(path, network, *rest, **options)
    return load(path, elements=elements)


def moved(symbols: Any, network: Network) -> Any:
    """The symbols of another network with the same rows."""
    return [Symbol(network.spec.family, symbol.index) for symbol in symbols]


def every_program(program: Program, folder: Path) -> None:
    case = recorded(program)
    loaded = again(folder / "x", case.network, case.network.parameters(), {}, case.names, lines=True)
    assert loaded.network.describe(names=True, lines=True) == case.network.describe(names=True, lines=True)
    assert loaded.network.fingerprint == case.network.fingerprint
    assert repr(loaded.names) == repr(case.names)
    feeds = {Symbol(loaded.network.spec.family, symbol.index): payload for symbol, payload in case.feeds.items()}
    every = [node.symbol for node in case.network.nodes()]
    expected = case.network.forward(case.network.parameters(), case.feeds)
    run = loaded.network.forward(loaded.parameters, feeds)
    assert_same_bits(run.of(moved(every, loaded.network)), expected.of(every))
    roots = loaded.names["adjoints"].roots()
    plan = loaded.network.entry(roots).lower()
    assert_same_bits(plan.forward(loaded.parameters, feeds).of(roots), expected.of(case.names["adjoints"].roots()))
    for node, other in zip(case.network.nodes(), loaded.network.nodes(), strict=True):
        assert node.opcode == other.opcode
        assert node.element is other.element
        if node.is_source and node.symbol.index not in case.network.spec.ids:
            was, held = case.network.payload(node.symbol), loaded.network.payload(other.symbol)
            assert was.dense(node.element or topos.f32).tobytes() == held.dense(node.element or topos.f32).tobytes()
            assert (was.as_constant() is None) == (held.as_constant() is None)


@settings(max_examples=40, suppress_health_check=[*HealthCheck])
@given(program=programs())
def test_a_drawn_program_comes_back_in_bits(program: Program, tmp_path_factory: Any) -> None:
    every_program(program, tmp_path_factory.mktemp("drawn"))


@pytest.mark.exhaustive
@settings(max_examples=1000, suppress_health_check=[*HealthCheck])
@given(program=programs(most=24))
def test_many_drawn_programs_come_back_in_bits(program: Program, tmp_path_factory: Any) -> None:
    every_program(program, tmp_path_factory.mktemp("drawn"))


# names


@dataclasses.dataclass
class Layer:
    weight: Any
    kind: str


class Pair(NamedTuple):
    first: Any
    second: Any


def two(tape: Tape) -> tuple[Value, Value]:
    x = tape.input([1, 2], name="x")
    return x, (x * x).sum().named("loss")


def test_names_come_back_through_any_nesting(tmp_path: Path) -> None:
    tape = Tape()
    x, loss = two(tape)
    linear = Linear(tape, 2, 3, topos.init.zeros, name="linear")
    names = detach({
        "tuple": (x, [loss, {"deep": (x,)}]),
        "adjoints": tape.differentiate(loss, [x, loss]),
        "layer": Layer(x, "dense"),
        "pair": Pair(x, loss),
        "module": linear,
        "carry": {x: loss},
        (1, "key"): None,
        "plain": [True, 3, -0.5, float("inf"), float("-inf"), "text", ()],
    })  # fmt: skip
    loaded = again(tmp_path / "x", tape.into_network(), None, None, names)
    symbol = loaded.network.symbol
    given, answer = symbol("x"), symbol("loss")
    assert loaded.names["adjoints"].roots()[0] == answer
    assert isinstance(loaded.names["adjoints"], Adjoints)
    assert [wrt for wrt, _ in loaded.names.pop("adjoints")] == [given, answer]
    assert loaded.names == {
        "tuple": (given, [answer, {"deep": (given,)}]),
        "layer": {"weight": given, "kind": "dense"},
        "pair": (given, answer),
        "module": {"weight": symbol("linear.weight"), "bias": symbol("linear.bias")},
        "carry": {given: answer},
        (1, "key"): None,
        "plain": [True, 3, -0.5, float("inf"), float("-inf"), "text", ()],
    }
    assert type(loaded.names["plain"][0]) is bool


def test_a_symbol_alone_or_nothing_may_stand_for_the_names(tmp_path: Path) -> None:
    network, (_, loss) = Tape.record(two)
    loaded = again(tmp_path / "x", network, names=loss)
    assert loaded.names == loaded.network.symbol("loss")
    plain = again(tmp_path / "y", network)
    assert plain.names is None
    assert plain.entries == {}
    assert_same_bits(plain.parameters, network.parameters())


# entries


def test_entries_come_back_bound(tmp_path: Path) -> None:
    def function(tape: Tape) -> tuple[Value, ...]:
        count, weight = tape.input(1.0, name="count"), tape.parameter(2.0, name="weight")
        return count, weight, count + 1, weight * count

    network, (count, weight, after, product) = Tape.record(function)
    entries: dict[str, Any] = {
        "plain": Entry(product),
        "step": network.entry([product]).observe([count]).carry({count: after, weight: product}).diagnose(),
        "back": network.entry(product).backward().numerics(Numerics.EXACT),
    }
    loaded = again(tmp_path / "x", network, network.state(), entries)
    assert list(loaded.entries) == ["plain", "step", "back"]
    for name, bound in loaded.entries.items():
        assert repr(bound.entry) == repr(getattr(entries[name], "entry", entries[name]))
    assert isinstance(loaded.parameters, State)
    run = loaded.entries["step"].lower().advance(loaded.parameters, steps=4)
    assert run.of(loaded.network.nodes()[4].symbol).tolist() == [2.0, 4.0, 12.0, 48.0]
    assert loaded.parameters.of(loaded.network.symbol("weight")).tolist() == 48.0
    assert loaded.entries["back"].interpret(loaded.network.parameters()).backward(moved([product], loaded.network)[0])


# payloads and tables


def test_what_is_stored_once_stays_so_and_views_are_stored_right(tmp_path: Path) -> None:
    big = np.arange(12, dtype=np.float32).reshape(3, 4)

    def function(tape: Tape) -> Any:
        tape.input(shape=[1000, 1000])
        tape.leaf(Tensor.filled([500, 500], float("nan")))
        tape.leaf(Tensor.selection([1, -1, 2], 100_000, absent=-1))
        tape.parameter(Tensor(big).transpose(), name="turned")
        tape.parameter(Tensor.of(np.broadcast_to(big[0], (3, 4)), topos.f32), name="repeated")
        tape.parameter(Tensor.of(big[::-1, ::2], topos.f32), name="%5")
        tape.input(np.zeros((0, 3)), name="nothing", element=f64)
        return tape.leaf(-0.0, element=bf16)

    network, _ = Tape.record(function)
    loaded = again(tmp_path / "x", network, network.parameters())
    assert (tmp_path / "x").stat().st_size < 4096
    assert loaded.network.fingerprint == network.fingerprint
    for node in loaded.network.nodes():
        was = network.payload(moved([node.symbol], network)[0])
        held = loaded.network.payload(node.symbol)
        assert (held.shape, held.element, held.ids is None) == (was.shape, was.element, was.ids is None)
        assert (held.as_constant() is None) == (was.as_constant() is None)
        if was.ids is None:
            assert_same_bits(held, was)
    # the initials are the table's own tensors: stored once, and one again
    assert sorted(load_tensors(tmp_path / "x")) == [
        *("default.nothing", "initial.%5", "initial.repeated", "initial.turned", "leaf.%2")
    ]
    turned = loaded.network.symbol("turned")
    assert loaded.parameters.of(turned) is loaded.network.payload(turned)


def test_several_tables_come_back_by_their_labels(tmp_path: Path) -> None:
    network, weight = Tape.record(lambda tape: tape.parameter([1, 2], name="weight"))
    weights = network.parameters()
    gone = weights.map(lambda tensor: tensor)
    tables = {"weights": weights, "first": weights.scale(0.5), "state": network.state(weights.scale(3))}
    loaded = again(tmp_path / "x", network, tables)
    assert list(loaded.parameters) == ["weights", "first", "state"]
    assert_same_bits(
        {k: t.payloads() for k, t in loaded.parameters.items()}, {k: t.payloads() for k, t in tables.items()}
    )
    assert isinstance(loaded.parameters["state"].parameters(), topos.Parameters)
    assert len(loaded.parameters["state"].parameters()) == 1
    assert sorted(load_tensors(tmp_path / "x")) == ["first.weight", "initial.weight", "state.weight"]
    assert_same_bits(gone, weights)
    absent = topos.Parameters(weights.family, {0: None})
    assert again(tmp_path / "x", network, absent).parameters.payloads() == [None]


def test_without_a_map_payloads_are_copied(tmp_path: Path) -> None:
    network, weight = Tape.record(lambda tape: tape.parameter(np.ones((64, 64)) + np.eye(64), name="weight"))
    save(tmp_path / "x", network)
    mapped, copied = load(tmp_path / "x"), load(tmp_path / "x", mapped=False)
    assert not mapped.parameters.payloads()[0].dense(topos.f32).flags.writeable
    assert copied.parameters.payloads()[0].dense(topos.f32).flags.writeable
    assert_same_bits(mapped.parameters, copied.parameters)


# what can be done with it


def test_a_loaded_network_is_extended(tmp_path: Path) -> None:
    network, (x, loss) = Tape.record(two)
    loaded = again(tmp_path / "x", network, names={"x": x, "loss": loss})
    bound = loaded.network.entry(loaded.names["loss"])
    tape = loaded.network.into_tape()
    more = (tape.resolve(loaded.names["loss"]) * 2).named("more")
    adjoints = tape.differentiate(more, [loaded.names["x"]]).detach()
    longer = tape.into_network()
    run = longer.entry(adjoints.roots()).interpret(longer.parameters())
    assert run.of(adjoints.roots()[1]).tolist() == [4.0, 8.0]
    assert bound.interpret(longer.parameters()).of(loaded.names["loss"]).tolist() == 5.0
    third = again(tmp_path / "y", longer, names=adjoints)
    assert third.network.describe(names=True) == longer.describe(names=True)


def test_former_names_still_find_their_node(tmp_path: Path) -> None:
    network, (x, _) = Tape.record(two)
    tape = network.into_tape()
    tape.resolve(x).named("features")
    loaded = again(tmp_path / "x", tape.into_network())
    assert loaded.network.symbol("x") == loaded.network.symbol("features") == loaded.network.nodes()[0].symbol
    assert loaded.network.nodes()[0].name == "features"


def test_lines_are_kept_on_request_alone(tmp_path: Path) -> None:
    network, (x, loss) = Tape.record(two)
    kept, plain = again(tmp_path / "x", network, lines=True), again(tmp_path / "y", network)
    assert kept.network.describe(lines=True) == network.describe(lines=True)
    assert "test_network.py" in kept.network.describe(lines=True)
    assert plain.network.describe(lines=True) == network.describe()
    assert b"test_network" not in (tmp_path / "y").read_bytes()
    once = (tmp_path / "y").read_bytes()
    save(tmp_path / "y", network)
    assert (tmp_path / "y").read_bytes() == once


def test_a_derivative_keeps_the_node_whose_rule_wrote_it(tmp_path: Path) -> None:
    tape = Tape()
    x = tape.parameter([4.0, 0.0])
    adjoints = tape.differentiate((x * x).sqrt().sum(), [x]).detach()
    network = tape.into_network()
    loaded = again(tmp_path / "x", network, None, {"d": network.entry(adjoints.roots()).diagnose()}, lines=True)
    report = loaded.entries["d"].interpret(loaded.parameters).report()
    assert str(report) == str(network.entry(adjoints.roots()).diagnose().interpret(network.parameters()).report())


# a user's element


class Half(Element):
    name, dtype = "half", np.dtype(np.float16)

    def round(self, numbers: np.ndarray) -> np.ndarray:
        return numbers.astype(np.float16)

    def add(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.asarray(left + right)


class Double(Element):
    """A pair of numbers."""

    name, dtype = "pair", np.dtype([("high", np.float32), ("low", np.float64)])

    def admit(self, array: np.ndarray) -> np.ndarray:
        return array if array.dtype == self.dtype else self.round(array)

    def round(self, numbers: np.ndarray) -> np.ndarray:
        pairs = np.zeros(numbers.shape, self.dtype)
        pairs["high"], pairs["low"] = numbers, np.asarray(numbers, np.float64) / 3
        return pairs

    def add(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        pairs = np.zeros(np.broadcast_shapes(left.shape, right.shape), self.dtype)
        pairs["high"], pairs["low"] = left["high"] + right["high"], left["low"] + right["low"]
        return pairs


half, pair = Half(), Double()


@pytest.mark.parametrize("element", [half, pair], ids=str)
def test_a_users_element_comes_back_by_its_name(element: Element, tmp_path: Path) -> None:
    def function(tape: Tape) -> Value:
        wide = tape.parameter([0.1, 0.2, 0.3], name="w") + 1.0
        return wide + tape.input([[1, 2, 3], [4, 5, 6]])[1]

    network, y = Tape.record(function, element)
    loaded = again(tmp_path / "x", network, names=y, elements={element.name: element})
    assert loaded.network.describe() == network.describe()
    assert loaded.network.fingerprint == network.fingerprint
    run = loaded.network.entry(loaded.names).interpret(loaded.parameters)
    assert_same_bits(run.of(loaded.names), network.entry(y).interpret(network.parameters()).of(y))


def raised(call: Callable[[], Any]) -> str:
    with pytest.raises(CheckpointError) as caught:
        call()
    return str(caught.value)


def test_an_element_that_is_not_given_or_is_another_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    network, _ = Tape.record(lambda tape: tape.parameter([0.1, 0.2]), half)
    save(path, network)
    assert raised(lambda: load(path)) == (
        f"{path}: element half: is not one of topos; give it to load(path, elements={{'half': ...}})"
    )
    assert raised(lambda: load(path, elements={"half": pair})) == (
        f"{path}: element half: the file's numbers are float16, the given element's [('high', '<f4'), ('low', '<f8')]"
    )
    tape = Tape(half)
    tape.leaf(1.0, element=Half())
    message = f"{path}: element half: two elements have this name, and a file has names alone"
    assert raised(lambda: save(path, tape.into_network())) == message
    other = type("Other", (Half,), {"name": "f32"})()
    network, _ = Tape.record(lambda tape: tape.leaf(1.0), other)
    assert raised(lambda: save(path, network)) == (
        f"{path}: element f32: two elements have this name, and a file has names alone"
    )


# what no file holds


def test_what_no_file_holds_is_refused_and_the_old_file_left(tmp_path: Path) -> None:
    path = tmp_path / "x"
    network, (x, loss) = Tape.record(two)
    other, (foreign, _) = Tape.record(two)
    live = Tape().input(1.0)
    save(path, network)
    before = path.read_bytes()
    refused: dict[str, Callable[[], Any]] = {
        "save: wants a Network, got Tape; seal it: tape.into_network()": lambda: save(path, Tape()),  # type: ignore[arg-type]
        "save: wants a Network, got str": lambda: save(path, "x"),  # type: ignore[arg-type]
        "names['a'][0]: wants symbols, numbers or texts, got Value; detach it before sealing": lambda: save(
            path, network, names={"a": [live]}
        ),
        "names: wants symbols, numbers or texts, got Tensor": lambda: save(path, network, names=Tensor(1.0)),
        "entry 'e': asks for backends, which no file holds; ask for them after loading": lambda: save(
            path, network, entries={"e": network.entry(loss).backends([])}
        ),
        "entry 'e': wants an Entry, got Symbol": lambda: save(path, network, entries={"e": loss}),
        "entries: wants entries by label, got list": lambda: save(path, network, entries=[Entry(loss)]),  # type: ignore[arg-type]
        "parameters: wants a table, or tables by label, got list": lambda: save(path, network, [1.0]),  # type: ignore[arg-type]
        "parameters: wants Parameters or a State, got float": lambda: save(path, network, {"w": 1.0}),  # type: ignore[dict-item]
    }
    for message, call in refused.items():
        assert raised(call) == f"{path}: {message}"
    for wrong in (
        lambda: save(path, network, names=foreign),
        lambda: save(path, network, other.parameters()),
        lambda: save(path, network, entries={"e": Entry(foreign)}),
    ):
        with pytest.raises(topos.KinshipError):
            wrong()
    deep: Any = x
    for _ in range(100_000):
        deep = [deep]
    assert raised(lambda: save(path, network, names=deep)) == f"{path}: names: are nested too deeply"
    while isinstance(deep, list):  # a list of lists is freed one after the other
        deep = deep.pop()
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


# size


def chain(length: int) -> Network:
    def function(tape: Tape) -> Value:
        y = x = tape.parameter(1.0)
        for _ in range(length):
            y = y + x
        return y

    return Tape.record(function)[0]


def test_a_long_network_is_saved_and_loaded(tmp_path: Path) -> None:
    network = chain(20_000)
    loaded = again(tmp_path / "x", network)
    assert len(loaded.network) == 20_001
    assert loaded.network.fingerprint == network.fingerprint
    assert loaded.network.nodes()[20_000].operands == tuple(moved(network.nodes()[20_000].operands, loaded.network))


def test_names_of_numpy_numbers_and_of_integers_that_are_too_long(tmp_path: Path) -> None:
    network, y = Tape.record(lambda tape: tape.parameter(1.0))
    topos.save(tmp_path / "x", network, names=np.float64(0.5))
    assert topos.load(tmp_path / "x").names == 0.5
    with pytest.raises(CheckpointError, match="names\\['n'\\]: an integer of 16610 bits, of at most 4096"):
        topos.save(tmp_path / "x", network, names={"n": 10**5000, "y": y})


def test_a_module_with_two_symbols_of_one_path_is_not_saved_in_part(tmp_path: Path) -> None:
    module = topos.Module()

    def record(tape: Tape) -> None:
        module.scales = {1: tape.parameter(1.0), "1": tape.parameter(2.0)}

    network, _ = Tape.record(record)
    with pytest.raises(CheckpointError, match="names: two symbols of the module have the path scales.1"):
        topos.save(tmp_path / "x", network, names=module)
