"""A plan on XLA: the same surface, the same numbers within a bound, no copies where none are needed."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import (
    BackendUnavailable,
    EngineError,
    ExactnessError,
    Numerics,
    PostureError,
    State,
    Tape,
    bf16,
    f32,
    f64,
)
from topos.emission import xla
from topos.emission.xla import client
from topos.emission.xla.translated import Translated
from topos.tensor.memory import address_of, aligned

Elsewhere = Callable[..., None]
ELEMENTS = {"f32": f32, "f64": f64, "bf16": bf16}
ULP = {"f32": 2.0**-22, "f64": 2.0**-50, "bf16": 2.0**-7}
RNG = np.random.default_rng(5)
TABLE, WEIGHTS = RNG.normal(size=(5, 8)), RNG.normal(size=(16, 5)) / 4
IDS = RNG.integers(0, 5, size=(6, 4, 2))
LABELS = np.where(IDS[:, :, 0] == 3, -1, IDS[:, :, 0])


def model(tape: Tape) -> Any:
    """A table of letters, a layer, a loss over labels of which some are absent, and one step down its slope."""
    table, weights = tape.parameter(TABLE, name="table"), tape.parameter(WEIGHTS, name="weights")
    rate = tape.input(0.5, name="rate")
    letters = tape.selection([4, 2], vocab=5, name="letters")
    labels = tape.selection([4], vocab=5, absent=-1, name="labels")
    scores = table.gather(letters).reshape([4, 16]).tanh() @ weights
    loss = -labels.select(scores.log_softmax(1), 0.0).sum() / 4
    slopes = tape.differentiate(loss, [table, weights])
    return loss, labels, {at: at - rate.broadcast(at.shape) * slope for at, slope in slopes}


def recorded(element: str = "f32") -> Any:
    network, (loss, labels, carry) = Tape.record(model, ELEMENTS[element])
    return network, loss, labels, carry, network.entry(loss).carry(carry).lower()


def feeds(step: Any = 0) -> dict[str, Any]:
    return {"letters": IDS[step], "labels": LABELS[step]}


def close(found: Any, expected: Any, element: str = "f32", steps: int = 1) -> None:
    """Of the same form, and within a few roundings of the largest number."""
    assert found.element is expected.element and found.shape == expected.shape
    left, right = (np.asarray(tensor.numpy(), np.float64) for tensor in (found, expected))
    bound = 8 * steps * ULP[element] * (1 + np.max(np.abs(right), initial=0.0))
    np.testing.assert_allclose(left, right, rtol=0, atol=bound)


# the same numbers
def check_that_it_answers_like_its_plan(element: str) -> None:
    network, loss, labels, carry, plan = recorded(element)
    executable = xla.compile(network.entry([loss, labels]).observe(list(carry)).carry(carry).lower())
    run = executable.forward(network.parameters(), feeds())
    close(run.of(loss), plan.forward(network.parameters(), feeds()).of(loss), element)
    assert run.of(labels).ids.tolist() == LABELS[0].tolist()
    assert [run.of(symbol).numpy().dtype for symbol in (loss, *carry)] == [ELEMENTS[element].dtype] * 3


@pytest.mark.parametrize("element", ELEMENTS)
def test_it_answers_like_its_plan(elsewhere: Elsewhere, element: str) -> None:
    elsewhere(check_that_it_answers_like_its_plan, element)


def check_that_steps_are_those_of_the_plan(element: str) -> None:
    network, loss, _, carry, plan = recorded(element)
    observed = network.entry(loss).observe(list(carry)).carry(carry).lower()
    executable = xla.compile(observed)
    ours, theirs = network.state(), network.state()
    before = ours.of(network.symbol("table"))
    kept = before.numpy().copy()
    found = executable.advance(ours, feeds(slice(0, 5)), steps=5)
    expected = observed.advance(theirs, feeds(slice(0, 5)), steps=5)
    for symbol in observed.results:
        close(found.of(symbol), expected.of(symbol), element, steps=5)
    close(executable.advance(ours, feeds(5)).of(loss), plan.advance(theirs, feeds(5)).of(loss), element, steps=6)
    for symbol in carry:
        close(ours.of(symbol), theirs.of(symbol), element, steps=6)
    np.testing.assert_array_equal(before.numpy(), kept)
    held = ours.of(network.symbol("table"))
    close(executable.forward(ours, feeds(0)).of(loss), plan.forward(theirs, feeds(0)).of(loss), element, steps=6)
    np.testing.assert_array_equal(ours.of(network.symbol("table")).numpy(), held.numpy())


@pytest.mark.parametrize("element", ELEMENTS)
def test_steps_are_those_of_the_plan(elsewhere: Elsewhere, element: str) -> None:
    elsewhere(check_that_steps_are_those_of_the_plan, element)


def check_sources_as_results() -> None:
    """A weight, a constant and a selection that are results; what replaces a source being another source; no carry."""
    tape = Tape()
    left, right = tape.parameter([1.0, 2.0]), tape.parameter([3.0, 4.0])
    constant, picks = tape.leaf([5.0, 6.0]), tape.selection([2], vocab=3, absent=-7, name="picks")
    left, right, constant, chosen = (value.symbol() for value in (left, right, constant, picks))
    network = tape.into_network()
    plan = network.entry([left, constant, chosen]).carry({left: right, right: left}).lower()
    state = network.state()
    run = xla.compile(plan).advance(state, {"picks": [2, -7]})
    assert [run.of(symbol).tolist() for symbol in (left, constant)] == [[1.0, 2.0], [5.0, 6.0]]
    assert run.of(chosen).ids.tolist() == [2, -1]
    assert [state.of(symbol).tolist() for symbol in (left, right)] == [[3.0, 4.0], [1.0, 2.0]]
    nothing = xla.compile(network.entry(chosen).lower()).forward(network.parameters(), {"picks": [0, 1]})
    assert nothing.of(chosen).ids.tolist() == [0, 1]
    nothing = xla.compile(network.entry(chosen).lower()).advance(state, {"picks": [0, -7]})
    assert nothing.of(chosen).ids.tolist() == [0, -1]


def test_sources_as_results(elsewhere: Elsewhere) -> None:
    elsewhere(check_sources_as_results)


def check_nothing(expected: float) -> None:
    network, loss, *_, plan = recorded()
    found = xla.compile(plan).forward(network.parameters(), feeds()).of(loss)
    assert found.numpy() == expected


def test_a_check_can_fail(elsewhere: Elsewhere) -> None:
    with pytest.raises(AssertionError, match="assert found.numpy"):
        elsewhere(check_nothing, 0.25)


# memory
def check_that_aligned_memory_is_taken() -> None:
    devices = client.devices(None, None)
    for dtype in (np.float32, np.float64, np.int32, bf16.dtype):
        place = client.Place(devices, (37, 5), dtype, ())
        taken = aligned((37, 5), dtype)
        taken[...] = 3
        array = place.put(taken)
        assert array.unsafe_buffer_pointer() == address_of(taken)
        assert address_of(client.fetched(array)) == address_of(taken)
        apart = np.ndarray((37, 5), dtype, np.zeros(37 * 5 * 8 + 128, np.uint8), -address_of(taken) % 64 + 8)
        copied = place.put(apart)
        assert copied.unsafe_buffer_pointer() % 64 == 0
        np.testing.assert_array_equal(client.fetched(copied).astype(float), apart.astype(float))
        turned = client.Place(devices, (5, 37), dtype, ()).put(taken.T)
        np.testing.assert_array_equal(client.fetched(turned).astype(float), taken.T.astype(float))


def test_aligned_memory_is_taken_as_it_is(elsewhere: Elsewhere) -> None:
    """On the way in, and on the way out into the tensors of a run."""
    elsewhere(check_that_aligned_memory_is_taken)


def check_that_results_are_the_memory_of_xla() -> None:
    network, root = Tape.record(lambda tape: tape.input(shape=[64, 64], name="x") * 2.0)
    executable = xla.compile(network.entry(root).lower())
    fed = aligned((64, 64), np.float32)
    fed[...] = 1.0
    pointers = []
    run = Translated.run

    def watched(self: Translated, arrays: Any) -> Any:
        results, held = run(self, arrays)
        pointers.extend([arrays[0].unsafe_buffer_pointer(), results[0].unsafe_buffer_pointer()])
        return results, held

    Translated.run = watched
    try:
        result = executable.forward(network.parameters(), {"x": fed}).of(root)
    finally:
        Translated.run = run
    assert pointers == [address_of(fed), address_of(result.numpy())]
    fed[...] = 7.0  # the caller's again
    executable.forward(network.parameters(), {"x": fed})
    assert result.tolist() == [[2.0] * 64] * 64


def test_feeds_and_results_are_not_copied(elsewhere: Elsewhere) -> None:
    elsewhere(check_that_results_are_the_memory_of_xla)


def check_that_what_is_carried_stays_where_it_is() -> None:
    network, (weights, after) = Tape.record(lambda tape: [x := tape.parameter(np.ones((64, 64))), x * 2.0])
    executable = xla.compile(network.entry([]).carry({weights: after}).lower())
    assert "{tf.aliasing_output = 0 : i32}" in executable.text
    moves, run, state = [], Translated.run, network.state()
    before = state.of(weights)

    def watched(self: Translated, arrays: Any) -> Any:
        start = arrays[0].unsafe_buffer_pointer()
        results, held = run(self, arrays)
        moves.append((start, held[0].unsafe_buffer_pointer()))
        return results, held

    Translated.run = watched
    try:
        executable.advance(state, steps=4)
    finally:
        Translated.run = run
    assert len({start for start, _ in moves[1:]} | {end for _, end in moves}) == 1
    assert moves[0][0] != moves[0][1]  # the caller's own memory is not written to
    assert before.tolist() == [[1.0] * 64] * 64
    assert state.of(weights).tolist() == [[16.0] * 64] * 64


def test_what_is_carried_stays_where_it_is(elsewhere: Elsewhere) -> None:
    """Donation: from the second step on, the next weights take the memory of the weights."""
    elsewhere(check_that_what_is_carried_stays_where_it_is)


# what goes wrong
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


def check_that_threads_share_it() -> None:
    network, loss, _, carry, plan = recorded()
    executable, expected = xla.compile(plan), plan.forward(network.parameters(), feeds()).of(loss)
    failures: list[str] = []

    def work() -> None:
        try:
            state = network.state()
            for _ in range(20):
                close(executable.forward(network.parameters(), feeds()).of(loss), expected)
            executable.advance(state, feeds(slice(0, 5)), steps=5)
        except BaseException as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_threads_share_it(elsewhere: Elsewhere) -> None:
    elsewhere(check_that_threads_share_it)
