"""Compositions are found in whichever form they are written, with their gradients, and each match is closed."""

from collections import Counter

import pytest

from topos import Formula, Network, Pattern, Plan
from topos.engine.pattern.match import Match
from topos.engine.pattern.pool import pooled

from .compositions import FORMS, Compose, recorded

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
