"""What is refused, in which words; and what a failure leaves behind."""

from collections.abc import Callable
from typing import Any

import numpy as np

from topos import BackendUnavailable, EngineError, ExactnessError, Numerics, PostureError, State
from topos.emission import xla
from topos.emission.xla import client
from topos.emission.xla.translated import Translated

from .model import WEIGHTS, feeds, recorded

Elsewhere = Callable[..., None]


def refusal(call: Callable[..., Any], *arguments: Any) -> tuple[type, str]:
    try:
        call(*arguments)
    except Exception as error:
        return type(error), str(error)
    raise AssertionError("nothing was raised")


def check_refusals() -> None:
    network, loss, _, carry, plan = recorded()
    other, *_ = recorded()
    executable, parameters, state = xla.compile(plan), network.parameters(), network.state()
    for table, fed in (
        (parameters, {}),
        (parameters, feeds() | {"letters": [[0, 1], [2, 5], [0, 0], [0, 0]]}),
        (parameters, feeds() | {"labels": [0, 1, 2]}),
        (parameters, feeds() | {"nobody": 1.0}),
        (state, feeds() | {"weights": WEIGHTS}),
        (state, {**feeds(), "rate": [1.0, 2.0]}),
        (other.parameters(), feeds()),
        (None, feeds()),
    ):
        assert refusal(executable.forward, table, fed) == refusal(plan.forward, table, fed)
    for arguments in ((parameters, feeds()), (state, {}), (state, feeds(), 0), (state, feeds(slice(0, 2)), 3)):
        assert refusal(executable.advance, *arguments) == refusal(plan.advance, *arguments)
    assert executable._step._program is executable._run._program is None  # before anything is compiled
    entry = network.entry(loss)
    assert refusal(lambda: xla.compile(entry.backward().lower())) == (
        PostureError,
        "xla: a plan with the backward posture retains every value; lower without backward()",
    )
    assert refusal(lambda: xla.compile(entry.diagnose().lower())) == (
        PostureError,
        "xla: a diagnosed plan watches every value; lower without diagnose()",
    )
    assert refusal(lambda: xla.compile(entry.numerics(Numerics.EXACT).lower())) == (
        ExactnessError,
        "xla: the entry asks for Numerics.EXACT, and XLA rounds in its own order",
    )
    assert refusal(lambda: xla.compile(network)) == (
        BackendUnavailable,
        "xla: compile wants a Plan (entry.lower()), got Network",
    )
    assert refusal(executable.__reduce__)[0] is TypeError


def test_what_a_plan_refuses_is_refused_alike(elsewhere: Elsewhere) -> None:
    elsewhere(check_refusals)


def check_that_the_words_of_xla_are_passed_on() -> None:
    devices = client.devices(None, None)
    kind, text = refusal(lambda: client.compiled("module {", devices, True))
    assert kind is EngineError
    assert text.startswith("xla: compile: UNKNOWN: -:1:7: error: expected operation name in quotes")
    kind, text = refusal(lambda: client.devices("abacus", None))
    assert kind is BackendUnavailable
    assert text.startswith("xla: Unknown backend")
    place = client.Place(devices, (2,), np.float32, ())
    donating = client.compiled(
        "module @m {\n  func.func @main(%arg0: tensor<2xf32> {tf.aliasing_output = 0 : i32}) -> tensor<2xf32> {\n"
        "    return %arg0 : tensor<2xf32>\n  }\n}",
        devices,
        True,
    )
    array = place.put(np.ones(2, np.float32))
    donating.run([array])
    assert refusal(lambda: donating.run([array])) == (
        EngineError,
        "xla: run: an argument was donated to an earlier run",
    )


def test_the_words_of_xla_are_passed_on(elsewhere: Elsewhere) -> None:
    elsewhere(check_that_the_words_of_xla_are_passed_on)


def stopped_at(number: int, error: BaseException) -> tuple[State, State, Any]:
    """Two states, of which the first has stepped with an error in a step, and the second has not begun."""
    network, _, _, carry, plan = recorded()
    executable, run, calls = xla.compile(plan), Translated.run, []
    state, expected = network.state(), network.state()

    def failing(self: Translated, arrays: Any) -> Any:
        calls.append(1)
        if len(calls) == number:
            raise error
        return run(self, arrays)

    Translated.run = failing
    try:
        executable.advance(state, feeds(slice(0, 5)), steps=5)
    except type(error):
        pass
    finally:
        Translated.run = run
    for step in range(number - 1 if isinstance(error, KeyboardInterrupt) else 0):
        executable.advance(expected, feeds(step))
    return state, expected, carry


def check_that_a_state_holds_whole_steps() -> None:
    for error in (KeyboardInterrupt(), EngineError("xla: run: no more")):
        for number in (1, 4):
            state, expected, carry = stopped_at(number, error)
            for symbol in carry:
                np.testing.assert_array_equal(state.of(symbol).numpy(), expected.of(symbol).numpy())


def test_a_state_holds_whole_steps(elsewhere: Elsewhere) -> None:
    """An interrupt leaves those that were made; an error of the engine leaves the state as it was."""
    elsewhere(check_that_a_state_holds_whole_steps)
