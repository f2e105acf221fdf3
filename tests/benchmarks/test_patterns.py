"""What is found in the models that are measured, as they are written there."""

from collections import Counter

import pytest
from benchmarks.systems import system
from benchmarks.workloads import WORKLOADS

from topos import Formula

CONVOLUTION = {"window product": 1, "window product kernel gradient": 1}
POOL = {"max pool": 1, "max pool gradient": 1}
ENTROPY = {"cross entropy": 1, "cross entropy gradient": 1}
NORM = {"layer norm": 1, "layer norm gradient": 1}
BATCH = {"batch norm training": 1, "batch norm training gradient": 1}
ATTENTION = {"attention": 1, "attention gradient": 1}
ROWS = {"embedding": 1, "embedding gradient": 1}


def times(count: int, kinds: dict[str, int]) -> Counter[str]:
    return Counter({kind: count * number for kind, number in kinds.items()})


FOUND = {
    "w1": Counter[str](),
    "w2": Counter(ROWS) + Counter(ENTROPY),
    "w3": times(2, CONVOLUTION) + Counter({"window product input gradient": 1}) + times(2, POOL) + Counter(ENTROPY),
    "w4": times(3, CONVOLUTION)
    + Counter({"window product input gradient": 2})
    + times(3, POOL)
    + times(2, BATCH)
    + Counter(ENTROPY),
    "w5": times(9, NORM) + times(4, ATTENTION) + Counter(ROWS) + Counter(ENTROPY),
    "w7": Counter({"attention": 1}),
    "w7c": Counter({"attention": 1}),
    "w10": Counter(ENTROPY),
}


@pytest.mark.parametrize("name", FOUND)
def test_every_composition_of_a_workload_is_found(name: str) -> None:
    workload = WORKLOADS[name]
    plan = system("topos").plan_of(workload, workload.arrays()).plan
    assert Counter(pattern.kind for pattern in plan.patterns(Formula)) == FOUND[name]
