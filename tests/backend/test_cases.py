"""The cases about threads, processors, repeats, depth and counts, put to native plans."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from topos import Tape, detach, f32
from topos.backend.native import counts, pool
from topos.testing import assert_same_bits

from .plans import CPUS, Case, digest, is_native, lowered, processor, recorded, threads

CASES = Path(__file__).parents[1] / "cases"
BATCHES = runpy.run_path(str(CASES / "test_batches.py"))

COUNTS = (1, 2, 3, 4, 6, 8)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def arrays(tensors: Any) -> list[np.ndarray]:
    return [tensor.numpy() for tensor in tensors]


# Thread counts -------------------------------------------------------------------------------------------------------
def test_c31_the_partition_follows_the_shape() -> None:
    """Large terms that cancel: a partial sum per thread would show."""
    count = 4194304
    terms = (np.arange(count) - (count - 1) / 2).astype(np.float32)

    def record(tape: Tape) -> Any:
        x = tape.input(shape=[count])
        return [x.sum(), x.reshape([4, count // 4]).sum_along(1)], {x: terms}

    case = recorded(record, f32)
    plan, expected = case.plan, case.expected()
    for number in COUNTS:
        with threads(number):
            case.compare(case.actual(plan), expected)


def test_c52_ten_thousand_rows_on_one_place() -> None:
    """They add up in the order of the selection, whoever adds them."""

    def record(tape: Tape) -> Any:
        rows, ids = tape.input(shape=[10000, 7]), tape.selection([10000], 3)
        fed = {rows: normal(3, 10000, 7) * 100, ids: np.repeat([0, 2, 0], [9000, 500, 500])}
        return [rows.scatter(ids), rows.scatter(ids).gather(ids)], fed

    case = recorded(record, f32)
    plan, expected = case.plan, case.expected()
    assert (expected[0][1] == 0).all()
    for number in COUNTS:
        with threads(number):
            case.compare(case.actual(plan), expected)


def bits_of_the_case() -> list[str]:
    """C63's layer with its gradients, and two steps of its net, as hashes."""
    plan, parameters, feeds, results = BATCHES["linear"]()
    assert is_native(plan), plan.explain()
    return [digest(arrays(plan.forward(parameters, feeds).of(results))), BATCHES["trained"]()]


def test_c63_any_number_of_threads() -> None:
    hashes = set()
    for number in COUNTS:
        with threads(number):
            hashes.add(tuple(bits_of_the_case()))
    assert len(hashes) == 1


def product_case() -> Case:
    """Large enough for every thread: a product, a row-wise function, sums along both axes, and their gradients."""

    def record(tape: Tape) -> Any:
        x, w = tape.input(shape=[300, 600]), tape.input(shape=[600, 70])
        y = (x @ w * 0.04).softmax(1)  # no subnormal numbers, which are slow
        loss = (y * y).sum()
        adjoints = tape.differentiate(loss, [x, w])
        return [loss, y.sum_along(0), *(gradient for _, gradient in adjoints)], {
            x: normal(1, 300, 600),
            w: normal(2, 600, 70),
        }

    return recorded(record, f32)


def test_c63_repeats_and_threads_of_python_at_once() -> None:
    """Two threads together, on a pool that they share: one hash."""
    case = product_case()
    plan, expected = case.plan, digest(case.expected())
    barrier = threading.Barrier(2)

    def work(_: int) -> set[str]:
        barrier.wait()
        return {digest(case.actual(plan)) for _ in range(10)}

    with threads(3), ThreadPoolExecutor(2) as two:
        assert list(two.map(work, range(2))) == [{expected}] * 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [1, 2, 4, 8])
def test_c63_five_hundred_repeats(number: int) -> None:
    case = product_case()
    plan, expected = case.plan, digest(case.expected())
    with threads(number):
        assert {digest(case.actual(plan)) for _ in range(500)} == {expected}


def test_c63_the_number_of_threads_changes_under_way() -> None:
    """Set by one thread of Python while another one runs a plan."""
    case = product_case()
    plan, expected = case.plan, digest(case.expected())
    stop = threading.Event()

    def change() -> None:
        at = 0
        while not stop.is_set():
            at += 1
            pool.threads(1 + at % 5)
            time.sleep(0.002)

    with threads(2), ThreadPoolExecutor(1) as other:
        changing = other.submit(change)
        try:
            assert {digest(case.actual(plan)) for _ in range(10)} == {expected}
        finally:
            stop.set()
            changing.result()


# Rows alone and in a batch -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("number", [1, 4])
def test_c62_a_row_alone_and_in_a_batch(number: int) -> None:
    """Each batch is a plan of its own, with kernels of its own."""
    x, w = normal(0, 64, 512), normal(1, 512, 256)

    def answers(rows: np.ndarray) -> list[np.ndarray]:
        def record(tape: Tape) -> Any:
            value, weights = tape.input(shape=rows.shape), tape.input(shape=w.shape)
            y = value @ weights
            return [y, y.softmax(1), BATCHES["layer_norm"](y), y.logsumexp(1)], {value: rows, weights: w}

        return recorded(record, f32).check()

    with threads(number):
        whole = answers(x)
        for size in BATCHES["SIZES"]:
            for part, full in zip(answers(x[64 - size :]), whole, strict=True):
                assert_same_bits(part, full[64 - size :])


# Other processors ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cpu", CPUS[1:])
def test_c64_other_processors(cpu: str) -> None:
    expected = bits_of_the_case()
    with processor(cpu):
        assert bits_of_the_case() == expected
        case = product_case()
        case.check()


@pytest.mark.exhaustive
@pytest.mark.parametrize("cpu", CPUS[1:])
def test_c64_the_cases_on_other_processors(cpu: str) -> None:
    """C25 to C29, C46, C47, C52 to C55, C62, C63 and C65, each by every route, compiled for another processor."""
    with processor(cpu):
        files = ["elementary_functions", "batches", "arithmetic", "bfloat16", "indexing", "views"]
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", *(str(CASES / f"test_{name}.py") for name in files)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=CASES.parents[1],
            capture_output=True,
            text=True,
        )
    assert ran.returncode == 0, ran.stdout


# Depth ---------------------------------------------------------------------------------------------------------------
def chain(steps: int, differentiated: bool) -> Case:
    def record(tape: Tape) -> Any:
        x = y = tape.input(shape=[])
        for _ in range(steps):
            y = y + x
        return [y, *(tape.differentiate(y, [x]).roots()[1:] if differentiated else ())], {x: np.float32(1)}

    return recorded(record, f32)


def test_c68_ten_thousand_instructions_compile() -> None:
    """Stretches of a chain print equal kernels, so that its length costs little; exact in f32."""
    before = counts.compiles()
    case = chain(10_000, differentiated=False)
    assert_same_bits(case.actual(case.plan), [np.float32(10_001)])
    assert sum(counts.compiles().since(before).by_reason.values()) < 40


@pytest.mark.exhaustive
@pytest.mark.parametrize(("steps", "differentiated"), [(10_000, True), (100_000, False)])
def test_c68_more_than_is_worth_compiling(steps: int, differentiated: bool) -> None:
    """Past the limit the plan says why it is not compiled, and is as right."""
    case = chain(steps, differentiated)
    plan = case.network.entry(case.roots).lower()
    assert_same_bits(case.actual(plan), [np.float32(steps + 1)] * len(case.roots))
    told = plan.explain().splitlines()[-1]
    assert told.startswith("native: ") or told.endswith(
        "nodes of few numbers each take longer to compile than to interpret"
    )


# Counts --------------------------------------------------------------------------------------------------------------
def layer(length: int, factor: float | None = None) -> tuple[Any, Any, Any]:
    """A layer over rows of a length: plan, parameters, and a call with its number as a feed, or as a constant."""
    tape = Tape()
    x, w, scale = (
        tape.input(shape=[length, 6], name="x"),
        tape.parameter(normal(1, 6, 5)),
        tape.input(1.0, name="scale"),
    )
    spread = scale.broadcast((length, 5))
    y = detach(((x @ w) * (spread if factor is None else factor)).tanh().sum_along(0))
    network = tape.into_network()
    return lowered(network.entry(y)), network.parameters(), {"x": normal(2, length, 6)}


def made(since: counts.Compiles) -> int:
    return sum(counts.compiles().since(since).by_reason.values())


@pytest.fixture
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPOS_CACHE", "")


@pytest.mark.usefixtures("no_cache")
def test_c71_counting_compiles() -> None:
    """A plan is compiled once: not again by calls, by feeds of other strides, by a number that is fed."""
    before = counts.compiles()
    plan, parameters, feeds = layer(31)
    once = made(before)
    assert 1 <= once <= 6
    for at in range(100):
        plan.forward(parameters, {**feeds, "scale": 1 + at / 7})
    plan.forward(parameters, {"x": np.asfortranarray(feeds["x"])})
    assert made(before) == once
    # An equal recording is another plan of the same code.
    again, parameters, feeds = layer(31)
    again.forward(parameters, feeds)
    assert made(before) == once
    # Each length is a plan of its own, compiled once.
    for length in range(5, 15):
        other, parameters, feeds = layer(length)
        other.forward(parameters, feeds)
        other.forward(parameters, feeds)
    assert made(before) - once <= 10 * once
    # Convention: a number that is written into the recording is part of the code.
    other, _, _ = layer(31, 0.25)
    assert made(before) > once


@pytest.mark.usefixtures("no_cache")
def test_c71_the_reason_of_each_can_be_read() -> None:
    before = counts.compiles()
    kept, _, _ = layer(19, 1.0625)
    told = counts.compiles().since(before)
    assert told.by_reason == {counts.COLD: told.compiled}
    assert [event.reason for event in told.recent] == [counts.COLD] * told.compiled
    assert all(event.what and event.elapsed_s >= 0 for event in told.recent)
    lines = str(told).splitlines()
    assert lines[0] == f"{told.compiled} compiled"
    assert len(lines) == told.compiled + 1
    names = [line.split(":")[0].strip() for line in lines[1:]]
    text = kept.llvm()
    assert all(f"@{name}(" in text for joined in names for name in joined.split(", "))
