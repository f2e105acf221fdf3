"""Modules hold symbols: they are walked, tied, copied, pickled and passed through, and outlive their tape."""

import copy
import dataclasses
import pickle
from collections import deque
from typing import Any

import numpy as np
import pytest

from topos import (
    KinshipError,
    Linear,
    Module,
    Sequential,
    SettingError,
    ShapeError,
    Tape,
    Value,
    bf16,
    detach,
    f32,
    named_parameters,
    parameters,
)


def drawn(shape, element):
    return np.random.default_rng(0).normal(size=tuple(shape))


class Tied(Module):
    """Two layers over one weight, and a list and a dict of others."""

    def __init__(self, tape):
        self.first = Linear(tape, 3, 3, drawn)
        self.second = Linear(tape, 3, 3, drawn, bias=False)
        self.second.weight = self.first.weight
        self.more = [tape.parameter(1.0), {"scale": tape.parameter(2.0)}]
        self.rate = tape.input(0.5)

    def express(self, x):
        return self.second(self.first(x)) * self.more[1]["scale"]


def test_a_tied_symbol_is_listed_once_and_its_gradient_is_the_sum() -> None:
    tape = Tape()
    model = Tied(tape)
    assert list(named_parameters(model)) == ["first.weight", "first.bias", "more.0", "more.1.scale"]
    assert parameters([model, model.first]) == list(named_parameters(model).values())
    assert [path for path, _ in model.visit()][2] == "second.weight"
    other = [tape.parameter(drawn([3, 3], f32)) for _ in range(2)]
    x = tape.input(drawn([2, 3], f32))
    scale = tape.resolve(model.more[1]["scale"])
    untied = ((x @ other[0]) @ other[1] * scale.broadcast([2, 3])).sum()
    tied = (model.second(x @ tape.resolve(model.first.weight)) * scale.broadcast([2, 3])).sum()
    gradients = detach(tape.differentiate(tied, model.first.weight).roots(), tape.differentiate(untied, other).roots())
    network = tape.into_network()
    (_, whole), (_, *parts) = (network.entry(list(g)).interpret(network.parameters()).of(g) for g in gradients)
    np.testing.assert_allclose(whole.numpy(), sum(part.numpy() for part in parts), rtol=1e-6)


def test_modules_outlive_their_tape_and_are_copied_and_pickled() -> None:
    tape = Tape()
    model = Sequential(Tied(tape).first, Value.tanh)
    x = tape.input(shape=[2, 3])
    expected, names = model(x).symbol(), detach({"model": [model], "x": x})
    assert names["model"][0] is model
    network = tape.into_network()
    copied, restored = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    assert parameters(copied) == parameters(restored) == parameters(model)
    tape = network.into_tape()
    texts = []
    for one in (model, copied, restored):
        start = len(tape)
        one(tape.resolve(names["x"]))
        texts.append([(node.opcode.name, node.shape) for node in tape.nodes()[start:]])
    assert texts[0] == texts[1] == texts[2]
    assert expected.index < len(tape)


def test_a_symbol_is_resolved_beside_a_value() -> None:
    tape = Tape(bf16)
    layer = Linear(tape, 2, 2, drawn, element=f32)
    assert layer.resolve(layer.weight, tape.input(shape=[1, 2])).element is bf16
    assert layer.resolve(layer.weight, tape.input(shape=[1, 2], element=f32)).element is f32
    assert layer.resolve(layer.weight, tape.selection([1], 2)).element is f32


def test_5000_nested_modules() -> None:
    tape = Tape()
    x = tape.input(shape=[1, 3])
    model = layer = Linear(tape, 3, 3, drawn)
    for _ in range(5000):
        model = Sequential(model, Value.relu)
    y, carry = model.train(x)
    assert (len(tape), carry) == (3 + 3 + 2 * 5000, {})
    assert model.infer(x).shape == model(x).shape == y.shape
    assert parameters(model) == parameters(layer)
    assert list(named_parameters(model)) == ["layers.0." * 5000 + "weight", "layers.0." * 5000 + "bias"]


def test_what_cannot_be_walked() -> None:
    tape = Tape()
    model = Tied(tape)
    model.more.append(tape.parameter(3.0))
    message = "module: more.2 is a live value, put there after the assignment; assign the whole list or dict"
    with pytest.raises(KinshipError) as caught:
        parameters(model)
    assert str(caught.value) == message
    model.more = [model]
    with pytest.raises(KinshipError, match=r"module: more\.0 holds itself"):
        parameters(model)


def test_messages_name_the_path() -> None:
    tape = Tape()
    with tape.scope("h0"):
        layer = Linear(tape, 3, 3, drawn, name="qkv")
    with pytest.raises(ShapeError) as caught:
        layer(tape.input(shape=[2, 4]))
    assert str(caught.value).splitlines()[0] == "h0.qkv: Linear wants a last axis of 3, got [2, 4]"
    assert [node.symbol for node in tape.nodes()[:2]] == [layer.weight, layer.bias]
    assert tape.into_network().symbol("h0.qkv.weight") == layer.weight


def test_a_module_without_a_form_of_its_own() -> None:
    with pytest.raises(NotImplementedError, match=r"Module\.express"):
        Module()(1)


def test_a_number_is_no_initialiser() -> None:
    with pytest.raises(SettingError) as caught:
        Linear(Tape(), 2, 2, 0.1)
    assert str(caught.value) == "Linear wants an initialiser of its weight, such as init.kaiming(seed=1), got 0.1"


def test_training_and_after_are_the_same_unless_a_module_says_otherwise() -> None:
    tape = Tape()
    layer = Linear(tape, 3, 3, drawn)
    x = tape.input(shape=[2, 3])
    y, carry = layer.train(x)
    assert carry == {} and y.shape == layer.infer(x).shape == layer(x).shape


def test_a_symbol_from_elsewhere_is_a_parameter_unless_somebody_knows_better() -> None:
    class Head(Module):
        def __init__(self, table):
            self.table = table

    tape = Tape()
    table, fed = tape.parameter(1.0), tape.input(1.0)
    assert parameters(Head(table.symbol())) == parameters(Head(table)) == [table.symbol()]
    assert parameters([Head(fed.symbol()), {"x": Head(fed)}]) == parameters(Head([table * 2, fed])) == []


@dataclasses.dataclass
class Pair:
    weight: Any
    layer: Any = None


def test_dataclasses_are_walked_and_hold_symbols() -> None:
    tape = Tape()
    module = Module()
    module.pair = Pair(tape.parameter(1.0), Linear(tape, 2, 2, drawn))
    module.fed = [Pair(tape.input(1.0))]
    assert list(named_parameters(module)) == ["pair.weight", "pair.layer.weight", "pair.layer.bias"]
    assert module.pair.weight == parameters(module)[0]


def test_a_list_that_is_nested_5000_deep_and_one_that_holds_itself() -> None:
    tape = Tape()
    module = Module()
    nested: Any = [tape.parameter(1.0)]
    for _ in range(5000):
        nested = [nested]
    module.nested = nested
    assert len(parameters(module)) == 1
    endless: list[Any] = [tape.parameter(1.0)]
    endless.append(endless)
    with pytest.raises(KinshipError, match="module: 1 holds itself"):
        module.endless = endless


def test_an_attribute_of_any_name_is_the_users() -> None:
    tape = Tape()
    module = Module()
    module._data = 3
    module.scale = tape.parameter(1.0)
    assert (module._data, len(parameters(module))) == (3, 1)


def test_two_parameters_of_one_path_are_refused_and_none_is_lost() -> None:
    tape = Tape()
    module = Module()
    module.scales = {1: tape.parameter(1.0), "1": tape.parameter(2.0)}
    assert len(parameters(module)) == 2
    with pytest.raises(KinshipError, match="module: two parameters have the path scales.1, %0 and %1"):
        named_parameters(module)


def test_what_is_not_walked_takes_no_parameter_silently() -> None:
    tape = Tape()
    module = Module()
    module.names = {"a", "b"}
    for kind, parts in (("set", {tape.parameter(1.0)}), ("deque", deque([Linear(tape, 2, 2, drawn)]))):
        with pytest.raises(KinshipError, match=f"module: a {kind} is not walked, put its parts into a list"):
            module.parts = [parts]
