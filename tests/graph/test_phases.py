import copy
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from topos import ConsumedError, Entry, KinshipError, Network, SealedError, Symbol, Tape, ToposError, Value, f64
from topos.graph import Family
from topos.testing import assert_same_bits

HERE = re.compile(r"\S*test_phases\.py:(\d+)")


def message(kind: type[Exception], call: Callable[[], Any]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return HERE.sub(r"HERE:\1", str(caught.value))


def sealing_line(function: Callable[..., Any]) -> int:
    return function.__code__.co_firstlineno + 1


def seal(tape: Tape) -> Network:
    return tape.into_network()


def reopen(network: Network) -> Tape:
    return network.into_tape()


def recorded() -> tuple[Tape, Value, Value]:
    tape = Tape()
    x = tape.parameter([1.0, 2.0], name="x")
    return tape, x, (x * x).sum().named("loss")


USES: dict[str, Callable[[Value], Any]] = {
    "+": lambda x: x + x,
    "number": lambda x: x * 2.0,
    "reflected": lambda x: 2.0 - x,
    "method": lambda x: x.tanh(),
    "shape": lambda x: x.shape,
    "element": lambda x: x.element,
    "composite": lambda x: x.softmax(0),
    "index": lambda x: x[0],
    "constant": lambda x: x.zero_like(),
    "symbol": lambda x: x.symbol(),
    "payload": lambda x: x.payload(),
    "named": lambda x: x.named("y"),
    "tape": lambda x: x.tape,
    "repr": repr,
    "len": len,
}


@pytest.mark.parametrize("use", USES)
def test_a_value_of_a_sealed_tape_says_what_to_do(use: str) -> None:
    tape, x, _ = recorded()
    seal(tape)
    assert message(SealedError, lambda: USES[use](x)) == (
        f"value: its tape was sealed at HERE:{sealing_line(seal)}; take value.symbol() before sealing, "
        "or reopen with network.into_tape() and tape.resolve(symbol)"
    )


TAPE_USES: dict[str, Callable[[Tape, Symbol], Any]] = {
    "leaf": lambda tape, x: tape.leaf(1.0),
    "leaf of an element": lambda tape, x: tape.leaf(1.0, element=f64),
    "parameter": lambda tape, x: tape.parameter(1.0),
    "input": lambda tape, x: tape.input(shape=[2]),
    "input of an element": lambda tape, x: tape.input(shape=[2], element=f64),
    "selection": lambda tape, x: tape.selection([2], 3),
    "resolve": lambda tape, x: tape.resolve(x),
    "nodes": lambda tape, x: tape.nodes(),
    "len": lambda tape, x: len(tape),
    "describe": lambda tape, x: tape.describe(),
    "differentiate": lambda tape, x: tape.differentiate(x, x),
    "vjp": lambda tape, x: tape.vjp(x, [1.0], x),
    "scope": lambda tape, x: tape.scope("a").__enter__(),
    "into_network": lambda tape, x: tape.into_network(),
}


@pytest.mark.parametrize("use", TAPE_USES)
def test_a_consumed_tape_names_the_line_that_consumed_it(use: str) -> None:
    tape, x, _ = recorded()
    symbol = x.symbol()
    seal(tape)
    assert message(ConsumedError, lambda: TAPE_USES[use](tape, symbol)) == (
        f"tape: consumed at HERE:{sealing_line(seal)} by into_network; network.into_tape() reopens the spec"
    )


NETWORK_USES: dict[str, Callable[[Network, Symbol], Any]] = {
    "nodes": lambda network, x: network.nodes(),
    "node": lambda network, x: network.node(x),
    "symbol": lambda network, x: network.symbol("x"),
    "payload": lambda network, x: network.payload(x),
    "parameters": lambda network, x: network.parameters(),
    "describe": lambda network, x: network.describe(),
    "fingerprint": lambda network, x: network.fingerprint,
    "len": lambda network, x: len(network),
    "entry": lambda network, x: network.entry(x),
    "compile": lambda network, x: network.compile(Entry(x)),
    "state": lambda network, x: network.state(),
    "forward": lambda network, x: network.forward(None),  # type: ignore[arg-type]
    "into_tape": lambda network, x: network.into_tape(),
}


@pytest.mark.parametrize("use", NETWORK_USES)
def test_a_consumed_network_names_the_line_that_consumed_it(use: str) -> None:
    tape, x, _ = recorded()
    symbol = x.symbol()
    network = seal(tape)
    reopen(network)
    assert message(ConsumedError, lambda: NETWORK_USES[use](network, symbol)) == (
        f"network: consumed at HERE:{sealing_line(reopen)} by into_tape"
    )
    assert repr(network) == "Network(consumed)"


def test_a_symbol_keeps_its_node_through_every_phase() -> None:
    tape, x, loss = recorded()
    symbols = x.symbol(), loss.symbol()
    texts = [tape.describe()]
    for _ in range(3):
        network = seal(tape)
        assert network.node(symbols[1]).opcode.name == "Sum"
        assert network.symbol("loss") == symbols[1]
        tape = reopen(network)
        assert tape.resolve(symbols[0]).shape == [2]
        texts.append(tape.describe())
    assert len(set(texts)) == 1


def test_old_plans_and_runs_stay_valid_while_the_spec_grows() -> None:
    tape, x, loss = recorded()
    x_symbol, loss_symbol = x.symbol(), loss.symbol()
    network = seal(tape)
    parameters = network.parameters()
    entry = network.entry(loss_symbol)
    plan, backward = entry.lower(), entry.backward().lower()
    run = network.forward(parameters)
    before = plan.describe()
    tape = reopen(network)
    extra = tape.parameter([3.0], name="extra")
    grown = (tape.resolve(loss_symbol) + extra.sum()).symbol()
    extra_symbol = extra.symbol()
    for _ in range(2):  # while the tape is open, and after it is sealed again
        assert plan.describe() == before
        assert float(plan.forward(parameters).of(loss_symbol)) == 5.0
        assert float(entry.interpret(parameters).of(loss_symbol)) == 5.0
        assert run.backward(loss_symbol).of(x_symbol).tolist() == [2.0, 4.0]
        assert backward.forward(parameters).backward(loss_symbol).of(x_symbol).tolist() == [2.0, 4.0]
        assert message(KinshipError, lambda: run.of(grown)) == (
            f"run: symbol {grown} is not among the 3 nodes that this covers"
        )
        network = seal(tape) if tape is not None else network
        tape = None  # type: ignore[assignment]
    assert float(network.forward(parameters.carried(network)).of(grown)) == 8.0
    assert message(ToposError, lambda: network.forward(parameters)).startswith(
        f"run: the table has no payload for {extra_symbol} Parameter [1] 'extra'"
    )


def test_a_name_that_was_sealed_stays_valid() -> None:
    tape = Tape()
    x = tape.input([1.0, 2.0], name="x")
    symbol, total = x.symbol(), x.sum().symbol()
    network = seal(tape)
    plan, parameters = network.entry(total).lower(), network.parameters()
    tape = reopen(network)
    tape.resolve(symbol).named("y")
    assert tape.describe(names=True).splitlines()[0].endswith("  y")
    assert message(KinshipError, lambda: tape.leaf(1.0, name="x")).startswith("name: 'x' is taken by %0 Input [2] 'y' ")
    for name in ("x", "y"):
        assert plan.forward(parameters, {name: [3.0, 4.0]}).of(total).tolist() == 7.0
    network = seal(tape)
    assert network.symbol("x") == network.symbol("y") == symbol


def test_an_old_value_does_not_join_the_reopened_tape() -> None:
    tape, x, _ = recorded()
    symbol = x.symbol()
    reopened = reopen(seal(tape))
    assert message(SealedError, lambda: reopened.resolve(symbol) + x).startswith("value: its tape was sealed at HERE:")
    assert len(reopened) == 3


def test_record_does_it_in_one_call() -> None:
    network, names = Tape.record(lambda tape: {"x": tape.leaf(1.0), "more": [tape.input(2.0)]}, f64)
    assert isinstance(network, Network)
    assert {type(names["x"]), type(names["more"][0])} == {Symbol}
    assert network.node(names["x"]).element is f64
    with pytest.raises(ZeroDivisionError):
        Tape.record(lambda tape: 1 / 0)


def test_foreign_and_uncovered_symbols_are_refused_everywhere() -> None:
    tape, x, loss = recorded()
    other = Tape()
    other.leaf(0.0)
    foreign = other.leaf(1.0).symbol()
    uncovered = Symbol(x.symbol().family, 9)
    texts = {
        foreign: "{}: symbol %1 belongs to another spec than this one",
        uncovered: "{}: symbol %9 is not among the 3 nodes that {} covers",
    }
    symbols = x.symbol(), loss.symbol()

    def check(rule: str, call: Callable[[Symbol], Any]) -> None:
        for symbol, text in texts.items():
            assert message(KinshipError, lambda s=symbol: call(s)) == text.format(rule, "this")  # type: ignore[misc]

    check("resolve", tape.resolve)
    check("differentiate", lambda s: tape.differentiate(s, [loss]))
    check("differentiate", lambda s: tape.differentiate(loss, [x, s]))
    check("vjp", lambda s: tape.vjp(s, 1.0, [loss]))
    check("vjp", lambda s: tape.vjp(loss, s, [x]))
    check("add", lambda s: x + s)
    network = seal(tape)
    run = network.forward(network.parameters())
    check("node", network.node)
    check("payload", network.payload)
    check("entry", network.entry)
    check("entry", lambda s: network.entry(symbols[1]).observe(s))
    check("entry", lambda s: network.entry(symbols[1]).carry({symbols[0]: s}))
    check("carry", lambda s: network.entry(symbols[1]).carry({s: symbols[1]}))
    check("entry", lambda s: network.compile(Entry([s])))
    check("run", run.of)
    check("run", lambda s: run.of([symbols[1], {"deep": (s,)}]))
    check("backward", run.backward)
    check("gradients", run.backward(symbols[1]).of)


def test_what_is_no_symbol_is_told_apart() -> None:
    tape, x, _ = recorded()
    assert message(KinshipError, lambda: tape.resolve("x")) == (  # type: ignore[arg-type]
        "resolve: wants a symbol, got str; a sealed network finds a name's: network.symbol('x')"
    )
    network = seal(tape)
    assert message(KinshipError, lambda: network.entry([x])) == (  # type: ignore[list-item]
        "entry: wants symbols, got Value; take value.symbol() before sealing"
    )
    assert message(KinshipError, lambda: network.compile("x")) == "compile: wants an Entry, got str"  # type: ignore[arg-type]


# copying and pickling


def subjects() -> dict[str, tuple[Any, str]]:
    copied = "is neither copied nor pickled"
    tape, x, loss = recorded()
    symbol = loss.symbol()
    network = seal(recorded()[0])
    other, _, other_loss = recorded()
    other_symbol = other_loss.symbol()
    plan = seal(other).entry(other_symbol).lower()
    assert symbol.index == other_symbol.index
    return {
        "tape": (tape, f"a Tape {copied}; seal it, and topos.save(path, network) writes it"),
        "network": (network, f"a Network {copied}; topos.save(path, network) writes it to a file"),
        "plan": (
            plan,
            f"a Plan {copied}; topos.save(path, network, entries=...) writes what it is made of",
        ),
        "value": (x, "a Value is bound to its tape and is neither copied nor pickled; take .symbol()"),
    }


@pytest.mark.parametrize("name", ["tape", "network", "plan", "value"])
@pytest.mark.parametrize("copying", [copy.copy, copy.deepcopy, pickle.dumps], ids=lambda f: f.__name__)
def test_what_has_an_identity_is_neither_copied_nor_pickled(name: str, copying: Callable[[Any], Any]) -> None:
    subject, text = subjects()[name]
    assert message(TypeError, lambda: copying(subject)) == text
    if copying is not copy.copy:
        assert message(TypeError, lambda: copying({"deep": [subject]})) == text


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_symbols_and_families_keep_their_identity(protocol: int) -> None:
    symbol = recorded()[1].symbol()
    for copied in (copy.copy(symbol), copy.deepcopy(symbol), pickle.loads(pickle.dumps(symbol, protocol))):
        assert copied == symbol
        assert copied.family is symbol.family
        assert hash(copied) == hash(symbol)
    assert copy.copy(symbol.family) is copy.deepcopy(symbol.family) is symbol.family
    assert pickle.loads(pickle.dumps(symbol.family, protocol)) is symbol.family
    assert pickle.loads(pickle.dumps({symbol: [symbol]}, protocol)) == {symbol: [symbol]}


def test_symbols_are_frozen_and_ordered_by_nothing() -> None:
    symbol = recorded()[2].symbol()
    with pytest.raises(AttributeError):
        symbol.index = 0
    with pytest.raises(TypeError):
        sorted([symbol, symbol])
    assert repr(symbol) == "%2"
    assert symbol != 2
    assert Symbol(Family(), 2) != symbol


def test_a_family_is_one_object_per_identity_in_a_process() -> None:
    assert Family("a") is Family("a")
    assert Family("a") is not Family("b")
    assert Family() is not Family()
    assert re.fullmatch(r"Family\([0-9a-f]{8}\)", repr(Family()))


CHILD = """
import pickle, sys
from topos import Parameters
symbol, parameters = pickle.load(sys.stdin.buffer)
doubled = parameters.map(lambda tensor: tensor + tensor)
assert parameters.of(symbol).tolist() == [1.0, 2.0]
sys.stdout.buffer.write(pickle.dumps((symbol, doubled)))
"""


def test_tables_and_symbols_travel_between_processes() -> None:
    tape, x, _ = recorded()
    symbol = x.symbol()
    network = seal(tape)
    sent = pickle.dumps((symbol, network.parameters()))
    answer = subprocess.run([sys.executable, "-c", CHILD], input=sent, capture_output=True, check=True).stdout
    back, doubled = pickle.loads(answer)
    assert back == symbol
    assert_same_bits(doubled.of(symbol), network.parameters().of(symbol) * 2.0)
    assert float(network.forward(doubled).of(network.symbol("loss"))) == 20.0
