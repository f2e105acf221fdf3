"""What a program calls, and for whom."""

from __future__ import annotations

import pytest

pytest.importorskip("llvmlite")

from topos import Tape


def test_a_group_of_no_numbers_is_told_and_not_called() -> None:
    tape = Tape()
    nothing = (tape.input(shape=[0, 3]) * 2.0).symbol()
    one = tape.input(2.0).exp().symbol()
    network = tape.into_network()
    plan = network.entry([nothing, one]).lower()
    assert plan.explain().splitlines()[-1] == "native: 2 groups, 0 copies, 1 kernel, arena of 0 bytes"
    profile = plan.profile(network.parameters())
    assert [group.rows for group in profile.groups] == ["5:Exp"]


def test_the_copies_of_carried_buffers_are_called_and_belong_to_no_group() -> None:
    tape = Tape()
    first, second = tape.input(1.0), tape.input(2.0)
    total = (first + second).symbol()
    first, second = first.symbol(), second.symbol()
    network = tape.into_network()
    plan = network.entry([total]).carry({first: second, second: first}).lower()
    told = plan.explain().splitlines()
    assert told[-1].startswith("native: 1 group, 4 copies, 2 kernels")
    profile = plan.profile(network.state())
    assert [group.rows for group in profile.groups].count("a carried buffer") == 4
