"""What a plan says of its groups: in the numbers of the program, whatever was added to compute it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from topos import Network, Symbol, Tape, Value

pytest.importorskip("llvmlite")

RANDOM = np.random.default_rng(0)


def convolved(tape: Tape) -> tuple[Value, Value]:
    """A product over windows, work and a maximum in its order of memory, and the gradient of its kernel."""
    x, kernel = tape.input(RANDOM.normal(size=(2, 1, 10, 10))), tape.parameter(RANDOM.normal(size=(8, 1, 3, 3)))
    windows = x.unfold(3, 3).unfold(2, 3).permute([0, 2, 4, 1, 3, 5]).reshape([128, 9])
    y = (windows @ kernel.reshape([8, 9]).transpose()).reshape([2, 8, 8, 8]).permute([0, 3, 1, 2]).relu()
    loss = y.unfold(3, 2, 2).unfold(2, 2, 2).max_along(5).max_along(3).exp().sum()
    return loss, tape.differentiate(loss, [kernel]).of(kernel)


def read_often(tape: Tape) -> tuple[Value, Value, Value]:
    """A cheap value of one that is stored anyway, summed along both axes, and read again."""
    x = tape.input(RANDOM.normal(size=(300, 200)), name="x")
    shifted = x + 1
    cut = (shifted * 2).relu()
    total = cut.sum_along(0).tanh().broadcast_along(0, 300)
    return shifted, cut.exp().sum_along(1), total * cut


def explained(network: Network, results: tuple[Symbol, ...]) -> list[str]:
    """The lines of the groups, without the names of kernels."""
    lines = network.entry(list(results)).lower().explain().splitlines()
    return [re.sub(r"  \w+_[0-9a-f]{16} in .*", "", line) for line in lines[:-1]]


def test_rows_that_were_added_are_told_as_the_nodes_that_they_compute() -> None:
    network, results = Tape.record(convolved)
    lines = explained(network, results)
    named = [int(node) for line in lines for node in re.findall(r"%(\d+)", line)]
    assert named
    assert max(named) < len(network.nodes())
    assert [node for line in lines for node in re.findall(r"(\d+):MaxAlong", line)] == ["15", "16"]


def test_what_is_worked_out_again_is_told() -> None:
    network, results = Tape.record(read_often)
    assert explained(network, results) == [
        "   0  [300, 200]    along 1  3:Add 6:Mul 8:Maximum 12:Exp 13:SumAlong  reads 0  stores 3, 13"
        "  (nothing before it has its shape)",
        "   1  [300, 200]    along 0  6:Mul 8:Maximum 9:SumAlong 10:Tanh 14:Mul  works out 6, 8 again  reads 3"
        "  stores 14  (columns are summed in a loop of their own)",
    ]


def test_what_nobody_reads_any_more_is_not_computed() -> None:
    network, (shifted, _, product) = Tape.record(read_often)
    first, *_ = explained(network, (shifted, product))
    assert first == "   0  [300, 200]     3:Add  reads 0  stores 3  (nothing before it has its shape)"


def test_a_result_that_is_stored_in_place_of_its_copy_is_told() -> None:
    network, result = Tape.record(
        lambda tape: (tape.input(shape=[64, 32]) @ tape.parameter(np.ones((32, 48)))).transpose()
    )
    assert explained(network, (result,)) == [
        "   0  [64, 48]       2:MatMul  reads 0, 1  stores 3  (MatMul has a kernel of its own)"
    ]


def test_operands_that_are_packed_are_told_and_counted() -> None:
    def scaled(tape: Tape) -> Value:
        return tape.input(shape=[90, 200]) @ (tape.parameter(RANDOM.normal(size=(200, 100))) * 0.5)

    network, result = Tape.record(scaled)
    plan = network.entry(result).lower()
    (group,) = plan.profile(network.parameters()).groups
    assert group.rows == "5:MatMul  right operand packed as 4:Mul"
    assert group.operations == 2 * 90 * 200 * 100 + 200 * 100


def test_a_profile_names_groups_as_they_are_explained() -> None:
    network, results = Tape.record(convolved)
    plan = network.entry(list(results)).lower()
    told = plan.explain()
    for group in plan.profile(network.parameters()).groups:
        assert f"  {group.rows}  reads " in told
