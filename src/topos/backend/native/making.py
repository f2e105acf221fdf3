"""From a schedule to a program: lowered, its kernels written, its memory arranged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from topos.backend.native.entering import TEXT
from topos.backend.native.grouping import grouped
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.kernel import Kernel
from topos.backend.native.manifest import Manifest, Packable, Start
from topos.backend.native.objects import Piece
from topos.backend.native.program import Call, Program, assembled, texts, texts_of
from topos.backend.native.repeating import repeated
from topos.backend.native.replacing import replaced, replaces_rows
from topos.backend.native.target import Target
from topos.backend.native.writers import write
from topos.backend.task import Declined
from topos.engine.code import Compositions
from topos.graph.spec import Spec
from topos.records import NamedTuple

Want = Callable[[str], None]
"""Who is told of a text as soon as it is written."""


class Packing(NamedTuple):
    """The kernel that packs an operand, the one that multiplies by its panels, and how many operands both have."""

    kernel: Kernel
    multiplying: Kernel
    operands: int

    def texts(self) -> list[str]:
        """The texts of both."""
        return list(texts_of((self.kernel, self.multiplying)).values())


class Making(NamedTuple):
    """A program and what it was lowered from."""

    lowering: Lowering
    program: Program

    def texts(self) -> list[str]:
        """The text of every kernel once."""
        return list(texts(self.program.calls).values())

    def manifest(self, results: frozenset[int], pieces: Sequence[Piece]) -> Manifest:
        """The program as plain data, once its texts are compiled."""
        program, constants = self.program, self.lowering.constants
        starts = [
            Start([(kernel.name, kernel.tiles) for kernel in call.kernels], program.placed(at), _packable(call))
            for at, call in enumerate(program.calls)
        ]
        rows = constants.keys() & {*program.buffers, *results}
        numbers = {row: self._digits(row) for row in rows}
        whole = numbers.keys() & {origin for origin, _ in program.carry.after}
        return Manifest(starts, program.arena.bytes, program.buffers, numbers, whole, list(pieces), self.repeated())

    def repeated(self) -> str:
        """The text of one function for many steps, where the program is small; or empty."""
        return repeated(self.lowering, self.program)

    def _digits(self, row: int) -> str:
        """The bytes of the number that a constant is."""
        element = self.lowering.spec.element_of(row)
        return self.lowering.constants[row].convert(element).dense(element).tobytes()[: element.dtype.itemsize].hex()

    def packing(self, at: int) -> Packing:
        """What packs a packable operand and what multiplies by its panels."""
        call = [call for call in self.program.calls if call.weight is not None][at]
        assert call.weight is not None
        return Packing(*call.weight.prepacked.write(), len(call.operands))

    def explain(self, compositions: Compositions = ()) -> str:
        """The groups in order, each with its rows, what it reads and stores, its kernels and tiles; then the memory."""
        from topos.backend.native.telling import told_groups

        groups = zip(told_groups(self.lowering, compositions), self.program.groups, strict=True)
        told = [f"{line}  {_told(made)}" for line, made in groups]
        counted = [
            _counted(len(told), "group"),
            _counted(self.program.owners.count(None), "copy", "copies"),
            _counted(len(self.program.kernels), "kernel"),
        ]
        return "\n".join([*told, f"native: {', '.join(counted)}, arena of {self.program.arena.bytes} bytes"])

    def llvm(self) -> str:
        """The text of every kernel once, and of the functions that run them."""
        return "\n".join([*self.texts(), *filter(None, [self.repeated()]), TEXT])


def made(
    spec: Spec,
    scheduled: Sequence[int],
    results: frozenset[int],
    carried: Mapping[int, int],
    target: Target,
    want: Want | None = None,
) -> Making | Declined:
    """The program of a schedule; or why there is none. `want` is told of its texts as they are written."""
    lowering = grouped(spec, scheduled, results, carried.values())
    program = assembled(lowering, partial(_written, target, want), carried, results)
    if isinstance(program, Group):
        return Declined(f"no kernel for {spec.label(program.rows[-1])}", tuple(program.rows))
    return Making(lowering, program)


def _written(
    target: Target, want: Want | None, lowering: Lowering, group: Group, in_place: Mapping[int, int]
) -> Call | None:
    """The kernels of a group; where it replaces a few rows of a carried buffer, of those alone."""
    replaces = in_place and replaces_rows(lowering, group, in_place)
    call = replaced(lowering, group, target, in_place) if replaces else write(lowering, group, target)
    if want is not None and call is not None and call.operands:
        for text in texts_of(call.kernels).values():
            want(text)
    return call


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _packable(call: Call) -> Packable | None:
    if call.weight is None:
        return None
    operand, prepacked = call.weight
    return Packable(operand.row, operand.offset_bytes, str(prepacked.layout), prepacked.panel_bytes)


def _told(call: Call) -> str:
    started = Counter((kernel.name, kernel.tiles) for kernel in call.kernels)
    told = ", ".join(
        f"{name} in {_counted(tiles, 'tile')}{f' {times} times' if times > 1 else ''}"
        for (name, tiles), times in started.items()
    )
    if call.weight is None:
        return told
    return f"{told}, or over panels of {call.weight.prepacked.panel_bytes} bytes kept beside %{call.weight.operand.row}"
