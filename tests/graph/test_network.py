from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import KinshipError, Network, Symbol, Tape, Tensor, bf16, f32, f64
from topos.testing import assert_same_bits


def build(
    *,
    constant: Any = 2.0,
    initial: Any = (1.0, 2.0),
    default: Any = (3.0, 4.0),
    ids: Any = (0, 1),
    absent: int | None = None,
    vocab: int = 3,
    axis: int = 0,
    fill: float = 0.0,
    element: Any = f32,
    cast: Any = bf16,
    swapped: bool = False,
    operation: str = "tanh",
    extra: bool = False,
    name: str | None = None,
) -> Network:
    tape = Tape(element)
    c = tape.leaf(constant)
    w = tape.parameter(np.array(initial, np.float64).astype(element.dtype), name=name)
    x = tape.input(np.array(default, np.float64).astype(element.dtype))
    tape.selection([2], vocab, absent=absent)
    tape.leaf(Tensor.selection(list(ids), 3))
    getattr(x - w if swapped else w - x, operation)().to(cast)
    c.broadcast([2, 2]).sum_along(axis).pad(0, 1, 4, fill)
    if extra:
        w.sin()
    return tape.into_network()


def test_nodes_node_and_payload() -> None:
    network = build(name="w")
    assert len(network) == len(network.nodes()) == 11
    symbol = network.symbol("w")
    node = network.node(symbol)
    assert (node.symbol, node.opcode.name, node.shape) == (symbol, "Parameter", [2])
    assert_same_bits(network.payload(symbol), np.array([1, 2], np.float32))
    assert network.payload(network.nodes()[0].symbol).tolist() == 2.0
    with pytest.raises(KinshipError) as caught:
        network.payload(network.nodes()[5].symbol)
    assert str(caught.value).startswith("payload: %5 Sub [2] ")
    assert str(caught.value).endswith(" is not a source")
    assert network.describe().endswith("\nnetwork: 11 nodes, 1 parameter, 2 inputs")
    assert repr(network) == "Network(11 nodes, f32)"


def test_the_shortest_network() -> None:
    network = Tape().into_network()
    assert network.describe() == "network: 0 nodes, 0 parameters, 0 inputs"
    assert len(network.parameters()) == 0
    assert len(network.fingerprint) == 64
    run = network.forward(network.parameters())
    assert run.of([]) == []
    assert network.entry([]).lower().describe() == (
        "plan: forward; 0 of 0 nodes evaluated, 0 readable\nlive volume: 0 elements"
    )


CHANGES: dict[str, dict[str, Any]] = {
    "constant": {"constant": 3.0},
    "sign of a zero": {"constant": -0.0},
    "zero": {"constant": 0.0},
    "initial": {"initial": (1.0, 2.5)},
    "initial filled": {"initial": (1.0, 1.0)},
    "initial filled otherwise": {"initial": (2.0, 2.0)},
    "default": {"default": (3.0, 3.0)},
    "ids": {"ids": (1, 0)},
    "absent": {"absent": -1},
    "another absent": {"absent": -100},
    "vocab": {"vocab": 4},
    "axis": {"axis": 1},
    "fill": {"fill": -0.0},
    "another fill": {"fill": 0.1234567},
    "nearly that fill": {"fill": 0.1234568},
    "element": {"element": f64},
    "cast": {"cast": f64},
    "operands": {"swapped": True},
    "operation": {"operation": "sin"},
    "a node more": {"extra": True},
}


def test_fingerprints_tell_every_change_apart() -> None:
    prints = {name: build(**change).fingerprint for name, change in {"as it is": {}, **CHANGES}.items()}
    assert len(set(prints.values())) == len(prints), prints


@pytest.mark.parametrize("change", [{}, *CHANGES.values()], ids=str)
def test_fingerprints_of_equal_recordings_are_equal(change: dict[str, Any]) -> None:
    assert build(**change).fingerprint == build(**change, name="told").fingerprint


def test_a_fingerprint_is_of_the_numbers_not_of_how_they_are_kept() -> None:
    def prints(*payloads: Any) -> set[str]:
        found = set()
        for payload in payloads:
            network, _ = Tape.record(lambda tape, payload=payload: tape.input(payload, shape=None))
            found.add(network.fingerprint)
        return found

    ones = np.ones((2, 3), np.float32)
    assert len(prints(ones, np.asfortranarray(ones), Tensor.filled([2, 3], 1.0), Tensor(1.0).broadcast([2, 3]))) == 1
    counted = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert len(prints(counted, np.asfortranarray(counted), Tensor(counted.T).transpose(), counted.tolist())) == 1
    assert len(prints(np.full(4, np.nan, np.float32), Tensor.filled([4], np.nan))) == 1
    assert len(prints(np.zeros((0, 3)), Tensor.filled([0, 3], 1.0))) == 1
    assert len(prints(counted, counted.reshape(3, 2), ones, np.zeros(0), np.zeros((0, 0)), 0.0)) == 6
    zeros, shaped = (Tape() for _ in range(2))
    zeros.input(np.zeros(5)), shaped.input(shape=[5])
    assert zeros.into_network().fingerprint == shaped.into_network().fingerprint


def test_a_fingerprint_is_the_same_after_reopening() -> None:
    network = build()
    before = network.fingerprint
    tape = network.into_tape()
    again = tape.into_network()
    assert again.fingerprint == before
    tape = again.into_tape()
    tape.leaf(1.0)
    assert tape.into_network().fingerprint != before


@pytest.mark.parametrize(
    "record",
    [
        lambda tape: tape.input(shape=[2]).softmax(0),
        lambda tape: tape.differentiate((tape.parameter([1.0, 2.0]) * 2.0).sum(), []),
    ],
)
def test_a_fingerprint_is_of_this_machine_only_by_its_numbers(record: Callable[[Tape], Any]) -> None:
    assert Tape.record(record)[0].fingerprint == Tape.record(record)[0].fingerprint


def test_what_is_no_name_names_nothing() -> None:
    network, _ = Tape.record(lambda tape: tape.parameter(1.0, name="w"))
    for name in ([], {}, None, 3):
        with pytest.raises(KinshipError, match="symbol: no node is named "):
            network.symbol(name)  # type: ignore[arg-type]
    with pytest.raises(KinshipError, match="is not among the 1 nodes"):
        network.node(Symbol(network.symbol("w").family, -1))
    with pytest.raises(KinshipError, match="parameters: wants a mapping from symbols to payloads, got list"):
        network.parameters().with_payloads([1.0])  # type: ignore[arg-type]
