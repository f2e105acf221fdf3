"""A plan stands for a plain rule as long as the rule is the same computation, and no step longer."""

import builtins
import gc
import math
import random
import struct
import time
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import topos
from topos import ElementError, Parameters, ShapeError, Symbol, Tape, Tensor, bf16, f32, f64, where
from topos.element import Element
from topos.graph import table as tables
from topos.neural import plain_step, plans
from topos.neural.facts import reads_of
from topos.op import Composites
from topos.testing import assert_same_bits

SHAPES = ((), (5,), (33, 40), (2, 3, 4), (0, 3))
HARD = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38]
STEPS = 8
Rule = Callable[..., Any]
Change = Callable[[int], Any]


def table(element: Element = f32, shapes: Any = SHAPES, seed: int = 0) -> Parameters:
    draw = np.random.default_rng(seed)

    def numbers(shape: Any) -> Any:
        found = draw.normal(size=shape)
        found.reshape(-1)[: len(HARD)] = HARD[: found.size]
        return found

    network, _ = Tape.record(lambda tape: [tape.parameter(numbers(shape)) for shape in shapes], element)
    return network.parameters()


def gradients_of(parameters: Parameters, seed: int = 1, absent: Any = ()) -> Parameters:
    element = next(t.element for t in parameters.payloads() if t is not None)
    shapes = [tensor.shape for tensor in parameters.payloads() if tensor is not None]
    others = table(element or f32, shapes, seed).payloads()
    found = [None if at in absent else tensor for at, tensor in enumerate(others)]
    return Parameters(parameters.family, dict(zip(parameters.rows(), found, strict=True)))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asks for a plan from the first step on."""
    monkeypatch.setattr(tables, "PLAN_NS", 0.0)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Of each step, whether it was a plan's."""
    seen: list[bool] = []
    asked = plain_step.plain_step

    def noted(*facts: Any) -> Any:
        answer = asked(*facts)
        seen.append(answer is not None)
        return answer

    monkeypatch.setattr(plain_step, "plain_step", noted)
    yield seen


def steps(make: Callable[[], Rule], change: Change = lambda at: None, walked: bool = False) -> list[Any]:
    """What a rule answers, step after step; `make` is asked for it anew at each, and after `change`."""
    parameters = table()
    gradients, found = gradients_of(parameters), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "PLAN_NS", math.inf if walked else 0.0)
        for at in range(STEPS):
            change(at)
            found.append(parameters.step(gradients, make()).payloads())
    return found


# the same computation
@pytest.mark.parametrize("element", [f32, f64, bf16])
def test_planned_steps_have_the_bits_of_walked_ones(element: Element, planned: list[bool]) -> None:
    parameters, rate = table(element), 0.1

    def rule(weight: Any, gradient: Any) -> Any:
        return weight - rate * (gradient + 0.01 * weight).tanh() / (gradient * gradient + 1).sqrt()

    for absent in ((), (1,), ()):
        gradients = gradients_of(parameters, absent=absent)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tables, "PLAN_NS", math.inf)
            expected = parameters.step(gradients, rule).payloads()
        for _ in range(4):
            assert_same_bits(parameters.step(gradients, rule).payloads(), expected)
    assert planned == [False, True, True, True] * 2 + [True] * 4


def test_numbers_of_each_element_that_there_is(planned: list[bool]) -> None:
    def record(tape: Tape) -> Any:
        return [tape.parameter([1.0, 2.0], element=element) for element in (bf16, f64, f32, bf16)]

    network, _ = Tape.record(record)
    parameters, rate = network.parameters(), 1 / 3
    found = [parameters.step(parameters, lambda w, g: w - rate * g).payloads() for _ in range(4)]
    assert planned == [False, True, True, True]
    assert_same_bits(found[1:], found[:1] * 3)
    assert_same_bits(found[0], [tensor - rate * tensor for tensor in parameters.payloads() if tensor is not None])


def test_a_rule_that_is_told_the_slot(planned: list[bool]) -> None:
    network, (first, _) = Tape.record(lambda tape: [tape.parameter([1.0, 2.0]), tape.parameter([3.0])])
    parameters = network.parameters()

    def rule(symbol: Symbol, weight: Any, gradient: Any) -> Any:
        return weight - gradient if symbol == first else weight * symbol.index

    for _ in range(4):
        assert parameters.step_each(parameters, rule).payloads()[0].tolist() == [0.0, 0.0]  # type: ignore[union-attr]
        assert parameters.step_each(parameters, rule).payloads()[1].tolist() == [3.0]  # type: ignore[union-attr]
    assert sum(planned) == 7


def test_the_same_code_told_and_not_told(planned: list[bool]) -> None:
    network, _ = Tape.record(lambda tape: tape.parameter([3.0, 5.0]))
    parameters = network.parameters()

    def rule(*given: Any) -> Any:
        return given[-1] * len(given)

    for _ in range(3):
        assert parameters.step(parameters, rule).payloads()[0].tolist() == [6.0, 10.0]  # type: ignore[union-attr]
        assert parameters.step_each(parameters, rule).payloads()[0].tolist() == [9.0, 15.0]  # type: ignore[union-attr]
    assert planned == [False, False, True, True, True, True]


def test_nothing_is_asked_before_steps_have_cost_what_a_plan_costs(
    monkeypatch: pytest.MonkeyPatch, planned: list[bool]
) -> None:
    monkeypatch.setattr(tables, "PLAN_NS", 3 * (2 * tables.SLOT_NS - tables.CALL_NS))
    network, _ = Tape.record(lambda tape: [tape.parameter(1.0), tape.parameter(2.0)])
    parameters = network.parameters()
    for _ in range(6):
        parameters.step(parameters, lambda weight, gradient: weight - gradient)
    assert planned == [False, True, True]
    large, _ = Tape.record(lambda tape: tape.parameter(np.ones((1000, 1000))))
    large.parameters().step(large.parameters(), lambda weight, gradient: weight)
    assert large.parameters().family.forgone_ns == tables.SLOT_NS + 1e6 * tables.PLACE_NS - tables.CALL_NS
    small, _ = Tape.record(lambda tape: tape.parameter(()))
    small.parameters().step(small.parameters(), lambda weight, gradient: weight)
    assert small.parameters().family.forgone_ns == 0.0


# floats
def scheduled(rate: float) -> Rule:
    return lambda weight, gradient: weight - rate * gradient


def test_another_float_is_no_other_plan(monkeypatch: pytest.MonkeyPatch, planned: list[bool]) -> None:
    rates = [0.5, 0.25, -0.0, 0.0, math.nan, -math.nan, math.inf, 1e300]
    once, again = iter(rates), iter(rates)
    expected = steps(lambda: scheduled(next(once)), walked=True)
    made: list[Any] = []
    recorded = plans._recorded

    def counted(*facts: Any) -> Any:
        made.append(facts)
        return recorded(*facts)

    monkeypatch.setattr(plans, "_recorded", counted)
    assert_same_bits(steps(lambda: scheduled(next(again))), expected)
    assert planned == [False] + [True] * (STEPS - 1)
    assert len(made) == 1


SCALE = 0.5
WHOLE = 2


def halved(x: Any, scale: float = 0.5, *, shift: float = 0.25) -> Any:
    return x * scale + shift


USES: dict[str, Callable[[float], Rule]] = {
    "beside a weight": lambda rate: lambda w, g: (w * rate - g / rate) + (rate - w) + (rate / g),
    "a default": lambda rate: lambda w, g, rate=rate: w - rate * g,
    "in a tuple": lambda rate: (lambda pair: lambda w, g: w * pair[0] - pair[1] * g)((rate, 0.5)),
    "of a helper": lambda rate: (lambda f: lambda w, g: f(w, rate) + f(g, rate))(lambda x, by: x * by),
    "in a helper": lambda rate: (lambda f: lambda w, g: f(w) + f(g))(lambda x: x * rate),
    "in a comprehension": lambda rate: lambda w, g: sum([rate * x for x in (w, g)], 0.0),
}
OTHER_USES: dict[str, Callable[[float], Rule]] = {
    "arithmetic": lambda rate: lambda w, g: w - (1 - rate) * g,
    "a power": lambda rate: lambda w, g: w**rate - g,
    "a base": lambda rate: lambda w, g: rate**w - g,
    "a square": lambda rate: lambda w, g: w - rate**2 * g,
    "a limit": lambda rate: lambda w, g: w - g.clip(-rate, rate),
    "a maximum": lambda rate: lambda w, g: w - g.maximum(rate),
    "a minimum": lambda rate: lambda w, g: w - g.minimum(rate),
    "a threshold": lambda rate: lambda w, g: w - g.step(rate),
    "a choice": lambda rate: lambda w, g: where(w, rate, g),
    "an order": lambda rate: lambda w, g: w - g if rate > 0.3 else w + g,
    "an equality": lambda rate: lambda w, g: w - g if rate == 0.5 else w + g,
    "a difference": lambda rate: lambda w, g: w - g if rate != 0.5 else w + g,
    "a truth": lambda rate: lambda w, g: w - g if rate else w + g,
    "no truth": lambda rate: lambda w, g: w - g if not rate else w + g,
    "another": lambda rate: lambda w, g: w - (rate or 2.0) * g,
    "a key": lambda rate: lambda w, g: w - {0.5: 1.0}.get(rate, 3.0) * g,
    "among": lambda rate: lambda w, g: w - g if rate in (0.5, 0.0) else w + g,
    "a text": lambda rate: lambda w, g: w * len(str(rate)),
    "a format": lambda rate: lambda w, g: w * len(f"{rate}"),
    "an old format": lambda rate: lambda w, g: w * len("%s" % rate),  # noqa: UP031
    "a root": lambda rate: lambda w, g: w - math.sqrt(rate) * g,
    "rounded": lambda rate: lambda w, g: w - round(rate) * g,
    "whole": lambda rate: lambda w, g: w * int(rate),
    "the larger": lambda rate: lambda w, g: w * max(rate, 0.3),
    "in order": lambda rate: lambda w, g: w * sorted([rate, 0.3])[0],
    "its magnitude": lambda rate: lambda w, g: w * abs(rate),
    "negated": lambda rate: lambda w, g: w + -rate * g,
    "a method": lambda rate: lambda w, g: w * rate.is_integer(),
    "a fill": lambda rate: lambda w, g: w + (0 if w.shape.rank != 1 else (g[1:]).pad(0, 1, g.shape[0], rate)),
    "a tensor's shape": lambda rate: lambda w, g: w * (rate + w.shape.rank),
}


@pytest.mark.parametrize("name", [*USES, *OTHER_USES])
def test_whatever_a_rule_does_with_a_float(name: str, planned: list[bool]) -> None:
    make = {**USES, **OTHER_USES}[name]
    rates = [0.5, 0.5, 0.5, 0.0, 2.0, -0.0, 0.25, 0.25]

    def run(walked: bool) -> list[Any]:
        given = iter(rates)
        return steps(lambda: make(next(given)), walked=walked)

    assert_same_bits(run(False), run(True))
    assert planned[:3] == [False, True, True]
    assert planned[3:] == ([True] * 5 if name in USES else [False, False, False, False, True])


# what changes is seen
def test_what_stands_around_a_rule_counts() -> None:
    """The same code around other things; what tells them apart is how they print, or what they do beside a weight."""

    def around(what: Any) -> Rule:
        return lambda w, g: w - g * len(f"{what}") if what is None else w + len(f"{what!r}") * g

    kinds = [0, -1, 10, True, None, "a", "ab", (1, 2), (1, 2, 3), ("a",), 1.0, 100.25, np.float32(0.1), np.float64(0.1)]
    for before in kinds:
        for after in kinds:
            for at in range(4):
                make = around(before if at < 2 else after)
                parameters = table(shapes=((3,),))
                found = parameters.step(parameters, make)
                assert_same_bits(found.payloads(), [make(t, t) for t in parameters.payloads()])


def test_a_number_is_another_by_one_bit() -> None:
    def around(what: Any) -> Rule:
        return lambda w, g: w * (1.0 / math.copysign(2.0, what[0]))

    kinds = [0.0, -0.0, math.nan, struct.unpack("d", struct.pack("Q", 0xFFF8 << 48))[0]]
    parameters = table(shapes=((3,),))
    for before in kinds:
        for after in kinds:
            for number in (before, before, before, after, after):
                found = parameters.step(parameters, around((number,)))
                assert_same_bits(found.payloads(), [around((number,))(t, t) for t in parameters.payloads()])


def other(x: Any) -> Any:
    return x * 3


def recursive(x: Any, left: int = 2) -> Any:
    return x if left == 0 else recursive(x * SCALE, left - 1)


MODULE = types.ModuleType("MODULE")
MODULE.RATE = 0.5  # type: ignore[attr-defined]
MODULE.inner = types.ModuleType("inner")  # type: ignore[attr-defined]
MODULE.inner.RATE = 3
MODULE.halved = halved  # type: ignore[attr-defined]


def by_scale(w: Any, g: Any) -> Any:
    return w - SCALE * g


def by_whole(w: Any, g: Any) -> Any:
    return w - WHOLE * g


def by_helper(w: Any, g: Any) -> Any:
    return w - halved(g) * WHOLE


def by_both(w: Any, g: Any) -> Any:
    return w - halved(g) * WHOLE + MODULE.halved(g)


def by_module(w: Any, g: Any) -> Any:
    return w - MODULE.RATE * g + MODULE.inner.RATE


def handed(module: Any, g: Any) -> Any:
    return module.RATE * g


def by_handing(w: Any, g: Any) -> Any:
    return w - handed(MODULE, g)


def by_recursion(w: Any, g: Any) -> Any:
    return w - recursive(g)


def by_root(w: Any, g: Any) -> Any:
    return w - math.sqrt(4.0) * g


def by_builtin(w: Any, g: Any) -> Any:
    return w - max(1, 2) * g


def by_attribute(w: Any, g: Any) -> Any:
    return w - g * by_attribute.scale  # type: ignore[attr-defined]


by_attribute.scale = 0.5  # type: ignore[attr-defined]


def doubled(x: Any, scale: float = 2.0, *, shift: float = 0.125) -> Any:
    return x * scale - shift


CHANGES: dict[str, tuple[Rule, Callable[[pytest.MonkeyPatch], None]]] = {
    "a number of the module": (by_scale, lambda patch: patch.setitem(globals(), "SCALE", 0.25)),
    "to an integer": (by_scale, lambda patch: patch.setitem(globals(), "SCALE", 1)),
    "to a list": (by_scale, lambda patch: patch.setitem(globals(), "SCALE", np.array([2.0], np.float32)[0])),
    "an integer of the module": (by_whole, lambda patch: patch.setitem(globals(), "WHOLE", 3)),
    "a function of the module": (by_helper, lambda patch: patch.setitem(globals(), "halved", other)),
    "its code": (by_helper, lambda patch: patch.setattr(halved, "__code__", doubled.__code__)),
    "its defaults": (by_helper, lambda patch: patch.setattr(halved, "__defaults__", (0.75,))),
    "a default of its own": (by_helper, lambda patch: patch.setitem(halved.__kwdefaults__ or {}, "shift", 3)),
    "a function by two names": (by_both, lambda patch: patch.setattr(halved, "__defaults__", (0.75,))),
    "one of two names": (by_both, lambda patch: patch.setattr(MODULE, "halved", other)),
    "a number of another module": (by_module, lambda patch: patch.setattr(MODULE, "RATE", 0.75)),
    "a number of a module inside": (by_module, lambda patch: patch.setattr(MODULE.inner, "RATE", 5)),
    "a module inside": (by_module, lambda patch: patch.setattr(MODULE, "inner", types.SimpleNamespace(RATE=7))),
    "a module that is handed on": (by_handing, lambda patch: patch.setattr(MODULE, "RATE", 0.75)),
    "what a function that calls itself reads": (by_recursion, lambda patch: patch.setitem(globals(), "SCALE", 2.0)),
    "how often it calls itself": (by_recursion, lambda patch: patch.setattr(recursive, "__defaults__", (3,))),
    "a function of math": (by_root, lambda patch: patch.setattr(math, "sqrt", lambda x: 7.0)),
    "a name of Python's in the module": (
        by_builtin,
        lambda patch: patch.setitem(globals(), "max", lambda *numbers: 7),
    ),
    "a name of Python's": (by_builtin, lambda patch: patch.setattr(builtins, "max", min)),
    "what a function holds": (by_attribute, lambda patch: patch.setattr(by_attribute, "scale", 2.0)),
    "the rule's own code": (by_scale, lambda patch: patch.setattr(by_scale, "__code__", by_whole.__code__)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_rule_that_comes_to_mean_something_else(name: str, planned: list[bool]) -> None:
    rule, change = CHANGES[name]

    def run(walked: bool) -> list[Any]:
        with pytest.MonkeyPatch.context() as patch:
            return steps(lambda: rule, lambda at: change(patch) if at == 4 else None, walked)

    found, expected = run(False), run(True)
    assert_same_bits(found, expected)
    assert planned[:4] == [False, True, True, True]
    with pytest.raises(AssertionError):
        assert_same_bits(expected[4], expected[3])


def test_a_name_that_comes_to_be_found_elsewhere() -> None:
    """A cell that is bound anew, to a number and to a function."""
    inner: Any = 2

    def rule(w: Any, g: Any) -> Any:
        return w - (g * inner if type(inner) is int else inner(g))  # noqa: E721

    def plain(w: Any, g: Any) -> Any:
        return w - inner * g

    parameters = table()
    for inner in (2, 2, 2, 5, 5, np.float32(2), 2.0, True):
        found = parameters.step(parameters, plain).payloads()
        assert_same_bits(found, [t - inner * t for t in parameters.payloads() if t is not None])
    assert reads_of(rule) is None


@pytest.mark.parametrize("kind, name", [(Tensor, "__rmul__"), (Composites, "__rmul__"), (Composites, "tanh")])
def test_a_method_of_tensors_that_is_replaced(kind: type, name: str, planned: list[bool]) -> None:
    def run(walked: bool) -> list[Any]:
        with pytest.MonkeyPatch.context() as patch:
            other = lambda tensor, *operands: tensor + tensor  # noqa: E731
            change = lambda at: patch.setattr(kind, name, other, raising=False) if at == 4 else None  # noqa: E731
            return steps(lambda: lambda w, g: w - 0.5 * g.tanh(), change, walked)

    found, expected = run(False), run(True)
    assert_same_bits(found, expected)
    assert planned == [False, True, True, True, False, False, False, False]
    with pytest.raises(AssertionError):
        assert_same_bits(expected[4], expected[3])


class Counting(dict[str, Any]):
    """A namespace with another number at every look."""

    looks = 0

    def __getitem__(self, name: str) -> Any:
        self.looks += name == "LOOKS"
        return float(self.looks) if name == "LOOKS" else dict.__getitem__(self, name)


@pytest.mark.parametrize("is_around", [True, False])
def test_a_namespace_of_its_own_kind_is_not_looked_into(is_around: bool) -> None:
    space = Counting(LOOKS=1.0)
    around: Any = space if is_around else {"__builtins__": space}
    code = (lambda w, g: w - LOOKS * g).__code__  # type: ignore[name-defined]  # noqa: F821
    assert reads_of(types.FunctionType(code, around)) is None
    assert space.looks == 0


def test_a_module_that_makes_up_names() -> None:
    module = types.ModuleType("topos")
    module.__getattr__ = lambda name: random.random()  # type: ignore[method-assign]
    assert reads_of(lambda w, g: w - module.RATE * g) is None
    assert reads_of(lambda w, g: topos.where(w, w, g)) is not None


# what cannot be shown to be the same is asked at every step
class Holder:
    rate = 0.5


HOLDER, LIST, DICT = Holder(), [0.5], {"rate": 0.5}


def unknown() -> dict[str, Rule]:
    turns, seen, held = iter(range(100)), [0], Tensor(0.5)
    count = 0

    def counting(w: Any, g: Any) -> Any:
        nonlocal count
        count += 1
        return w - count * g

    def attributing(w: Any, g: Any) -> Any:
        attributing.count += 1  # type: ignore[attr-defined]
        return w - attributing.count * g  # type: ignore[attr-defined]

    attributing.count = 0  # type: ignore[attr-defined]

    def catching(w: Any, g: Any) -> Any:
        try:
            return w - float(g.shape.rank and g.sum()) * g
        except TypeError:
            return w

    def importing(w: Any, g: Any) -> Any:
        import time

        return w - time.perf_counter() * g

    def listing(w: Any, g: Any, listed: Any = []) -> Any:  # noqa: B006
        listed.append(1)
        return w - len(listed) * g

    def matching(w: Any, g: Any) -> Any:
        match w:
            case Tensor():
                return w - g
        return w + g

    return {
        "a turn": lambda w, g: w - next(turns) * g,
        "a list": lambda w, g: w - LIST[0] * g,
        "a mapping": lambda w, g: w - DICT["rate"] * g,
        "an object": lambda w, g: w - HOLDER.rate * g,
        "a class": lambda w, g: w - Holder.rate * g,
        "a tensor": lambda w, g: w - held.broadcast(w.shape) * g,
        "chance": lambda w, g: w - random.random() * g,
        "chance of NumPy's": lambda w, g: w - np.random.default_rng().random() * g,
        "time": lambda w, g: w - time.perf_counter() * g,
        "print": lambda w, g: (print(end=""), w - g)[1],
        "append": lambda w, g: w - len(seen * len(seen)) * g,
        "threads": lambda w, g: w - topos.threads() * g,
        "a kind": lambda w, g: w - g if isinstance(w, Tensor) else w + g,
        "a type": lambda w, g: w - g if type(w) is Tensor else w + g,
        "a class's": lambda w, g: w - g if w.__class__ is Tensor else w + g,
        "a mark": lambda w, g: w - g if w.mark() is None else w + g,
        "an identity": lambda w, g: w * (id(w) % 2),
        "the same": lambda w, g: w * (w is g),
        "a look": lambda w, g: w - g if hasattr(w, "numpy") else w + g,
        "counting": counting,
        "attributing": attributing,
        "catching": catching,
        "importing": importing,
        "listing": listing,
        "matching": matching,
        "a method": np.subtract,
        "a bound method": [].__class__.append,
    }


@pytest.mark.parametrize("name", unknown())
def test_a_rule_that_does_more_is_asked_at_every_step(name: str) -> None:
    assert reads_of(unknown()[name]) is None


def test_a_rule_that_does_more_keeps_its_turn(planned: list[bool]) -> None:
    parameters = table(shapes=((2,),))
    turns = iter(range(100))
    found = [parameters.step(parameters, lambda w, g: w * next(turns)) for _ in range(STEPS)]
    start = parameters.payloads()[0]
    assert start is not None
    assert_same_bits([table.payloads()[0] for table in found], [start * at for at in range(STEPS)])
    assert planned == [False] * STEPS


@pytest.mark.parametrize(
    "rule",
    [
        lambda w, g: w - float(g.sum()) * g,
        lambda w, g: Tensor(w.numpy()[::-1], w.element),
        lambda w, g: w.numpy(),
        lambda w, g: w - g if len(str(w)) > 60 else w + g,
        lambda w, g: w - g if len(f"{w}") > 60 else w + g,
        lambda w, g: w - g if len("%s" % w) > 60 else w + g,  # noqa: UP031
        lambda w, g: w - g if len("{}".format(w)) > 60 else w + g,  # noqa: UP032
        lambda w, g: w - g if w == g else w + g,
        lambda w, g: w - g if w in (g,) else w + g,
        lambda w, g: w * len({w, g}),
        lambda w, g: w * len({w: 1, g: 2}),
        lambda w, g: w * len(w),
    ],
)
def test_a_rule_that_reads_numbers_is_asked_at_every_step(rule: Rule) -> None:
    parameters = table(shapes=((2,), (3, 4)))
    for _ in range(4):
        found = parameters.step(parameters, rule)
        expected = [Tensor(rule(t, t), t.element) for t in parameters.payloads() if t is not None]
        assert_same_bits(found.payloads(), expected)


def test_what_is_refused_is_refused_at_every_step() -> None:
    parameters = table(shapes=((2, 3),))
    for _ in range(4):
        with pytest.raises(ShapeError, match=r"^step: %0 has shape \[2, 3\], got \[\]$"):
            parameters.step(parameters, lambda w, g: g.sum())
        with pytest.raises(ElementError, match=r"^payload: wants element f32, got a tensor of f64"):
            parameters.step(parameters, lambda w, g: w.to(f64))
        with pytest.raises(ShapeError, match=r"^add: shapes must be equal"):
            parameters.step(parameters, lambda w, g: w + g.sum())


# what a plan holds
def test_plans_go_with_the_family() -> None:
    parameters = table(shapes=((2,),))
    symbol = parameters.symbols()[0]

    def rule(at: Symbol, weight: Any, gradient: Any, symbol: Symbol = symbol) -> Any:
        return weight - gradient if at == symbol else weight

    for _ in range(4):
        parameters.step_each(parameters, rule)
    assert plans._plans[parameters.family]._made
    family = weakref.ref(parameters.family)
    del parameters, symbol, rule
    gc.collect()
    assert family() is None


def test_what_was_answered_outlives_later_steps() -> None:
    parameters, found, copies = table(), [], []
    gradients = gradients_of(parameters)
    for _ in range(STEPS):
        parameters = parameters.step(gradients, lambda w, g: w - 0.1 * g)
        found.append(parameters.payloads())
        copies.append([t.numpy().copy() for t in parameters.payloads() if t is not None])
    assert_same_bits(found, copies)
