"""Passes across few long columns, shared out by blocks of terms: forced on short ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topos import bf16, f32, f64
from topos.element import Element

pytest.importorskip("llvmlite")

from topos.backend.native import nest, phases, target
from topos.backend.native.groups import Lowering
from topos.backend.native.writers import write
from topos.engine.liveness import schedule

from .test_rows import MODELS, Model, check, layer_norm, recorded


@pytest.fixture(autouse=True)
def _little_is_worth_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "WORK", 64)
    monkeypatch.setattr(nest, "WORK", 64)


def kernels(model: Model, shape: tuple[int, ...], axis: int) -> list[tuple[str, int]]:
    """The kernels of the groups of a model and its gradient: the stem of the name, and the tiles."""
    spec, kept, _ = recorded(model, f32, shape, axis)
    lowering = Lowering(spec, schedule(spec.rows, kept), kept)
    calls: Any = [write(lowering, group, target.host()) for group in lowering.groups]
    return [(kernel.name.split("_")[0], kernel.tiles) for call in calls for kernel in call.kernels]


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_phases_have_the_bits(model: Callable[..., Any], element: Element) -> None:
    for shape, axis in [((1025, 3), 0), ((1024, 33), 0), ((2, 513, 5), 1)]:
        check(model, element, shape, axis)


@pytest.mark.exhaustive
@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("model", MODELS)
def test_phases_have_the_bits_on_other_processors(model: Callable[..., Any], cpu: str) -> None:
    for extent in (513, 1024, 1536, 2047):
        check(model, f32, (extent, 35), 0, cpu)


def test_blocks_are_what_is_shared_out() -> None:
    found = kernels(layer_norm, (2048, 5), 0)
    assert ("phase", 4) in found


def test_many_columns_are_shared_out_themselves() -> None:
    assert "phase" not in {name for name, _ in kernels(layer_norm, (1025, 2000), 0)}


def test_what_is_once_per_column_is_written_last() -> None:
    names = [name for name, _ in kernels(layer_norm, (1025, 5), 0)]
    assert names.index("columns") > names.index("phase")
