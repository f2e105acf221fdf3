import copy
import pickle
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from topos import (
    Backend,
    Entry,
    KinshipError,
    Network,
    Numerics,
    PostureError,
    RecordedError,
    ShapeError,
    Symbol,
    Tape,
    UnobservedError,
    f64,
)
from topos.testing import assert_same_bits


class Names(NamedTuple):
    x: Symbol
    w: Symbol
    hidden: Symbol
    loss: Symbol
    apart: Symbol


def recorded() -> tuple[Network, Names]:
    def record(tape: Tape) -> Any:
        x, w = tape.input([1.0, 2.0], name="x"), tape.parameter([3.0, 4.0], name="w")
        hidden = (x * w).tanh()
        return Names(x, w, hidden, hidden.sum(), w.sin())  # type: ignore[arg-type]

    return Tape.record(record)


def message(kind: type[Exception], call: Callable[[], Any]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return re.sub(r"\S*test_entry\.py:\d+", "HERE", str(caught.value))


def test_results_are_roots_and_then_observes_each_once() -> None:
    network, n = recorded()
    assert network.entry([n.loss, n.x]).observe([n.hidden, n.loss]).observe(n.w).lower().results == [
        n.loss,
        n.x,
        n.hidden,
        n.w,
    ]
    assert network.entry([n.loss, n.loss]).lower().results == [n.loss]
    assert network.entry(n.loss).entry.roots == (n.loss,)
    assert network.entry({"loss": n.loss, "inner": [(n.x,)]}).lower().results == [n.loss, n.x]
    assert network.entry(symbol for symbol in [n.x]).lower().results == [n.x]
    assert network.entry([n.loss]).observe([n.hidden, n.hidden]).observe(n.hidden).entry.observe == (n.hidden,)


def test_each_method_answers_another_entry() -> None:
    network, n = recorded()
    bound = network.entry(n.loss)
    others = [
        bound.observe(n.hidden),
        bound.numerics(Numerics.EXACT),
        bound.backward(),
        bound.diagnose(),
        bound.carry({n.x: n.hidden}),
        bound.backends([Backend.SIMD, Backend.SIMD]),
    ]
    assert bound.entry == Entry(n.loss)
    facts = [
        Entry(n.loss, n.hidden),
        Entry(n.loss, numerics=Numerics.EXACT),
        Entry(n.loss, backward=True),
        Entry(n.loss, diagnose=True),
        Entry(n.loss, carry={n.x: n.hidden}),
        Entry(n.loss, backends=[Backend.SIMD]),
    ]
    assert [other.entry for other in others] == facts
    assert bound.carry({"w": n.x}).carry({"x": n.w}).entry.carry == {n.w: n.x, n.x: n.w}
    assert repr(others[0]) == (
        "BoundEntry(Entry(roots=(%4,), observe=(%3,), carry={}, backward=False, numerics=Numerics.FAST, "
        "diagnose=False, backends=None))"
    )


def test_an_entry_is_a_frozen_value() -> None:
    _, n = recorded()
    entry = Entry([n.loss], [n.hidden], {n.x: n.hidden, n.w: n.x}, True, Numerics.EXACT, True)
    same = Entry((n.loss,), n.hidden, {n.w: n.x, n.x: n.hidden}, True, Numerics.EXACT, True)
    assert entry == same
    assert hash(entry) == hash(same)
    assert len({entry, same}) == 1
    for other in (Entry(n.loss), entry.replaced(backward=False), entry.replaced(carry={}), entry.replaced(observe=())):
        assert other != entry
    assert entry != "entry"
    for name in ("roots", "observe", "carry", "backward", "numerics", "diagnose", "new"):
        with pytest.raises(AttributeError):
            setattr(entry, name, ())
    with pytest.raises(TypeError):
        entry.carry[n.loss] = n.loss  # type: ignore[index]
    carry = {n.x: n.hidden}
    held = Entry(n.loss, carry=carry)
    carry.clear()
    assert held.carry == {n.x: n.hidden}


@pytest.mark.parametrize("copying", [copy.copy, copy.deepcopy, lambda entry: pickle.loads(pickle.dumps(entry))])
def test_an_entry_copies_and_pickles(copying: Callable[[Entry], Entry]) -> None:
    network, n = recorded()
    entry = Entry([n.loss], [n.hidden], {n.x: n.hidden}, True, Numerics.EXACT)
    copied = copying(entry)
    assert copied == entry
    assert hash(copied) == hash(entry)
    assert network.compile(copied).describe() == network.compile(entry).describe()


def test_both_postures_are_accepted_and_have_the_same_bits() -> None:
    network, n = recorded()
    results = [
        network.entry(n.loss).numerics(numerics).lower().forward(network.parameters()).of(n.loss)
        for numerics in (Numerics.EXACT, Numerics.FAST)
    ]
    assert_same_bits(*results)
    assert message(RecordedError, lambda: network.entry(n.loss).numerics("exact")) == (  # type: ignore[arg-type]
        "entry: numerics is Numerics.EXACT or Numerics.FAST, got 'exact'"
    )


def test_a_detached_entry_is_bound_late_even_to_what_grew() -> None:
    network, n = recorded()
    entry = Entry(n.loss, n.hidden)
    before = network.compile(entry)
    tape = network.into_tape()
    more = (tape.resolve(n.loss) * 2.0).symbol()
    grown = tape.into_network()
    after = grown.compile(entry)
    assert after.results == before.results
    parameters = grown.parameters()
    assert_same_bits(after.forward(parameters).of(n.loss), before.forward(parameters).of(n.loss))
    assert "5 of 6 nodes" in before.describe()
    assert "5 of 8 nodes" in after.describe()
    assert float(grown.compile(Entry(more)).forward(parameters).of(more)) == 2 * float(
        before.forward(parameters).of(n.loss)
    )


def test_entries_of_one_spec_share_weights() -> None:
    network, n = recorded()
    parameters = network.parameters()
    plans = [network.entry(symbol).lower() for symbol in n]
    whole = network.forward(parameters)
    for symbol, plan in zip(n, plans, strict=True):
        assert_same_bits(plan.forward(parameters).of(symbol), whole.of(symbol))


ROUTES = ["interpret", "plan"]


@pytest.mark.parametrize("route", ROUTES)
def test_only_what_is_declared_is_read(route: str) -> None:
    network, n = recorded()
    bound = network.entry(n.loss)
    run = (bound.interpret if route == "interpret" else bound.lower().forward)(network.parameters())
    for symbol, text in ((n.hidden, "%3 Tanh [2]"), (n.x, "%0 Input [2] 'x'"), (n.apart, "%5 Sin [2]")):
        assert message(UnobservedError, lambda s=symbol: run.of(s)) == (  # type: ignore[misc]
            f"run: {text} HERE was not declared; observe it: entry.observe([symbol])"
        )
    observed = bound.observe(n.hidden)
    run = (observed.interpret if route == "interpret" else observed.lower().forward)(network.parameters())
    assert run.of(n.hidden).shape == [2]


@pytest.mark.parametrize("route", ROUTES)
def test_a_carried_value_is_not_readable(route: str) -> None:
    network, n = recorded()
    bound = network.entry(n.loss).carry({n.x: n.hidden})
    run = (bound.interpret if route == "interpret" else bound.lower().forward)(network.parameters())
    assert message(UnobservedError, lambda: run.of(n.hidden)).startswith("run: %3 Tanh [2] HERE was not declared")


@pytest.mark.parametrize("route", ROUTES)
def test_a_forward_only_run_refuses_to_go_back(route: str) -> None:
    network, n = recorded()
    bound = network.entry(n.loss)
    run = (bound.interpret if route == "interpret" else bound.lower().forward)(network.parameters())
    assert message(PostureError, lambda: run.backward(n.loss)) == (
        "backward: this run did not retain its values; declare it with entry.backward()"
    )
    assert message(PostureError, run.field) == (
        "field: this run did not retain its values; declare it with entry.backward()"
    )
    assert message(PostureError, run.report) == ("report: this run was not watched; declare it with entry.diagnose()")


@pytest.mark.parametrize("route", ROUTES)
def test_a_retaining_run_goes_back_but_reads_no_more(route: str) -> None:
    network, n = recorded()
    bound = network.entry(n.loss).backward()
    run = (bound.interpret if route == "interpret" else bound.lower().forward)(network.parameters())
    whole = network.forward(network.parameters())
    gradients = run.backward(n.loss)
    for symbol in (n.x, n.w, n.hidden, n.loss):
        assert_same_bits(gradients.of(symbol), whole.backward(n.loss).of(symbol))
        assert_same_bits(run.field().of(symbol), whole.of(symbol))
    assert message(UnobservedError, lambda: run.of(n.hidden)).startswith("run: %3 Tanh")
    assert message(UnobservedError, lambda: run.backward(n.apart)) == (
        "backward: %5 Sin [2] HERE was not evaluated by this run"
    )
    assert message(ShapeError, lambda: run.backward(n.hidden)) == (
        "backward: the target must have rank 0, got %3 Tanh [2] HERE"
    )
    assert message(KinshipError, lambda: gradients.of(n.apart)) == "gradients: %5 was not evaluated by this run"
    assert run.backward(n.loss).of(n.x) is not None  # more than once


def test_a_carry_fits_its_source() -> None:
    network, n = recorded()
    bound = network.entry(n.loss)
    assert message(ShapeError, lambda: bound.carry({n.x: n.loss})) == (
        "carry: a replacement has its source's shape and element, got [] f32 for [2] f32\n"
        "  source  %0 Input  [2]   HERE\n"
        "  next    %4 Sum    []    HERE"
    )
    assert message(ShapeError, lambda: bound.carry({n.hidden: n.x})) == (
        "carry: %3 Tanh [2] HERE is neither a parameter nor a dense input"
    )
    assert message(KinshipError, lambda: bound.carry({"z": n.x})) == "carry: no node is named 'z'"

    def record(tape: Tape) -> Any:
        x = tape.input([1.0], name="x")
        return tape.selection([2], 3, name="ids"), tape.leaf([1.0]), x.to(f64), tape.leaf(1.0)

    network, (ids, leaf, wide, root) = Tape.record(record)
    for source in ("ids", leaf):
        assert "neither a parameter nor a dense input" in message(
            ShapeError,
            lambda s=source: network.entry(root).carry({s: leaf}),  # type: ignore[misc]
        )
    assert message(ShapeError, lambda: network.entry(root).carry({"x": wide})).startswith(
        "carry: a replacement has its source's shape and element, got [1] f64 for [1] f32\n"
    )


def test_a_run_says_how_much_of_it_can_be_read() -> None:
    network, n = recorded()
    assert repr(network.entry(n.loss).interpret(network.parameters())) == f"Run(1 of {len(network)} nodes readable)"
    assert repr(network.forward(network.parameters())) == f"Run({len(network)} of {len(network)} nodes readable)"


def test_what_is_no_symbol_is_refused() -> None:
    network, n = recorded()
    for call in (
        lambda: network.entry("loss"),
        lambda: network.entry([n.loss, 3]),
        lambda: network.entry(None),
        lambda: network.entry(n.loss).observe([None]),
        lambda: Entry(["loss"]),
    ):
        assert message(KinshipError, call).startswith("entry: wants symbols, got ")


def test_what_is_no_mapping_is_no_carry() -> None:
    network, n = recorded()
    for carry in ([(n.x, n.hidden)], n.x, 1):
        for call in (lambda c=carry: network.entry(n.loss).carry(c), lambda c=carry: Entry(n.loss, carry=c)):  # type: ignore[misc]
            assert message(KinshipError, call).startswith("carry: wants a mapping from sources to symbols, got ")


def test_the_results_of_a_plan_are_handed_out_as_a_copy() -> None:
    network, n = recorded()
    plan = network.entry(n.loss).lower()
    plan.results.append(n.hidden)
    plan.results.clear()
    assert plan.results == [n.loss]
    assert plan.forward(network.parameters()).of(n.loss).shape == []


def test_a_bound_entry_and_a_run_copy_as_themselves_and_are_not_pickled() -> None:
    network, n = recorded()
    bound = network.entry(n.loss)
    for held in (bound, bound.interpret(network.parameters())):
        assert copy.copy(held) is held
        assert copy.deepcopy([held])[0] is held
        with pytest.raises(TypeError, match="holds its spec and is not pickled; "):
            pickle.dumps(held)


def test_gradients_are_read_by_adjoints() -> None:
    network, n = recorded()
    run = network.forward(network.parameters())
    for other in (None, [(n.w, n.w)], n.w):
        assert message(KinshipError, lambda o=other: run.recorded_gradients(o)).startswith(  # type: ignore[misc]
            "recorded_gradients: wants Adjoints, got "
        )
