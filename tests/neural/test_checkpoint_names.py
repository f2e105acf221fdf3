"""Names of what a snapshot holds: from modules, networks, mappings and pairs; tied, absent and renamed entries."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topos import (
    KinshipError,
    Linear,
    Module,
    Network,
    Parameters,
    Tape,
    Tensor,
    checkpoint,
    load_tensors,
    named_parameters,
    save_tensors,
)
from topos.testing import assert_same_bits

from .checkpointed import B, W, model, raised


class Net(Module):
    def __init__(self, tape: Tape) -> None:
        self.layers = [Linear(tape, 2, 3, ones, name="a"), Linear(tape, 3, 2, ones, bias=False)]
        self.head = Linear(tape, 2, 3, ones)
        self.head.weight = self.layers[0].weight
        self.mean = tape.input([0, 0], name="mean")


def ones(shape: Any, element: Any) -> Tensor:
    return Tensor.filled(shape, 1, element)


def net() -> tuple[Network, Net]:
    tape = Tape()
    module = Net(tape)
    return tape.into_network(), module


PATHS = ["layers.0.weight", "layers.0.bias", "layers.1.weight", "head.bias"]


def test_a_module_a_mapping_and_pairs_name_the_same() -> None:
    network, module = net()
    parameters = network.parameters()
    for names in (module, named_parameters(module)):
        assert list(checkpoint.named_snapshot(parameters, names)) == PATHS
    assert list(checkpoint.named_snapshot(network.state(), module)) == [*PATHS, "mean"]
    assert list(checkpoint.named_snapshot(network.state(), module.visit())) == [*PATHS, "mean"]
    with pytest.raises(KinshipError, match="^parameters: %5 is not one of its 5 entries$"):
        checkpoint.named_snapshot(parameters, module.visit())


def test_a_network_names_all_that_its_tables_hold() -> None:
    network, _ = net()
    assert list(checkpoint.named_snapshot(network.parameters(), network)) == ["a.weight", "a.bias", "%2", "%3", "%4"]
    assert list(checkpoint.named_snapshot(network.state(), network)) == ["a.weight", "a.bias", "%2", "%3", "%4", "mean"]


def test_tied_weights_are_saved_once_and_stay_tied() -> None:
    network, module = net()
    parameters = network.parameters()
    saved = checkpoint.named_snapshot(parameters, module)
    assert "head.weight" not in saved
    first = module.layers[0].weight
    new = Tensor(np.arange(6.0, dtype=np.float32).reshape(2, 3))
    del saved["layers.0.weight"]
    by_either = checkpoint.named_restore(parameters, module, saved | {"head.weight": new}).table
    assert_same_bits(by_either.of(first), new)
    assert module.head.weight == first
    both = {"head.weight": new, "layers.0.weight": Tensor(new.numpy().copy())}
    assert_same_bits(checkpoint.named_restore(parameters, module, saved | both).table.of(first), new)
    apart = {"head.weight": new * -1, "layers.0.weight": new}
    assert raised(lambda: checkpoint.named_restore(parameters, module, saved | apart)) == (
        "restore: 1 tensor does not fit\n  mismatched  head.weight  is tied to layers.0.weight, and has other bits"
    )
    assert raised(lambda: checkpoint.named_restore(parameters, module, saved)) == (
        "restore: 1 tensor does not fit\n  missing     layers.0.weight or head.weight  [2, 3] f32"
    )


def test_one_name_for_two_entries_is_refused() -> None:
    network, module = net()
    pairs = [("w", symbol) for symbol in named_parameters(module).values()]
    message = "names: 'w' stands for %0 and for %1"
    assert raised(lambda: checkpoint.named_snapshot(network.parameters(), pairs)) == message


def test_positions_name_a_table_whose_names_changed(tmp_path: Path) -> None:
    network, names = model()
    saved = checkpoint.snapshot(network.parameters().with_payloads({names["w"]: W}))
    assert list(saved) == ["0", "1"]
    save_tensors(tmp_path / "x", saved)
    other, symbols = Tape.record(lambda tape: [tape.parameter(np.ones((4, 3))), tape.parameter([5] * 4)])
    table = checkpoint.restore(other.parameters(), load_tensors(tmp_path / "x")).table
    assert_same_bits(table.of(symbols[0]), Tensor(W))
    assert raised(lambda: checkpoint.restore(other.parameters(), {"0": W})) == (
        "restore: 1 tensor does not fit\n  missing     1  [4] f32"
    )


def test_tables_by_label_are_one_snapshot() -> None:
    network, names = model()
    weights = network.parameters().with_payloads({names["w"]: W})
    tables = {"weights": weights, "first": weights.scale(0.5), "second": weights.scale(0.25)}
    saved = checkpoint.named_snapshot(tables, iter(names.items()))
    assert list(saved) == ["weights.w", "weights.b", "first.w", "first.b", "second.w", "second.b"]
    fresh = dict.fromkeys(tables, network.parameters())
    restored = checkpoint.named_restore(fresh, names, saved).table
    for name, table in tables.items():
        assert_same_bits(restored[name], table)
    assert list(checkpoint.snapshot(tables))[:3] == ["weights.0", "weights.1", "first.0"]
    assert_same_bits(checkpoint.restore(fresh, checkpoint.snapshot(tables)).table["second"], tables["second"])


def test_an_absent_entry_is_neither_saved_nor_wanted() -> None:
    network, names = model()
    gradients = Parameters(network.parameters().family, {0: Tensor(W), 1: None})
    saved = checkpoint.named_snapshot(gradients, names)
    assert list(saved) == ["w"]
    assert checkpoint.named_restore(gradients, names, saved).table.payloads()[1] is None


def test_views_and_constants_are_restored_in_bits(tmp_path: Path) -> None:
    network, names = model()
    table = network.parameters().with_payloads({names["w"]: Tensor(np.asfortranarray(W.T)).transpose()})
    save_tensors(tmp_path / "x", checkpoint.named_snapshot(table, names))
    assert_same_bits(checkpoint.named_restore(network.parameters(), names, load_tensors(tmp_path / "x")).table, table)


def test_a_file_of_others_is_renamed_as_any_dict_is(tmp_path: Path) -> None:
    save_tensors(tmp_path / "x", {"transformer.h.0.weight": W.T, "transformer.h.0.bias": B.astype(np.float16)})
    network, names = model()
    theirs = {"transformer.h.0.weight": "w", "transformer.h.0.bias": "b"}
    found = load_tensors(tmp_path / "x")
    saved = {theirs[name]: tensor for name, tensor in found.items()}
    saved["w"] = saved["w"].transpose()
    assert_same_bits(checkpoint.named_restore(network.parameters(), names, saved).table, [Tensor(W), Tensor(B)])
