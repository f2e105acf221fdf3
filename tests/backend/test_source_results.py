"""Sources as results of a step: a feed of every step, and what a State holds while others step it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from topos import Tape, Tensor, bf16, f32, f64
from topos.testing import assert_same_bits

from .plans import lowered


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
def test_a_feed_per_step_is_a_result(element: Any) -> None:
    """The input itself, of rank 0 and of rank 2, is read back with its leading axis, and the State takes the steps."""
    tape = Tape(element)
    x, y, total = tape.input(0.0), tape.input(np.zeros((2, 3))), tape.parameter(0.0)
    results = [x.symbol(), y.symbol()]
    source, after = total.symbol(), (total + x + y.sum()).symbol()
    network = tape.into_network()
    plan = lowered(network.entry(results).carry({source: after}))
    one, many = np.array([1.0, 2.0, 4.0]), np.arange(18.0).reshape(2, 3, 3).transpose(2, 0, 1)
    state = network.state()
    run = plan.advance(state, dict(zip(results, (one, many), strict=True)), steps=3)
    assert_same_bits(run.of(results), [Tensor(one, element), Tensor(many, element)])
    assert float(state.of(source)) == one.sum() + many.sum()


def test_a_source_that_another_thread_replaces_is_read_whole() -> None:
    """One plan answers a source, another carries it: the answer is from before a step or after it, and stays so."""
    tape = Tape()
    count, numbers = tape.parameter(0.0), tape.parameter(np.zeros((700, 700)))
    counting = {count.symbol(): (count + 1).symbol()}
    source, after = numbers.symbol(), (numbers + 1).symbol()
    network = tape.into_network()
    reader = lowered(network.entry(source).carry(counting))
    writer = lowered(network.entry([]).carry({source: after}))
    state, stop = network.state(), threading.Event()

    def write() -> None:
        while not stop.is_set():
            writer.advance(state)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for turn in range(60):
            answer = reader.advance(state, steps=(None, 2)[turn % 2]).of(source).numpy()
            assert (answer == answer.flat[0]).all()
    finally:
        stop.set()
        thread.join()
