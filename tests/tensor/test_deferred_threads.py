"""Several threads and work that is kept back: they never wait in a ring, nor meet a layer that is half loaded."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from topos import Tape, Tensor
from topos.testing import assert_same_bits


def test_tensors_that_threads_exchange_are_worked_out_in_any_order() -> None:
    """One thread reads two others while one of those reads it."""
    tape = Tape()
    tape.parameter(np.random.default_rng(0).standard_normal((1000, 1000)))
    weights = tape.into_network().parameters()
    halves = weights.scale(0.5)
    made: dict[str, Tensor] = {}
    ready, done = (threading.Barrier(3, timeout=30) for _ in range(2))

    def rule(name: str) -> Tensor:
        def slow(weight: Tensor, gradient: Tensor) -> Tensor:
            for _ in range(40):
                weight = (weight * 1.01 + gradient).tanh()
            made[name] = weight
            ready.wait()
            answer = gradient
            if name == "both":
                answer = made["slow"].select(made["one"], made["slow"])
            elif name == "one":
                time.sleep(0.02)
                answer = gradient + made["both"]
            done.wait()
            return answer

        return weights.step(halves, slow).payloads()[0]

    with ThreadPoolExecutor(3) as three:
        answers = [three.submit(rule, name) for name in ("slow", "one", "both")]
        gradient, summed, chosen = (answer.result(timeout=60) for answer in answers)
    assert_same_bits(gradient, halves.payloads()[0])
    assert_same_bits(summed, gradient + made["both"])
    assert_same_bits(chosen, made["one"])


FIRST = """
import threading
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from topos import Tensor
from topos.tensor import offer
offer.LOADED_NS = 0.0
numbers = Tensor(np.linspace(-3, 3, 1 << 20))
barrier = threading.Barrier(8)
def work(_):
    barrier.wait()
    return numbers.tanh().numpy().tobytes()
with ThreadPoolExecutor(8) as eight:
    print(len(set(eight.map(work, range(8)))), offer._ANSWERS in __import__("sys").modules)
"""


def test_threads_that_load_the_native_layer_together() -> None:
    ran = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, timeout=120)
    assert (ran.stdout, ran.returncode) == ("1 True\n", 0), ran.stderr
