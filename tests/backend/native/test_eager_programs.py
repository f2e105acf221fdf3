"""Drawn programs and their gradients, line by line over tensors: by native kernels, and with lines kept back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from topos.engine.interpreter import whole
from topos.graph import Network
from topos.tensor import Tensor, deferred
from topos.testing import assert_same_bits
from topos.testing.programs import programs

from .eager_kinds import offer_everything

DRAWN = settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)


@pytest.fixture(autouse=True)
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    offer_everything(monkeypatch)


def interpreted(program: Any) -> tuple[Network, Mapping[int, Tensor]]:
    """A program with its gradients, and the value of each of its rows by the definition."""
    tape, recorded = program.record()
    sources = [v for v in recorded.values if v.element is not None and tape.row(v.index).opcode.is_source]
    if sources:
        tape.differentiate(recorded.target, sources)
    network = tape.into_network()
    return network, whole(network, network.parameters(), recorded.feeds)._values


def line_by_line(network: Network, values: Mapping[int, Tensor], read: set[int], forget: bool) -> dict[int, Any]:
    """Every row computed over tensors; some are read at once, and those that nobody needs are let go, if asked."""
    spec = network.spec
    last = {operand: index for index, row in enumerate(spec.rows) for operand in row.operands}
    held: dict[int, Tensor] = {}
    seen: dict[int, Any] = {}
    for index, row in enumerate(spec.rows):
        if row.opcode.is_source:
            held[index] = values[index]
            continue
        held[index] = row.opcode.express([held[operand] for operand in row.operands])
        if index in read:
            seen[index] = held[index].numpy()
        for operand in row.operands:
            if forget and last[operand] == index:
                held.pop(operand, None)
    return {**seen, **{index: tensor for index, tensor in held.items() if not spec.rows[index].opcode.is_source}}


@DRAWN
@given(program=programs())
def test_by_native_kernels(program: Any) -> None:
    network, values = interpreted(program)
    with np.errstate(all="ignore"):
        for index, found in line_by_line(network, values, set(), False).items():
            assert_same_bits(found, values[index])


@DRAWN
@given(program=programs(), read=st.sets(st.integers(0, 60), max_size=4), forget=st.booleans())
def test_kept_back(program: Any, read: set[int], forget: bool) -> None:
    network, values = interpreted(program)
    with np.errstate(all="ignore"):
        with deferred.deferring():
            answers = line_by_line(network, values, read, forget)
        for index, found in answers.items():
            assert_same_bits(found, values[index])
