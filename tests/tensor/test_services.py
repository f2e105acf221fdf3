"""Counts of who computed what reach every tally that is on, in its thread, and no other."""

from threading import Thread

import pytest

from topos import op
from topos.tensor import services
from topos.testing.instructions import INSTRUCTIONS


def test_a_count_reaches_every_tally_around_it() -> None:
    with services.tallied() as outer:
        services.count("GEMM", "BLAS")
        with services.tallied() as inner:
            services.count_all({("GEMM", "BLAS"): 2, ("MAP", "SIMD"): 3})
        services.count("GEMM", "REFERENCE")
    services.count("GEMM", "BLAS")
    assert inner.by_formula == {"GEMM": {"BLAS": 2}, "MAP": {"SIMD": 3}}
    assert outer.by_formula == {"GEMM": {"BLAS": 3, "REFERENCE": 1}, "MAP": {"SIMD": 3}}
    assert [outer.count(), outer.count("GEMM"), outer.count(backend="SIMD"), outer.count("MAP", "BLAS")] == [7, 4, 3, 0]
    assert str(outer) == "GEMM                  BLAS 3, REFERENCE 1\nMAP                   SIMD 3"


def test_nobody_counts_outside_a_tally() -> None:
    assert not services.counting()
    with services.tallied() as tally:
        assert services.counting()
    assert not services.counting()
    assert str(tally) == "nothing was computed"
    assert repr(tally) == "Services({})"


def test_another_thread_has_tallies_and_a_posture_of_its_own() -> None:
    seen = []
    with services.tallied() as tally, services.exactly():
        thread = Thread(target=lambda: (services.count("MAP", "SIMD"), seen.append(services.exact())))
        thread.start()
        thread.join()
    assert tally.count() == 0
    assert seen == [False]


def test_the_posture_holds_inside_the_block_alone() -> None:
    assert not services.exact()
    with services.exactly():
        with services.exactly():
            assert services.exact()
        assert services.exact()
    assert not services.exact()


WANTED = {
    "GEMM": {op.MatMul},
    "SUM": {op.Sum, op.SumAlong},
    "REDUCE": {op.MaxAlong, op.LogSumExp, op.LogSoftmax},
    "FOLD": {op.Fold},
    "INDEX": {op.Gather, op.Scatter},
    "MOVE": {op.Broadcast, op.BroadcastAlong, op.Reshape, op.Permute, op.Narrow, op.Pad, op.Unfold},
}


@pytest.mark.parametrize(
    "kind", [kind for kind, row in INSTRUCTIONS.items() if row.samples], ids=lambda kind: kind.name
)
def test_every_instruction_has_a_formula(kind: type[op.Opcode]) -> None:
    wanted = next((formula for formula, kinds in WANTED.items() if kind in kinds), "MAP")
    assert {services.formula_of(sample.opcode) for sample in INSTRUCTIONS[kind].samples} == {wanted}
