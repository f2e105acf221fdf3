"""Every group of a plan, kernel by kernel, against the interpreter, over drawn programs and their derivatives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from topos.testing.programs import programs

pytest.importorskip("llvmlite")

from topos.backend.native.target import Target

from .kernel_checks import check_kernels, target_named, values_of


def check_program(program: Any, target: Target) -> None:
    """A drawn program and its derivative in every source, all unread nodes kept."""
    tape, recorded = program.record()
    dense = [value for value in recorded.values if value.element is not None]
    sources = [value for value in dense if tape.row(value.index).opcode.is_source]
    if sources:
        tape.differentiate(recorded.target, sources)
    network = tape.into_network()
    spec = network.spec
    read = {operand for row in spec.rows for operand in row.operands}
    kept = [index for index, row in enumerate(spec.rows) if index not in read and row.operands]
    assert check_kernels(spec, kept, values_of(network, recorded.feeds), target) == []


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(program=programs())
def test_drawn_programs(program: Any) -> None:
    check_program(program, target_named("host"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["host", "x86-64", "x86-64-v3", "x86-64-v4"])
def test_many_drawn_programs(name: str) -> None:
    target = target_named(name)

    @settings(max_examples=200, suppress_health_check=list(HealthCheck))
    @given(program=programs())
    def check(program: Any) -> None:
        check_program(program, target)

    check()
