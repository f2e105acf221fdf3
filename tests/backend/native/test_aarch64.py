"""Kernels cross-compiled for AArch64 and run under an emulator: the bits of the interpreter on x86-64."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

pytest.importorskip("llvmlite")

from topos import Tape, bf16, f32, f64
from topos.backend.native.groups import Lowering
from topos.backend.native.writers import write
from topos.engine.liveness import schedule
from topos.graph import Network
from topos.testing.programs import programs

from ..plans import every_instruction, numbers, recorded, with_lengths
from . import foreign
from .kernel_checks import GUARD, buffer, check_result, operand, values_of, written_out

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def emulated() -> None:
    """Skips where the emulator or the linker is missing."""
    reason = foreign.missing()
    if reason is not None:
        pytest.skip(reason)


class Batch:
    """The kernels of many networks, to be run in one go."""

    def __init__(self) -> None:
        self.jobs: list[foreign.Job] = []
        self.buffers: list[np.ndarray] = []
        self.wanted: list[tuple[Any, int, int, Any]] = []

    def add(self, network: Network, kept: Iterable[int], feeds: Any) -> None:
        """Every kernel of a network, over the interpreter's operands."""
        spec, kept = network.spec, frozenset(kept)
        values = values_of(network, feeds)
        lowering = Lowering(spec, schedule(spec.rows, sorted(kept)), kept)
        spec, values = lowering.spec, {**values, **written_out(lowering, values)}
        read: dict[int, int] = {}
        for group in lowering.groups:
            call = write(lowering, group, foreign.TARGET)
            if call is None:
                continue
            held: dict[int, tuple[int, int]] = {}
            for row in dict.fromkeys(pointer.row for pointer in call.operands):
                if row in group.writes:
                    element = spec.rows[row].element or spec.element
                    memory, _ = buffer(spec.rows[row].shape.volume * element.dtype.itemsize, lined=True)
                    held[row] = (self._kept(memory), GUARD)
                    self.wanted.append((spec, row, held[row][0], values[row]))
                else:
                    if row not in read:
                        read[row] = self._kept(operand(lowering, row, values))
                    held[row] = (read[row], 0)
            places = [(held[p.row][0], held[p.row][1] + p.offset_bytes) for p in call.operands]
            self.jobs.append(foreign.Job(call.kernels, places, call.scratch_bytes))

    def _kept(self, array: np.ndarray) -> int:
        self.buffers.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        return len(self.buffers) - 1

    def check(self, folder: Path) -> None:
        """All of them run, and each result compared."""
        assert self.wanted
        answers = foreign.run(folder, self.jobs, self.buffers)
        for spec, row, at, value in self.wanted:
            try:
                check_result(spec, row, answers[at], value)
            except AssertionError as difference:
                raise AssertionError(f"%{row} {spec.rows[row].opcode} {spec.rows[row].shape}\n{difference}") from None


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
def test_every_instruction(element: Any, tmp_path: Path) -> None:
    """Elementary functions, sums, folds, ids, movement, roundings and products over awkward shapes."""
    batch = Batch()
    for shapes in ([(17,), (70,), (5, 7), (2, 3, 5)], [(), (1,), (0, 3)], [(520,), (2, 1030), (600, 5)]):
        case = recorded(with_lengths(shapes, 29), element)
        batch.add(case.network, [symbol.index for symbol in case.roots], case.feeds)
    batch.check(tmp_path)


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=str)
def test_views_and_special_numbers(element: Any, tmp_path: Path) -> None:
    """A transposed, narrowed and reversed operand, and a few thousand numbers of every kind in each function."""

    def record(tape: Tape) -> Any:
        x, many = tape.input(shape=(23, 9)), tape.input(shape=(4096,))
        results, feeds = every_instruction(tape, x.permute([1, 0]).narrow(1, 2, 19), 31)
        more, others = every_instruction(tape, many, 37)
        return results + more, {
            x: numbers(element, x.shape, 1),
            many: numbers(element, many.shape, 2),
            **feeds,
            **others,
        }

    case = recorded(record, element)
    batch = Batch()
    batch.add(case.network, [symbol.index for symbol in case.roots], case.feeds)
    batch.check(tmp_path)


@pytest.mark.parametrize(
    ("rows", "terms", "columns"), [(1, 700, 33), (5, 600, 9), (64, 64, 64), (40, 1100, 70), (3, 1, 3), (130, 30, 1)]
)
def test_products(rows: int, terms: int, columns: int, tmp_path: Path) -> None:
    batch = Batch()
    for element in (f32, f64, bf16):

        def record(tape: Tape, element: Any = element) -> Any:
            left, right = tape.input(shape=(2, rows, terms)), tape.input(shape=(2, columns, terms))
            fed = {value: numbers(element, value.shape, at) for at, value in enumerate((left, right))}
            return [left @ right.swap(1, 2)], fed

        case = recorded(record, element)
        batch.add(case.network, [symbol.index for symbol in case.roots], case.feeds)
    batch.check(tmp_path)


def test_drawn_programs(tmp_path: Path) -> None:
    """With their gradients."""
    batch = Batch()

    @settings(max_examples=150, suppress_health_check=[*HealthCheck], phases=[Phase.generate])
    @given(programs())
    def draw(program: Any) -> None:
        tape, recorded = program.record()
        sources = [v for v in recorded.values if v.element is not None and tape.row(v.index).opcode.is_source]
        if sources:
            tape.differentiate(recorded.target, sources)
        network = tape.into_network()
        read = {operand for row in network.spec.rows for operand in row.operands}
        kept = [at for at, row in enumerate(network.spec.rows) if at not in read and row.operands]
        batch.add(network, kept, recorded.feeds)

    draw()
    batch.check(tmp_path)
