"""A public call that fails leaves the tape as it was, whatever broke it and wherever."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from topos import Symbol, Tape, Tensor, ToposError, Value, concat, einsum, f64, stack, where
from topos.op import Mul, Sum


class Scene(NamedTuple):
    tape: Tape
    x: Value  # [2, 3]
    v: Value  # [3]
    t: Value  # []
    wide: Value  # [2, 3] f64
    ids: Value  # a selection [2, 3]
    loss: Value  # []
    foreign: Value
    uncovered: Symbol


def scene() -> Scene:
    tape = Tape()
    x = tape.parameter([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], name="x")
    v, t = tape.input([1.0, 2.0, 3.0], name="v"), tape.leaf(2.0)
    wide, ids = tape.input(np.zeros((2, 3)), element=f64), tape.selection([2], 3)
    loss = (x * x).sum().named("loss")
    return Scene(tape, x, v, t, wide, ids, loss, Tape().leaf(1.0), Symbol(x.symbol().family, 999))


FAILURES: dict[str, Callable[[Scene], Any]] = {
    "add": lambda s: s.x + s.v,
    "add an array": lambda s: s.x + np.ones((3, 2)),
    "add a list of objects": lambda s: s.x + [object()],
    "add an integer too long": lambda s: s.x + (2**24 + 1),
    "number beside refused": lambda s: where(s.x, 1.0, s.v),
    "number before refused": lambda s: where(1.0, s.x, s.v),
    "elements": lambda s: s.x * s.wide,
    "elements around a number": lambda s: where(s.x, 1.0, s.wide),
    "foreign after a number": lambda s: where(s.x, 1.0, s.foreign),
    "uncovered": lambda s: s.x + s.uncovered,
    "matmul": lambda s: s.x @ s.x,
    "gather an array": lambda s: s.x.gather(np.ones((2, 2))),
    "gather a dense": lambda s: s.v.gather(np.ones((2, 3))),
    "scatter": lambda s: s.v.scatter(s.ids),
    "axis": lambda s: s.x.sum_along(2),
    "reshape": lambda s: s.x.reshape([5]),
    "permute": lambda s: s.x.permute([0, 0]),
    "narrow": lambda s: s.x.narrow(1, 2, 2),
    "pad": lambda s: s.x.pad(1, 2, 4),
    "unfold": lambda s: s.x.unfold(1, 4),
    "fold": lambda s: s.x.fold(0, 2, 1, 1, 9),
    "broadcast": lambda s: s.x.broadcast([2]),
    "to": lambda s: s.x.to(s.x),
    # compositions that break in the middle
    "clip": lambda s: s.x.clip(0.0, s.v),
    "clip limits": lambda s: s.x.clip(np.zeros((2, 3)), np.ones(3)),
    "minimum": lambda s: s.x.minimum(s.v),
    "softmax": lambda s: s.x.softmax(2),
    "mean_along": lambda s: s.x.mean_along(-3),
    "index after a narrow": lambda s: s.x[0:1, 5],
    "index": lambda s: s.x[0, 0, 0],
    "broadcast_to": lambda s: s.x.broadcast_to([4, 5, 3]),
    "concat": lambda s: concat([s.x, s.x, s.v], 0),
    "concat elements": lambda s: concat([s.x, s.x, s.wide], 0),
    "concat tapes": lambda s: concat([s.v, s.v, s.foreign.broadcast([3])], 0),
    "stack elements": lambda s: stack([s.x, s.wide], 0),
    "einsum": lambda s: einsum("ij,ji->i", s.x, s.x),
    "einsum elements": lambda s: einsum("ij,kj,kl->il", s.x, s.x, s.wide),
    # derivatives
    "target of rank 2": lambda s: s.tape.differentiate(s.x, [s.x]),
    "foreign target": lambda s: s.tape.differentiate(s.foreign, [s.x]),
    "uncovered target": lambda s: s.tape.differentiate(s.uncovered, [s.x]),
    "foreign wrt in the middle": lambda s: s.tape.differentiate(s.loss, [s.x, s.foreign, s.v]),
    "uncovered wrt in the middle": lambda s: s.tape.differentiate(s.loss, [s.x, s.uncovered, s.v]),
    "no symbol in the middle": lambda s: s.tape.differentiate(s.loss, [s.x, "x", s.v]),
    "a number as wrt": lambda s: s.tape.differentiate(s.loss, 3),
    "seed shape": lambda s: s.tape.vjp(s.x, np.ones((3, 2)), [s.x]),
    "seed list": lambda s: s.tape.vjp(s.x, [[1], [1, 2]], [s.x]),
    "seed value": lambda s: s.tape.vjp(s.x, s.v, [s.x]),
    "seed element": lambda s: s.tape.vjp(s.x, s.wide, [s.x]),
    "seed tensor element": lambda s: s.tape.vjp(s.x, Tensor(np.zeros((2, 3))), [s.x]),
    "foreign seed": lambda s: s.tape.vjp(s.loss, s.foreign, [s.x]),
    "good seed, bad wrt": lambda s: s.tape.vjp(s.x, np.ones((2, 3)), [s.x, s.foreign]),
    # sources and names
    "leaf": lambda s: s.tape.leaf([[1], [1, 2]], name="new"),
    "parameter name": lambda s: s.tape.parameter(1.0, name="loss"),
    "input name": lambda s: s.tape.input(shape=[2], name="x"),
    "selection name": lambda s: s.tape.selection([2], 3, name="x"),
    "selection vocab": lambda s: s.tape.selection([2], -3, name="new"),
    "named": lambda s: s.t.named("x"),
}


def facts(tape: Tape) -> tuple[int, str]:
    return len(tape), tape.describe(names=True, lines=True)


@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_call_takes_nothing_and_leaves_nothing(name: str) -> None:
    world = scene()
    before = facts(world.tape)
    with pytest.raises((ToposError, TypeError)):
        FAILURES[name](world)
    assert facts(world.tape) == before
    # and the tape goes on as if nothing had been
    fresh = scene().tape
    for tape in (world.tape, fresh):
        x = tape.resolve(world.x.symbol() if tape is world.tape else tape.nodes()[0].symbol)
        tape.differentiate((x * 3.0).sum().named("new"), [x])
    assert world.tape.describe(names=True) == fresh.describe(names=True)
    network = world.tape.into_network()
    assert len(network.parameters()) == 1
    network.fingerprint  # noqa: B018 - walks every payload


class Broken(Exception):
    """Stands for anything that a rule may meet."""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError, Broken, SystemExit])
@pytest.mark.parametrize("call", ["differentiate", "vjp"])
def test_whatever_is_raised_inside_a_rule_takes_the_whole_call_back(
    monkeypatch: pytest.MonkeyPatch, kind: type[BaseException], call: str
) -> None:
    world = scene()
    before = facts(world.tape)
    original = Mul.derivative

    def breaking(self: Mul, seed: Any, output: Any, *operands: Any) -> Any:
        original(self, seed, output, *operands)
        raise kind

    def attempt() -> None:
        if call == "differentiate":
            world.tape.differentiate(world.loss, [world.v, world.x])
        else:
            world.tape.vjp(world.loss, 2.0, [world.v, world.x])

    with monkeypatch.context() as patch:
        patch.setattr(Mul, "derivative", breaking)
        with pytest.raises(kind):
            attempt()
    assert facts(world.tape) == before
    # what is recorded next is the user's own again, not written by the rule that broke
    world.t + world.t
    assert world.tape.describe(lines=True).splitlines()[-2].endswith(f":{_line() - 1}")
    attempt()


def _line() -> int:
    return sys._getframe(1).f_lineno


def test_a_rule_that_answers_too_few_cotangents_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    world = scene()
    before = facts(world.tape)
    monkeypatch.setattr(Sum, "derivative", lambda self, seed, output, x: ())
    with pytest.raises(ValueError):
        world.tape.differentiate(world.loss, world.x)
    assert facts(world.tape) == before


def test_an_interrupt_inside_a_composition(monkeypatch: pytest.MonkeyPatch) -> None:
    world = scene()
    before = facts(world.tape)

    def interrupted(self: Value, axis: int) -> Value:
        raise KeyboardInterrupt

    monkeypatch.setattr(Value, "sum_along", interrupted)
    for compose in (lambda: world.x.softmax(1), lambda: world.x.mean_along(1), lambda: einsum("ij->i", world.x)):
        with pytest.raises(KeyboardInterrupt):
            compose()
        assert facts(world.tape) == before


def test_an_interrupt_between_a_number_and_its_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    world = scene()
    before = facts(world.tape)

    def interrupted(self: Any, shapes: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Mul, "result_shape", interrupted)
        with pytest.raises(KeyboardInterrupt):
            world.x * 2.0
    assert facts(world.tape) == before


INTERRUPTED: dict[str, Callable[[Scene], Any]] = {
    "an operation": lambda s: s.x + s.x,
    "a number": lambda s: s.x * 2.0,
    "an array": lambda s: np.ones((2, 3)) * s.x,
    "a composition": lambda s: s.x.mean_along(1),
    "several operands": lambda s: concat([s.v, s.v], 0),
    "an index": lambda s: s.x[0, 1:],
    "a leaf": lambda s: s.tape.leaf([1.0, 2.0], name="new"),
    "a selection": lambda s: s.tape.selection([2], 3, name="new"),
    "a derivative": lambda s: s.tape.differentiate(s.loss, [s.v, s.x]),
    "a product with one": lambda s: s.tape.vjp(s.loss, 2.0, s.x),
}


@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_interrupt_at_any_line_leaves_all_or_nothing(name: str, interrupted: Callable[..., None]) -> None:
    """Ctrl-C comes between two lines: whichever it is, the call has recorded everything or is taken back."""
    call, complete = INTERRUPTED[name], scene()
    before, at = facts(complete.tape), 0
    call(complete)
    after = facts(complete.tape)
    outcomes = []
    while True:
        world = scene()
        try:
            interrupted(lambda world=world: call(world), at)  # type: ignore[misc]
        except KeyboardInterrupt:
            outcomes.append(facts(world.tape))
            world.t + 1.0  # written by nobody's rule
            assert "rule of" not in world.tape.describe(lines=True).splitlines()[-2]
        else:
            break
        at += 1
    assert at > 10
    assert [found for found in outcomes if found not in (before, after)] == []
    assert sum(found == after for found in outcomes) <= 5  # and nothing is done after that but to answer


def test_a_value_that_was_taken_back_is_refused() -> None:
    world = scene()
    leaked: list[Value] = []

    original = Value.softmax

    def compose(x: Value) -> Value:
        leaked.append(x.tanh())
        return original(x, 5)

    mark = world.x.mark()
    with pytest.raises(ToposError):
        compose(world.x)
    world.x.reset(mark)
    for use in (lambda: leaked[0] + 1.0, lambda: leaked[0].shape, lambda: leaked[0].symbol(), lambda: repr(leaked[0])):
        with pytest.raises(ToposError) as caught:
            use()
        assert "was taken back when the call that recorded it failed" in str(caught.value)
