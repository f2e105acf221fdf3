"""What is not copied on the way in and out, what takes whose memory, and what stays on the devices."""

from collections.abc import Callable
from typing import Any

import numpy as np

from topos import Tape, bf16
from topos.emission import xla
from topos.emission.xla import client
from topos.emission.xla.translated import Translated
from topos.tensor.memory import address_of, aligned

from .model import close, feeds, recorded

Elsewhere = Callable[..., None]


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


def check_that_a_table_is_put_there_once() -> None:
    network, loss, _, carry, plan = recorded()
    executable, parameters, put, rows = xla.compile(plan), network.parameters(), Translated.put, []

    def watched(self: Translated, row: int, payload: Any) -> Any:
        rows.append(row)
        return put(self, row, payload)

    Translated.put = watched
    try:
        for expected in ([0, 1, 3, 4], [3, 4]):
            executable.forward(parameters, feeds())
            assert rows == expected
            rows.clear()
        stepped = parameters.step(parameters.scale(0.5), lambda weight, slope: weight - slope)
        changed = executable.forward(stepped, feeds()).of(loss)
        assert rows == [0, 1, 3, 4]
    finally:
        Translated.put = put
    close(changed, plan.forward(stepped, feeds()).of(loss))


def test_a_table_is_put_there_once(elsewhere: Elsewhere) -> None:
    """As long as its tensors are the same, and until another is run over."""
    elsewhere(check_that_a_table_is_put_there_once)
