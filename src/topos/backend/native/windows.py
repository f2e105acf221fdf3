"""Windows added back onto their axis."""

from __future__ import annotations

from topos.backend.native.groups import Group, Lowering
from topos.backend.native.indexing import Sums
from topos.backend.native.loops import lanes_for
from topos.backend.native.nest import Frame, Place, merged
from topos.backend.native.program import Call
from topos.backend.native.registers import Integer
from topos.backend.native.target import Target
from topos.backend.native.views import dense_strides
from topos.op import Fold
from topos.op.movement import window_count


def fold(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """Windows added onto their axis, offset after offset, so that each place adds its contributions in that order."""
    (row,) = group.rows
    recorded = lowering.spec.rows[row]
    opcode = recorded.opcode
    assert isinstance(opcode, Fold)
    (operand,) = recorded.operands
    axis, own = opcode.axis, list(dense_strides(group.shape))
    frame = Frame(lowering, target, lanes_for(lowering, group, target))
    read = None if operand in lowering.constants else frame.read(operand)
    maps = [] if read is None else read.maps
    before, first = merged(group.shape[:axis], [*[map[:axis] for map in maps], own[:axis]])
    after, last = merged(group.shape[axis + 1 :], [*[map[axis + 2 :] for map in maps], own[axis + 1 :]])
    if read is not None:
        read.maps = [
            [*outer, *inner[:-1], map[axis], map[axis + 1], inner[-1]]
            for map, outer, inner in zip(maps, first, last, strict=False)
        ]
    sums = Sums(frame, row, [*first[-1], *last[-1][:-1], own[axis], last[-1][-1]])

    def body(outer: tuple[Integer, ...], begin: Integer, end: Integer) -> None:
        frame.vectors(
            begin, end, after[-1], lambda index, count: _axis(frame, opcode, sums, operand, Place(outer, index, count))
        )

    tiles = frame.tiled([*before, *after], recorded.shape.volume * opcode.size, body)
    return Call((frame.kernel("fold", tiles),), frame.pointers)


def _axis(frame: Frame, opcode: Fold, sums: Sums, operand: int, place: Place) -> None:
    """The whole axis, for one register's worth of what comes after it."""
    function = frame.function
    count = window_count("fold", opcode.extent, opcode.size, opcode.step, opcode.dilation)

    def at(index: Integer) -> Place:
        return Place((*place.outer, index), place.inner, place.lanes)

    def add(offset: Integer, window: Integer) -> None:
        within = function.add(function.multiply(window, opcode.step), function.multiply(offset, opcode.dilation))
        source = Place((*place.outer, window, offset), place.inner, place.lanes)
        sums.add(at(within), frame.value(operand, source, sums.element))

    function.loop(0, opcode.extent, 1, lambda index: sums.clear(at(index)))
    frame.nest([opcode.size, count], lambda indices: add(*indices))
    if sums.is_apart:
        function.loop(0, opcode.extent, 1, lambda index: sums.finish(at(index)))
