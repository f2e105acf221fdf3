"""Snapshots of tables and what fits when they are restored: all of it, or one error that lists all that does not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topos import (
    CheckpointError,
    State,
    Tape,
    Tensor,
    bf16,
    checkpoint,
    f64,
    load_tensors,
    save_tensors,
)
from topos.testing import assert_same_bits

from .checkpointed import B, W, model, raised

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


# what is refused
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
