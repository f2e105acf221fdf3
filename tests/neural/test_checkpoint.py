"""Snapshots of tables and what fits when they are restored: all of it, or one error that lists all that does not."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topos import (
    CheckpointError,
    KinshipError,
    Linear,
    Module,
    Network,
    Parameters,
    State,
    Tape,
    Tensor,
    bf16,
    checkpoint,
    f64,
    load_tensors,
    named_parameters,
    save_tensors,
)
from topos.testing import assert_same_bits

from .resumed import Trained, train

HERE = Path(__file__).parent
W = np.arange(12, dtype=np.float32).reshape(4, 3)
B = np.array([1, 2, 3, 4], np.float32)


def model() -> tuple[Network, Any]:
    return Tape.record(
        lambda tape: {"w": tape.parameter(np.zeros((4, 3)), name="w"), "b": tape.parameter([0] * 4, name="b")}
    )


def raised(call: Callable[[], Any]) -> str:
    with pytest.raises(CheckpointError) as caught:
        call()
    return str(caught.value)


# strict


FILES: dict[str, tuple[dict[str, np.ndarray], list[str]]] = {
    "b missing": ({"w": W}, ["restore: 1 tensor does not fit", "  missing     b  [4] f32"]),
    "c extra": ({"w": W, "b": B, "c": B}, ["restore: 1 tensor does not fit", "  extra       c  [4] f32"]),
    "one row": (
        {"w": W[:1], "b": B},
        ["restore: 1 tensor does not fit", "  mismatched  w  wants [4, 3] f32, got [1, 3] f32"],
    ),
    "turned": (
        {"w": W.T, "b": B},
        ["restore: 1 tensor does not fit", "  mismatched  w  wants [4, 3] f32, got [3, 4] f32"],
    ),
    "another axis": (
        {"w": W[..., None], "b": B},
        ["restore: 1 tensor does not fit", "  mismatched  w  wants [4, 3] f32, got [4, 3, 1] f32"],
    ),
    "f64": (
        {"w": W.astype(np.float64), "b": B},
        [
            "restore: 1 tensor does not fit",
            "  mismatched  w  wants [4, 3] f32, got [4, 3] f64; convert=True rounds it",
        ],
    ),
    "a prefix": (
        {"m.w": W, "m.b": B},
        [
            "restore: 4 tensors do not fit",
            "  missing     w    [4, 3] f32",
            "  missing     b    [4] f32",
            "  extra       m.b  [4] f32",
            "  extra       m.w  [4, 3] f32",
        ],
    ),
    "everything": (
        {"w": W[0], "c": B, "ids": np.array([2**40])},
        [
            "restore: 4 tensors do not fit",
            "  missing     b    [4] f32",
            "  extra       c    [4] f32",
            "  extra       ids  [1] i64",
            "  mismatched  w    wants [4, 3] f32, got [3] f32",
        ],
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_one_error_lists_all_that_does_not_fit(name: str, tmp_path: Path) -> None:
    tensors, lines = FILES[name]
    network, names = model()
    save_tensors(tmp_path / "x", tensors)
    for table in (network.parameters(), network.state()):
        before = [tensor.tolist() for tensor in table.payloads()]
        saved = load_tensors(tmp_path / "x")
        message = raised(lambda table=table, saved=saved: checkpoint.named_restore(table, names, saved))
        assert sorted(message.splitlines()) == sorted([f"{tmp_path / 'x'}: {lines[0]}", *lines[1:]])
        assert [tensor.tolist() for tensor in table.payloads()] == before


def test_what_fits_answers_a_table_and_leaves_the_old_one(tmp_path: Path) -> None:
    network, names = model()
    parameters = network.parameters()
    save_tensors(tmp_path / "x", {"b": B, "w": W})
    restored = checkpoint.named_restore(parameters, names, load_tensors(tmp_path / "x"))
    assert restored[1:] == ([], [], [])
    assert_same_bits(restored.table, [Tensor(W), Tensor(B)])
    assert_same_bits(parameters, network.parameters())
    assert isinstance(checkpoint.named_restore(network.state(), names, {"w": W, "b": B}).table, State)


def test_without_strict_three_lists_are_answered_and_mismatches_still_refused() -> None:
    network, names = model()
    parameters = network.parameters()
    restored = checkpoint.named_restore(parameters, names, {"w": W, "c": B}, strict=False)
    assert restored[1:] == (["b"], ["c"], [])
    assert_same_bits(restored.table, [Tensor(W), Tensor([0] * 4)])
    saved = {"w": W[:1], "c": B}
    assert raised(lambda: checkpoint.named_restore(parameters, names, saved, strict=False)) == (
        "restore: 1 tensor does not fit\n  mismatched  w  wants [4, 3] f32, got [1, 3] f32"
    )
    skipped = checkpoint.named_restore(parameters, names, saved, strict=False, skip=["w"])
    assert skipped[1:] == (["b"], ["c"], ["w"])
    assert_same_bits(skipped.table, parameters)
    strictly = checkpoint.named_restore(parameters, names, {"w": W[:1], "b": B}, skip=["w"])
    assert strictly[1:] == ([], [], ["w"])
    assert_same_bits(strictly.table, [Tensor(np.zeros((4, 3), np.float32)), Tensor(B)])


def test_another_element_is_rounded_on_request_alone() -> None:
    network, names = Tape.record(lambda tape: {"w": tape.parameter([0, 0], name="w", element=bf16)})
    parameters = network.parameters()
    saved = {"w": np.array([1 / 3, 1e40])}
    assert raised(lambda: checkpoint.named_restore(parameters, names, saved, strict=False)) == (
        "restore: 1 tensor does not fit\n  mismatched  w  wants [2] bf16, got [2] f64; convert=True rounds it"
    )
    restored = checkpoint.named_restore(parameters, names, saved, convert=True).table
    assert_same_bits(restored, [Tensor(saved["w"]).convert(bf16)])
    wide, names = Tape.record(lambda tape: {"w": tape.parameter([0, 0], name="w", element=f64)})
    widened = checkpoint.named_restore(wide.parameters(), names, {"w": np.array([0.1, 0.2], np.float32)}, convert=True)
    assert_same_bits(widened.table, [Tensor(np.array([0.1, 0.2], np.float32)).convert(f64)])


# names


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


# training goes on where it stopped


@pytest.mark.parametrize("form", ["state", "tables"])
def test_training_resumed_is_training_that_was_never_interrupted(form: str, tmp_path: Path) -> None:
    """A step with momentum, Adam's moments and powers, running statistics, as one State; and the loop over tables."""
    whole = train(form, tmp_path / "whole", stop=12)
    train(form, tmp_path / "x", stop=5)
    resumed = train(form, tmp_path / "x", stop=12)
    assert resumed.started == 5
    assert_same_bits(resumed.losses, whole.losses[5:])
    assert_same_bits(resumed.tables, whole.tables)


CHILD = "from pathlib import Path; from resumed import train; train({!r}, Path({!r}), stop=100_000)"


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kills a process")
@pytest.mark.parametrize("form", ["state", "tables"])
def test_training_that_is_killed_at_any_moment_goes_on_to_the_same_bits(form: str, tmp_path: Path) -> None:
    """The child saves after every step; wherever it is killed, the file is whole, and leads to the same bits."""
    random = np.random.Generator(np.random.PCG64(7))
    path = tmp_path / "x"
    for _ in range(5):
        before = step_of(path)
        child = subprocess.Popen([sys.executable, "-c", CHILD.format(form, str(path))], cwd=HERE)
        while step_of(path) == before and child.poll() is None:
            time.sleep(0.005)
        time.sleep(float(random.uniform(0, 0.05)))
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert step_of(path) > before
    stop = step_of(path) + 3
    resumed: Trained = train(form, path, stop=stop)
    whole = train(form, tmp_path / "whole", stop=stop)
    assert_same_bits(resumed.tables, whole.tables)
    assert_same_bits(resumed.losses, whole.losses[-3:])


def step_of(path: Path) -> int:
    return int(load_tensors(path).metadata["step"]) if path.exists() else 0


def test_two_tables_whose_labels_and_names_make_one_path_are_refused() -> None:
    network, (first, second) = Tape.record(lambda tape: (tape.parameter([1.0]), tape.parameter([2.0])))
    table = network.parameters()
    with pytest.raises(CheckpointError) as caught:
        checkpoint.named_snapshot({"a": table, "a.b": table}, {"b.c": first, "c": second})
    assert str(caught.value) == "names: 'a.b.c' stands for %0 of table 'a' and for %1 of table 'a.b'"


def test_skip_is_a_name_and_not_a_text_that_holds_it() -> None:
    network, _ = Tape.record(lambda tape: tape.parameter([1.0, 2.0], name="out.weight"))
    table, saved = network.parameters(), {"out.weight": np.zeros(3, np.float32)}
    assert checkpoint.named_restore(table, network, saved, skip="out.weight").mismatched == ["out.weight"]
    with pytest.raises(CheckpointError, match="mismatched  out.weight"):
        checkpoint.named_restore(table, network, saved, skip="out.weight.moment")


def test_what_is_no_table_and_what_is_not_saved_by_name() -> None:
    network, _ = Tape.record(lambda tape: tape.parameter([1.0, 2.0]))
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: checkpoint.snapshot(None), "checkpoint: wants a table, or tables by label, got NoneType"),
        (lambda: checkpoint.snapshot({"a": 3}), "checkpoint: wants a table, or tables by label, got int"),
        (lambda: checkpoint.restore(network.parameters(), [1]), "restore: wants tensors by name, got list"),
        (
            lambda: checkpoint.named_snapshot(network.parameters(), 3),
            "names: wants a module, a network or symbols by name, got int",
        ),
    ]
    for call, message in wrong:
        with pytest.raises(CheckpointError) as caught:
            call()
        assert str(caught.value) == message
