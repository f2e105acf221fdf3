"""Compositions are found in whichever form they are written, with their gradients, and each match is closed."""

from collections import Counter

import numpy as np
import pytest

from topos import Formula, Network, Pattern, Plan, Tape, bf16, f64
from topos.engine.pattern.match import Match
from topos.engine.pattern.pool import pooled
from topos.testing import assert_same_bits

from .compositions import FORMS, Compose, Sources, layer, recorded

each_form = pytest.mark.parametrize(("compose", "kinds"), FORMS.values(), ids=FORMS.keys())

WITHOUT_GRADIENT = {"concatenation"}
GRADIENTS = {"window product": {"window product kernel gradient", "window product input gradient"}}


def candidates(network: Network) -> list[Match]:
    return pooled(network.spec, len(network))


def taken(plan: Plan) -> list[Pattern]:
    return plan.patterns(Formula)


def kinds_of(plan: Plan) -> list[str]:
    return sorted(pattern.kind for pattern in taken(plan))


def assert_closed(plan: Plan, pattern: Pattern) -> None:
    """Whoever has the operands needs nothing else, and nobody else needs what is inside."""
    nodes = {node.symbol: node for node in plan.nodes()}
    inside, operands = set(pattern.nodes), set(pattern.operands.values())
    stored = {pattern.root, *pattern.results.values()}
    assert pattern.root in inside
    for symbol in pattern.nodes:
        assert set(nodes[symbol].operands) <= inside | operands, (pattern.kind, symbol)
    read = {operand for symbol in inside for operand in nodes[symbol].operands} - inside
    assert operands == read, pattern.kind
    assert stored <= inside


@each_form
def test_a_composition_is_found(compose: Compose, kinds: list[str]) -> None:
    network, result = recorded(compose)
    plan = network.entry(result).lower()
    assert kinds_of(plan) == kinds
    for pattern in taken(plan):
        assert_closed(plan, pattern)
        assert pattern.formula in set(Formula)
        assert pattern.results.keys().isdisjoint(pattern.operands)


@each_form
def test_its_gradients_are_found(compose: Compose, kinds: list[str]) -> None:
    network, (_, loss, gradients) = recorded(compose, gradients=True)
    plan = network.entry([loss, gradients]).lower()
    wanted = Counter(kinds)
    for kind in kinds:
        if kind not in WITHOUT_GRADIENT:
            wanted.update(GRADIENTS.get(kind, {f"{kind} gradient"}))
    assert Counter(kinds_of(plan)) == wanted
    for pattern in taken(plan):
        assert_closed(plan, pattern)


@each_form
def test_each_gradient_alone_is_found(compose: Compose, kinds: list[str]) -> None:
    """With asymmetric needs a plan evaluates a part of the gradient, and maybe not the composition itself."""
    network, (_, _, gradients) = recorded(compose, gradients=True)
    (kind,) = kinds
    for gradient in gradients if kind not in WITHOUT_GRADIENT else []:
        plan = network.entry(gradient).lower()
        found = taken(plan)
        assert GRADIENTS.get(kind, {f"{kind} gradient"}) & {pattern.kind for pattern in found} or len(plan.nodes()) < 12
        for pattern in found:
            assert_closed(plan, pattern)


@each_form
def test_a_plan_that_retains_has_candidates_and_takes_none(compose: Compose, kinds: list[str]) -> None:
    network, result = recorded(compose)
    assert set(kinds) <= {match.kind for match in candidates(network)}
    plan = network.entry(result).backward().lower()
    assert taken(plan) == plan.patterns() == []
    assert "fused" not in plan.describe()


def test_the_gradients_of_two_losses_are_two_matches() -> None:
    def record(tape: Tape) -> object:
        source = Sources(tape)
        result = layer(source)
        losses = (result * source(3, 4, 6)).sum(), result.exp().sum()
        return [tape.differentiate(loss, source.drawn[:1]).of(source.drawn[0]) for loss in losses]

    network, gradients = Tape.record(record)
    plan = network.entry(gradients).lower()
    assert kinds_of(plan) == ["layer norm"] + 2 * ["layer norm gradient"]
    for pattern in taken(plan):
        assert_closed(plan, pattern)
    (first,) = network.entry(gradients[0]).lower().patterns([Formula.LAYER_NORM_GRADIENT])
    assert first.root == gradients[0]


def test_a_gradient_of_a_gradient_is_closed_too() -> None:
    def record(tape: Tape) -> object:
        source = Sources(tape)
        x = layer(source).sum(), source.drawn[0]
        slope = tape.differentiate((layer(source) * source(3, 4, 6)).sum(), source.drawn[3:4]).of(source.drawn[3])
        return x[0], tape.differentiate((slope * slope).sum(), source.drawn[3:5]).roots()

    network, results = Tape.record(record)
    plan = network.entry(results).lower()
    for pattern in taken(plan):
        assert_closed(plan, pattern)
    parameters = network.parameters()
    for actual, expected in zip(
        plan.forward(parameters).of(plan.results),
        network.entry(results).interpret(parameters).of(plan.results),
        strict=True,
    ):
        assert_same_bits(actual, expected)


def test_wide_numbers_and_narrow_ones() -> None:
    """The element plays no part: f64, and a kernel that is rounded to bf16 where it is used."""

    def record(tape: Tape) -> object:
        windows = tape.input(shape=[2, 9]).unfold(1, 3).reshape([14, 3])
        return (windows.to(bf16) @ tape.parameter(np.ones((3, 2))).to(bf16)).to(f64), layer(Sources(tape))

    network, results = Tape.record(record, f64)
    assert kinds_of(network.entry(list(results)).lower()) == ["layer norm"]
