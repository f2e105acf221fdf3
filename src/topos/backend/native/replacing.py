"""Carried buffers of which a step replaces a few rows: only those rows are written.

`mask.select(new, old)`, with a one-hot mask and the result written over `old`, leaves every place as it is whose id is
not among the mask's: there is nothing to read there and nothing to write.
"""

from __future__ import annotations

from collections.abc import Mapping

from topos.backend.native.costs import lanes_up_to
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.nest import Frame
from topos.backend.native.program import Call
from topos.backend.native.reads import OneHot, Place, one_hot
from topos.backend.native.registers import INT64, Integer, Operand
from topos.backend.native.target import Target
from topos.backend.native.views import dense, dense_strides
from topos.op import Select
from topos.records import NamedTuple
from topos.shape import Shape


def replaces_rows(lowering: Lowering, group: Group, in_place: Mapping[int, int]) -> bool:
    """Whether all that a group computes are such replacements."""
    return all(_axis(lowering, row, in_place.get(row)) is not None for row in group.rows)


def _axis(lowering: Lowering, row: int, source: int | None) -> int | None:
    """The axis along which the mask has one place, of a row that is written over a source; `None` for any other row."""
    recorded = lowering.spec.rows[row]
    if source is None or not isinstance(recorded.opcode, Select):
        return None
    mask, _, other = recorded.operands
    if mask in lowering.constants or other in lowering.constants or not lowering.is_one_hot(mask):
        return None
    view = lowering.views[other]
    if view.row != source or not view.is_dense() or view.shape != recorded.shape or lowering.views[mask].guards:
        return None
    maps = _hot(lowering, mask).maps
    axes = [axis for axis, step in enumerate(maps[-1]) if step and recorded.shape[axis] != 1]
    apart = len(maps) == 2 and len(axes) == 1 and maps[1][axes[0]] == 1 and not maps[0][axes[0]]
    return axes[0] if apart else None


def _hot(lowering: Lowering, mask: int) -> OneHot:
    view = lowering.views[mask]
    return one_hot(view, lowering.spec.rows[view.row].shape[1])


class _Replacement(NamedTuple):
    """One row in the making: its axis, what is chosen, the mask and the pointer to its ids, and where it goes."""

    row: int
    axis: int
    chosen: int
    mask: OneHot
    ids: Operand
    result: Operand


def replaced(lowering: Lowering, group: Group, target: Target, in_place: Mapping[int, int]) -> Call:
    """The kernel: for each id, the new numbers at the places that it names."""
    shape, spec = group.shape, lowering.spec
    masks = [_hot(lowering, spec.rows[row].operands[0]) for row in group.rows]
    along = [_axis(lowering, row, in_place[row]) for row in group.rows]
    last = shape.rank - 1
    apart = any(axis == last or mask.maps[0][last] for axis, mask in zip(along, masks, strict=True))
    wide = max(spec.element_of(row).dtype.itemsize for row in group.rows)
    frame = Frame(lowering, target, 1 if apart else lanes_up_to(target.lanes(max(4, wide)), shape[-1]))
    for row, mask, axis in zip(group.rows, masks, along, strict=True):
        assert axis is not None
        chosen = spec.rows[row].operands[1]
        if chosen not in lowering.constants and chosen not in frame.reads:
            frame.read(chosen)
        ids = frame.add(mask.ids, 8)
        result = frame.add(dense(row, shape), frame.element(row).dtype.itemsize)
        _write(frame, _Replacement(row, axis, chosen, mask, ids, result), shape)
    return Call((frame.kernel("replace", 1),), frame.pointers)


def _write(frame: Frame, own: _Replacement, shape: Shape) -> None:
    """One id after another; each one's place along the axis, and there all that the other axes have."""
    function, m, last = frame.function, frame.arithmetic(frame.element(own.row)), shape.rank - 1
    steps, written = own.mask.maps[0], dense_strides(shape)
    rows = [axis for axis in shape.axes if axis != own.axis and steps[axis]]
    others = [axis for axis in shape.axes if axis not in (own.axis, last, *rows)]

    def put(place: Place) -> None:
        frame.store(m, frame.value(own.chosen, place, m.element), own.result, written, place)

    def line(known: Mapping[int, Integer]) -> None:
        outer = tuple(known[axis] for axis in range(last))
        if last in known:
            put(Place(outer, known[last], None))
        else:
            frame.vectors(0, shape[last], shape[last], lambda index, count: put(Place(outer, index, count)))

    def at_id(indices: tuple[Integer, ...]) -> None:
        offset: Integer = 0
        for axis, index in zip(rows, indices, strict=True):
            offset = function.add(offset, function.multiply(index, steps[axis]))
        identity = function.load(INT64, function.offset(own.ids, INT64, offset), 8)
        at = function.add(identity, -own.mask.column)
        known = {own.axis: at, **dict(zip(rows, indices, strict=True))}

        def lines() -> None:
            frame.nest(
                [shape[axis] for axis in others],
                lambda rest: line({**known, **dict(zip(others, rest, strict=True))}),
            )

        function.when(function.below(-1, at), lambda: function.when(function.below(at, shape[own.axis]), lines))

    frame.nest([shape[axis] for axis in rows], at_id)
