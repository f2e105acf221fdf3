"""The model of names over several devices: the losses of one device and of the native plan, within a bound."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topos import BackendUnavailable, SettingError, Tape, f64
from topos.emission import xla

Elsewhere = Callable[..., None]
EXAMPLES = Path(__file__).parents[3] / "examples"
BATCH = {"train.context": ("data", None), "train.target": ("data",)}
WEIGHTS = {"hidden.weight": (None, "model"), "hidden.bias": ("model",), "output.weight": ("model", None)}
LAYOUTS = {
    "data": ({"data": 4}, BATCH),
    "model": ({"model": 4}, WEIGHTS),
    "both": ({"data": 2, "model": 2}, BATCH | WEIGHTS),
    "rows by both": ({"data": 2, "model": 2}, {"train.context": (("model", "data"), None)}),
    "two of four": ({"data": 2, "model": 1}, BATCH | WEIGHTS),
    "nothing cut": ({"data": 4}, {}),
}
STEPS = 20
BOUND = 2e-6
"""Four roundings of a loss of three, in f32."""


def names(hidden: int) -> Any:
    import sys

    sys.path.insert(0, str(EXAMPLES / "makemore"))
    import mlp
    import names as given

    language = mlp.record(10, hidden, 32, measure_batch=8, samples=2, seed=3)
    contexts, targets = given.windows(given.read(500), mlp.CONTEXT)
    rows = np.random.default_rng(4).integers(len(targets), size=(STEPS, 32))
    return language, {"train.context": contexts[rows], "train.target": targets[rows], "rate": 0.2}


def check_that_names_are_learned_alike(shardy: bool, *layouts: str) -> None:
    language, feeds = names(hidden=64)
    trained = {}
    native = language.state.clone()
    expected = language.train.advance(native, feeds, steps=STEPS).of(language.loss).numpy()
    assert expected[-1] < expected[0] - 0.2
    one = language.state.clone()
    alone = xla.compile(language.train).advance(one, feeds, steps=STEPS).of(language.loss).numpy()
    for name in layouts:
        mesh, shardings = LAYOUTS[name]
        executable = xla.compile(language.train, mesh=mesh, shardings=shardings, shardy=shardy)
        state = trained[name] = language.state.clone()
        losses = executable.advance(state, feeds, steps=STEPS).of(language.loss).numpy()
        np.testing.assert_allclose(losses, expected, rtol=0, atol=BOUND)
        np.testing.assert_allclose(losses, alone, rtol=0, atol=BOUND)
        for weight in language.train.entry.carry:
            np.testing.assert_allclose(state.of(weight).numpy(), native.of(weight).numpy(), rtol=0, atol=BOUND)
        if name != "both":
            continue
        single = {key: payload[0] if np.ndim(payload) else payload for key, payload in feeds.items()}
        loss = executable.forward(state, single).of(language.loss)
        np.testing.assert_allclose(loss.numpy(), language.train.forward(native, single).of(language.loss), atol=BOUND)


def test_names_are_learned_alike(elsewhere: Elsewhere) -> None:
    elsewhere(check_that_names_are_learned_alike, True, "data", "both")


@pytest.mark.slow
def test_names_are_learned_alike_in_every_layout(elsewhere: Elsewhere) -> None:
    elsewhere(check_that_names_are_learned_alike, True, *(set(LAYOUTS) - {"data", "both"}))


@pytest.mark.slow
def test_names_are_learned_alike_in_older_words(elsewhere: Elsewhere) -> None:
    elsewhere(check_that_names_are_learned_alike, False, "data", "both")


def check_that_work_is_shared() -> None:
    """Each device holds its part alone, and what they compute is added up between them."""
    tape = Tape(f64)
    weights, x = tape.parameter(np.ones((8, 3)), name="weights"), tape.input(shape=[4, 8], name="x")
    root = (x @ weights).sum()
    symbol, root = weights.symbol(), root.symbol()
    network = tape.into_network()
    plan = network.entry(root).lower()
    executable = xla.compile(plan, mesh={"model": 4}, shardings={symbol: ("model", None), "x": (None, "model")})
    found = executable.forward(network.parameters(), {"x": np.arange(32.0).reshape(4, 8)}).of(root)
    assert found.element is f64 and float(found) == 3 * 31 * 16
    program = executable._run
    parts = [shard.data.shape for shard in program.put(0, network.parameters().of(symbol)).addressable_shards]
    assert parts == [(2, 3)] * 4
    assert "all-reduce" in program.program.form.executable.hlo_modules()[0].to_string()


def test_work_is_shared(elsewhere: Elsewhere) -> None:
    elsewhere(check_that_work_is_shared)


def check_that_threads_take_turns() -> None:
    tape = Tape()
    weights, x = tape.parameter(np.ones((8, 4)), name="weights"), tape.input(shape=[4, 8], name="x")
    loss, after = (x @ weights).sum(), weights * 0.5
    weights, loss, after = (value.symbol() for value in (weights, loss, after))
    network = tape.into_network()
    plan = network.entry(loss).carry({weights: after}).lower()
    executable = xla.compile(plan, mesh={"model": 4}, shardings={"weights": ("model", None), "x": (None, "model")})
    found = []

    def work() -> None:
        for _ in range(10):
            run = executable.advance(network.state(), {"x": np.ones((4, 8))}, steps=3)
            found.append(run.of(loss).tolist())

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [[128.0, 64.0, 32.0]] * 40


def test_threads_take_turns(elsewhere: Elsewhere) -> None:
    elsewhere(check_that_threads_take_turns)


def check_refusals() -> None:
    network, root = Tape.record(lambda tape: tape.parameter(np.ones(8), name="weights").sum())
    plan = network.entry(root).lower()
    for call, kind, message in (
        (
            lambda: xla.compile(plan, mesh={"data": 8}, shardings={"weights": ("data",)}),
            BackendUnavailable,
            "xla: the mesh wants 8 devices, cpu has 4; topos.emission.xla.virtual_devices(8), said first, makes so "
            "many",
        ),
        (
            lambda: xla.virtual_devices(3),
            SettingError,
            "virtual_devices: too late for 3: jax has started with 4; call it before anything is compiled or computed, "
            "or set XLA_FLAGS=--xla_force_host_platform_device_count=3",
        ),
        (
            lambda: xla.virtual_devices(0),
            SettingError,
            "virtual_devices: wants a whole number of at least 1, got 0",
        ),
    ):
        try:
            call()
        except kind as error:
            assert str(error) == message
        else:
            raise AssertionError(message)
    xla.virtual_devices(4)  # as many as there are
    assert xla.processes() == (0, 1)


def test_what_is_not_there_is_told(elsewhere: Elsewhere) -> None:
    elsewhere(check_refusals)
