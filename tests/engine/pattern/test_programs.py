"""Whole programs: compositions side by side and drawn ones, with anything observed; what is elected always holds."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from topos import Entry, Formula, Network, Symbol, Tape
from topos.engine.pattern.elect import Election
from topos.engine.reading import Able, Anything, Reading
from topos.testing.programs import Program, programs

from .compositions import FORMS, Sources
from .test_discovery import assert_closed


def compositions(names: list[str]) -> tuple[Network, list[Symbol]]:
    """The results of some compositions, and the gradient of all of them together."""

    def record(tape: Tape) -> Any:
        results, drawn = [], []
        for name in names:
            source = Sources(tape)
            results.append(FORMS[name][0](source))
            drawn += source.drawn
        total = results[0].tanh().sum()
        for result in results[1:]:
            total = total + result.tanh().sum()
        return [total, *results, *(gradient for _, gradient in tape.differentiate(total, drawn))]

    network, results = Tape.record(record)
    return network, results


def reading_of(network: Network, results: list[Symbol]) -> tuple[Reading, list[int]]:
    scheduled = [node.symbol.index for node in network.entry(results).lower().nodes()]
    return Reading(network.spec, len(network), scheduled, Entry(results)), scheduled


def assert_holds(network: Network, results: list[Symbol], scheduled: list[int], election: Election) -> None:
    """Every row that is evaluated finds what it reads, nothing declared is missing, nothing is computed twice."""
    rows, fused = network.spec.rows, election.fused
    assert fused.isdisjoint(symbol.index for symbol in results)
    there = {row for row in scheduled if not rows[row].operands}
    for row in scheduled:
        assert there.issuperset(election.reads.get(row, rows[row].operands))
        there.update(election.born.get(row, (row,)))
    assert there.issuperset(row for row in scheduled if row not in fused)
    assert there.isdisjoint(fused - {row for row in fused if not rows[row].operands})
    computed = [row for match in election.matches for row in match.nodes]
    assert len(computed) == len(set(computed))


def check(network: Network, results: list[Symbol]) -> None:
    reading, scheduled = reading_of(network, results)
    election = reading.elected({str(formula): Able(Anything()) for formula in Formula})
    assert_holds(network, results, scheduled, election)
    plan = network.entry(results).lower()
    for pattern in plan.patterns(Formula):
        assert_closed(plan, pattern)


@settings(max_examples=40)
@given(st.lists(st.sampled_from(sorted(FORMS)), min_size=1, max_size=3), st.data())
def test_compositions_side_by_side(names: list[str], data: st.DataObject) -> None:
    network, results = compositions(names)
    nodes = [node.symbol for node in network.nodes()]
    wanted = data.draw(st.lists(st.sampled_from(results), unique=True, min_size=1, max_size=4))
    observed = data.draw(st.lists(st.sampled_from(nodes), unique=True, max_size=3))
    check(network, list(dict.fromkeys([*wanted, *observed])))


@settings(max_examples=40)
@given(programs())
def test_drawn_programs(program: Program) -> None:
    tape, recorded = program.record()
    target = recorded.target
    sources = [value for value in recorded.values if tape.nodes()[value.index].is_source and value.element is not None]
    adjoints = tape.differentiate(target, sources).detach()
    results = [target.symbol(), *adjoints.roots()]
    check(tape.into_network(), list(dict.fromkeys(results)))
