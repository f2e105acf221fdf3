from collections import namedtuple
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from topos import Adjoints, KinshipError, Symbol, Tape, UnobservedError, Value, detach


class Pair(NamedTuple):
    left: Any
    right: Any


Old = namedtuple("Old", ["only"])


@dataclass(frozen=True)
class Frozen:
    weight: Any
    rate: float = 0.5


@dataclass
class Layer:
    weight: Any
    inner: Any = None
    tags: list[str] = field(default_factory=list)
    calls: int = field(default=7, init=False)


class Opaque:
    pass


def test_every_nesting() -> None:
    tape = Tape()
    x, y = tape.parameter(1.0), tape.parameter(2.0)
    a, b = x.symbol(), y.symbol()
    adjoints = tape.differentiate(x * y, [x, y])
    opaque = Opaque()
    nesting = {
        "value": x,
        "tuple": (x, (y,), ()),
        "list": [x, [y], []],
        "named": Pair(x, Old([y])),
        "data": Layer(x, Frozen((y, None)), ["a"]),
        "adjoints": {1: adjoints},
        "else": [None, 3, "text", b"bytes", 1.5, opaque, a, {1, 2}],
        y: "by value",
    }
    detached = detach(nesting)
    assert detached["value"] == a
    assert detached["tuple"] == (a, (b,), ())
    assert detached["list"] == [a, [b], []]
    assert detached["named"] == Pair(a, Old([b]))
    assert (type(detached["named"]), type(detached["named"].right)) == (Pair, Old)
    assert detached["data"] == Layer(a, Frozen((b, None)), ["a"])
    assert detached["data"].calls == 7
    assert isinstance(detached["adjoints"][1], Adjoints)
    assert isinstance(detached["adjoints"][1].of(a), Symbol)
    assert detached["else"] == [None, 3, "text", b"bytes", 1.5, opaque, a, {1, 2}]
    assert detached[b] == "by value"
    assert isinstance(nesting["data"].weight, Value)  # type: ignore[attr-defined]  # what was handed in stays


def test_one_answers_one_and_several_a_tuple() -> None:
    tape = Tape()
    x, y = tape.parameter(1.0), tape.parameter(2.0)
    assert detach(x) == x.symbol()
    assert detach(x, [y]) == (x.symbol(), [y.symbol()])
    assert detach((x,)) == (x.symbol(),)
    assert detach(Pair) is Pair


def test_a_run_answers_the_same_nesting() -> None:
    tape = Tape()
    x, y = tape.parameter([1.0, 2.0]), tape.parameter(3.0)
    hidden = x.tanh()
    names = detach(Pair([x], Layer({"y": y}, None, ["tag"])))
    symbols = hidden.symbol(), y.symbol()
    network = tape.into_network()
    run = network.entry([names.left[0]]).observe(symbols[1]).lower().forward(network.parameters())
    read = run.of(names)
    assert read.left[0].tolist() == [1.0, 2.0]
    assert read.right.weight["y"].tolist() == 3.0
    assert (read.right.inner, read.right.tags) == (None, ["tag"])
    with pytest.raises(UnobservedError) as caught:
        run.of([names, symbols[0]])
    assert str(caught.value).startswith("run: %2 Tanh [2] ")
    assert str(caught.value).endswith("test_detach.py:79 was not declared; observe it: entry.observe([symbol])")
    with pytest.raises(KinshipError):
        run.of(3)


def test_a_nesting_that_holds_itself_is_refused() -> None:
    x = Tape().leaf(1.0)
    shared = [x]
    assert len(detach([shared, shared, (shared,)])) == 3
    round_about: list[Any] = [x]
    round_about.append({"again": (round_about,)})
    with pytest.raises(KinshipError, match="nesting: a list holds itself"):
        detach(round_about)
    symbol = x.symbol()
    network = x.tape.into_network()
    looped: list[Any] = [symbol]
    looped.append(looped)
    for use in (lambda: network.entry([looped]), lambda: network.forward(network.parameters()).of(looped)):
        with pytest.raises(KinshipError, match="nesting: a list holds itself"):
            use()
