"""An interior of a composition or of its gradient that is observed, or read once more, stays what it is."""

import pytest

from topos import Formula, Network, Symbol
from topos.engine.pattern.elect import Election
from topos.engine.reading import Able, Anything

from .compositions import FORMS, Compose, recorded
from .test_programs import reading_of

TRIED = 4


def elected(network: Network, results: list[Symbol]) -> Election:
    reading, _ = reading_of(network, results)
    return reading.elected({str(formula): Able(Anything()) for formula in Formula})


@pytest.mark.parametrize("compose", [compose for compose, _ in FORMS.values()], ids=FORMS.keys())
@pytest.mark.parametrize("how", ["observed", "read"])
def test_an_interior_that_somebody_wants_is_a_barrier(compose: Compose, how: str) -> None:
    network, (_, loss, gradients) = recorded(compose, gradients=True)
    results = list(dict.fromkeys([loss, *gradients]))
    election = elected(network, results)
    inside = sorted(row for match in election.matches for row in match.nodes & election.fused - match.stored)
    for row in inside[:: len(inside) // TRIED + 1]:
        wanted = network.nodes()[row].symbol
        if how == "read":
            tape = network.into_tape()
            wanted = tape.resolve(wanted).tanh().symbol()
            network = tape.into_network()
        found = elected(network, [*results, wanted])
        assert row not in found.fused
        assert not any(row in match.nodes - match.stored for match in found.matches)
        assert len(found.fused) < len(election.fused)
