import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos import (
    ElementError,
    Field,
    KinshipError,
    Network,
    Parameters,
    ShapeError,
    Symbol,
    Tape,
    Tensor,
    bf16,
    f32,
    f64,
)
from topos.graph import Table
from topos.testing import assert_same_bits


def message(kind: type[Exception], call: Callable[[], Any]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def recorded() -> tuple[Network, list[Symbol]]:
    tape = Tape()
    tape.leaf(9.0)
    values = [tape.parameter([1.0, 2.0]), tape.parameter(3.0), tape.parameter([[4.0]], element=f64)]
    tape.input(1.0)
    symbols = [value.symbol() for value in values]
    return tape.into_network(), symbols


def lists(table: Table) -> list[Any]:
    return [None if tensor is None else tensor.tolist() for tensor in table.payloads()]


def with_absent(network: Network, *absent: int) -> Parameters:
    """The table of initials with some slots absent."""
    return without(network.parameters(), *absent)


def without(parameters: Parameters, *absent: int) -> Parameters:
    rows = parameters.rows()
    return parameters._with({row: None if at in absent else parameters.get(row) for at, row in enumerate(rows)})


def test_the_initials_in_recording_order() -> None:
    network, symbols = recorded()
    parameters = network.parameters()
    assert isinstance(parameters, Parameters)
    assert lists(parameters) == [[1.0, 2.0], 3.0, [[4.0]]]
    assert parameters.symbols() == symbols
    assert [(symbol, tensor.tolist()) for symbol, tensor in parameters] == list(
        zip(symbols, lists(parameters), strict=True)
    )
    assert len(parameters) == 3
    assert parameters.of(symbols[2]).element is f64
    assert repr(parameters) == "Parameters(%1: [2], %2: [], %3: [1, 1])"


def test_order_is_recording_order_whatever_the_caller_filled_first() -> None:
    network, symbols = recorded()
    parameters = network.parameters()
    backwards = parameters._with({row: parameters.get(row) for row in reversed(parameters.rows())})
    assert backwards.symbols() == symbols
    assert lists(backwards) == lists(parameters)


def test_what_a_table_does_not_cover() -> None:
    network, symbols = recorded()
    parameters = network.parameters()
    assert message(KinshipError, lambda: parameters.of(network.nodes()[0].symbol)) == (
        "parameters: %0 is not one of its 3 entries"
    )
    assert message(KinshipError, lambda: parameters.of(recorded()[1][0])) == (
        "parameters: symbol %1 belongs to another spec"
    )
    assert message(KinshipError, lambda: parameters.of("x")) == (  # type: ignore[arg-type]
        "parameters: wants a symbol, got str; a sealed network finds a name's: network.symbol('x')"
    )
    absent = with_absent(network, 1)
    assert message(KinshipError, lambda: absent.of(symbols[1])) == "parameters: the entry of %2 is absent"
    assert repr(absent) == "Parameters(%1: [2], %2: absent, %3: [1, 1])"


def test_step_answers_a_new_table_and_leaves_absent_slots() -> None:
    network, symbols = recorded()
    parameters = network.parameters()
    stepped = parameters.step(with_absent(network, 1), lambda weight, gradient: weight - gradient * 0.5)
    assert lists(stepped) == [[0.5, 1.0], 3.0, [[2.0]]]
    assert stepped.of(symbols[1]) is parameters.of(symbols[1])
    assert lists(parameters) == [[1.0, 2.0], 3.0, [[4.0]]]
    told: list[Symbol] = []

    def rule(symbol: Symbol, weight: Tensor, gradient: Tensor) -> Tensor:
        told.append(symbol)
        return weight * 2.0 if symbol == symbols[2] else weight

    assert lists(parameters.step_each(parameters, rule)) == [[1.0, 2.0], 3.0, [[8.0]]]
    assert told == symbols
    assert lists(with_absent(network, 0).step(parameters, lambda weight, gradient: gradient - weight)) == [
        None,
        0.0,
        [[0.0]],
    ]


def test_a_step_keeps_shape_and_element() -> None:
    network, symbols = recorded()
    parameters = network.parameters()
    assert message(ShapeError, lambda: parameters.step(parameters, lambda w, g: w.sum())) == (
        "step: %1 has shape [2], got []"
    )
    assert message(ElementError, lambda: parameters.step(parameters, lambda w, g: w.to(bf16))).startswith(
        "payload: wants element f32, got a tensor of bf16"
    )
    doubled = parameters.step(parameters, lambda w, g: w.numpy() * 2)  # type: ignore[arg-type,return-value]
    assert lists(doubled) == [[2.0, 4.0], 6.0, [[8.0]]]
    assert [doubled.of(symbol).element for symbol in symbols] == [f32, f32, f64]


def test_tables_of_other_specs_do_not_mix() -> None:
    parameters, other = recorded()[0].parameters(), recorded()[0].parameters()
    text = "parameters: the other table belongs to another spec"
    for call in (
        lambda: parameters + other,
        lambda: parameters.zip(other, lambda a, b: a),
        lambda: parameters.step(other, lambda a, b: a),
    ):
        assert message(KinshipError, call) == text
    assert message(KinshipError, lambda: parameters.carried(recorded()[0])) == text
    assert message(KinshipError, lambda: parameters.zip([], lambda a, b: a)) == (  # type: ignore[arg-type]
        "parameters: wants another table, got list"
    )
    with pytest.raises(TypeError):
        parameters + 1


def test_map_zip_scale_and_plus() -> None:
    network, _ = recorded()
    parameters, absent = network.parameters(), with_absent(network, 1)
    assert lists(parameters.map(lambda tensor: tensor * tensor)) == [[1.0, 4.0], 9.0, [[16.0]]]
    assert lists(absent.map(lambda tensor: tensor.sum())) == [3.0, None, 4.0]
    assert lists(parameters.zip(absent, lambda a, b: a - b)) == [[0.0, 0.0], None, [[0.0]]]
    assert lists(absent.zip(parameters, lambda a, b: a + b)) == [[2.0, 4.0], None, [[8.0]]]
    assert lists(parameters + absent) == [[2.0, 4.0], 3.0, [[8.0]]]
    assert lists(absent + parameters) == [[2.0, 4.0], 3.0, [[8.0]]]
    assert lists(absent + absent) == [[2.0, 4.0], None, [[8.0]]]
    scaled = parameters.scale(0.1)
    assert_same_bits(scaled.payloads()[0], np.array([1, 2], np.float32) * np.float32(0.1))
    assert_same_bits(scaled.payloads()[2], np.array([[4.0]]) * 0.1)  # in its own element
    assert type(scaled) is type(parameters + parameters) is Parameters


def test_a_sum_covers_what_either_covers() -> None:
    tape = Tape()
    x, y = tape.parameter([1.0, 2.0]), tape.parameter([3.0, 4.0])
    first, second = (x * x).sum(), (y * y).sum()
    symbols = [value.symbol() for value in (x, y, first, second)]
    network = tape.into_network()
    run = network.forward(network.parameters())
    both = run.backward(symbols[2]) + run.backward(symbols[3])
    assert isinstance(both, Field)
    assert both.rows() == list(range(6))
    assert both.of(symbols[0]).tolist() == [2.0, 4.0]
    assert both.of(symbols[1]).tolist() == [6.0, 8.0]
    short = network.parameters()
    tape = network.into_tape()
    late = tape.parameter(5.0).symbol()
    longer = tape.into_network().parameters()
    for total in (short + longer, longer + short):
        assert lists(total) == [[2.0, 4.0], [6.0, 8.0], 5.0]
        assert total.of(late).tolist() == 5.0


def test_gradients_are_a_field_over_every_node_in_recording_order() -> None:
    tape = Tape()
    x, unreached = tape.parameter([1.0, 2.0]), tape.parameter(np.ones((2, 0)), element=f64)
    loss = (x * x).sum()
    later = loss.tanh()
    symbols = [value.symbol() for value in (x, unreached, loss, later)]
    network = tape.into_network()
    run = network.forward(network.parameters())
    gradients = run.backward(symbols[2])
    assert gradients.target == symbols[2]
    assert gradients.rows() == [0, 1, 2, 3, 4]
    assert [tensor.tolist() for tensor in gradients.payloads() if tensor is not None] == [
        [2.0, 4.0],
        [[], []],
        [1.0, 1.0],
        1.0,
        0.0,
    ]
    assert gradients.of(symbols[1]).element is f64
    projected = gradients.parameters(network.parameters())
    assert isinstance(projected, Parameters)
    assert lists(projected) == [[2.0, 4.0], [[], []]]
    doubled = gradients.scale(2.0)
    assert doubled.of(symbols[0]).tolist() == [4.0, 8.0]
    assert_same_bits(pickle.loads(pickle.dumps(gradients)).of(symbols[0]), gradients.of(symbols[0]))
    field = run.field()
    assert field.rows() == [0, 1, 2, 3, 4]
    assert field.of(symbols[2]).tolist() == 5.0
    assert lists(field.zip(gradients, lambda value, gradient: value * gradient))[0] == [2.0, 8.0]


def test_gradients_of_a_smaller_closure_name_what_was_not_evaluated() -> None:
    tape = Tape()
    x, other = tape.parameter(1.0), tape.parameter(2.0)
    loss = x * x
    unseen = other * other
    symbols = [value.symbol() for value in (x, other, loss, unseen)]
    network = tape.into_network()
    run = network.entry(symbols[2]).backward().lower().forward(network.parameters())
    gradients = run.backward(symbols[2])
    assert message(KinshipError, lambda: gradients.of(symbols[1])) == "gradients: %1 was not evaluated by this run"
    assert lists(gradients.parameters(network.parameters())) == [2.0, None]
    assert lists(network.parameters().step(gradients, lambda w, g: w - g)) == [-1.0, 2.0]


def test_with_payloads() -> None:
    network, symbols = recorded()
    parameters = network.parameters()
    replaced = parameters.with_payloads({symbols[0]: [5, 0.1], symbols[2]: [[1 / 3]]})
    assert_same_bits(replaced.of(symbols[0]), np.array([5, 0.1], np.float32))
    assert lists(replaced)[2] == [[1 / 3]]
    assert replaced.of(symbols[1]) is parameters.of(symbols[1])
    assert lists(parameters)[0] == [1.0, 2.0]
    array = np.array([1.0, 2.0], np.float32)
    held = parameters.with_payloads({symbols[0]: array})
    array[:] = 9
    assert lists(held)[0] == [1.0, 2.0]
    assert message(ShapeError, lambda: parameters.with_payloads({symbols[0]: [1.0]})) == (
        "parameters: %1 has shape [2], got [1]"
    )
    assert message(ElementError, lambda: parameters.with_payloads({symbols[0]: Tensor.selection([0, 1], 2)})) == (
        "parameters: %1 wants a dense tensor, got a selection"
    )
    message(ElementError, lambda: parameters.with_payloads({symbols[0]: Tensor([1.0, 2.0], f64)}))
    message(ElementError, lambda: parameters.with_payloads({symbols[1]: 2**24 + 1}))
    message(KinshipError, lambda: parameters.with_payloads({network.nodes()[0].symbol: 1.0}))
    message(KinshipError, lambda: parameters.with_payloads({recorded()[1][0]: 1.0}))


def test_carried_to_a_network_that_grew() -> None:
    network, symbols = recorded()
    parameters = network.parameters().map(lambda tensor: tensor * 10.0)
    tape = network.into_tape()
    late = tape.parameter([7.0]).symbol()
    grown = tape.into_network()
    carried = parameters.carried(grown)
    assert carried.symbols() == [*symbols, late]
    assert lists(carried) == [[10.0, 20.0], 30.0, [[40.0]], [7.0]]
    assert lists(without(parameters, 1).carried(grown)) == [[10.0, 20.0], None, [[40.0]], [7.0]]


@pytest.mark.parametrize(
    "copying",
    [
        lambda table: table.clone(),
        copy.copy,
        copy.deepcopy,
        *[lambda table, p=p: pickle.loads(pickle.dumps(table, p)) for p in range(2, pickle.HIGHEST_PROTOCOL + 1)],
    ],
)
def test_copies_are_tables_of_the_same_family(copying: Callable[[Parameters], Parameters]) -> None:
    network, symbols = recorded()
    for parameters in (network.parameters(), with_absent(network, 1)):
        copied = copying(parameters)
        assert type(copied) is Parameters
        assert copied is not parameters
        assert copied.symbols() == symbols
        assert_same_bits(copied, parameters)
        assert copied.of(symbols[2]).element is f64
        assert (copied + parameters).symbols() == symbols
    assert network.forward(copying(network.parameters())).of(symbols[1]).tolist() == 3.0
