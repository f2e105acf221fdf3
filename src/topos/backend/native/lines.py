"""Lines of places: where the numbers of a row lie that a register's worth of a kernel's results are made of.

Geometry alone: what a fold, a short reduction or a movement between rows makes of lines is the same whether they are
counted, to see what working them out costs, or written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from topos.backend.native.views import View, dense_strides
from topos.op import Fold
from topos.records import NamedTuple
from topos.shape import Shape


class Line(NamedTuple):
    """Lanes: where each lies on their axis, `None` for those that read nothing, and an offset for every axis.

    All are counted from where the lines begin.
    """

    offsets: tuple[int, ...]
    lanes: tuple[int | None, ...]

    def at(self, axis: int, offset: int) -> Line:
        """The same with another offset along an axis."""
        return self._replace(offsets=(*self.offsets[:axis], offset, *self.offsets[axis + 1 :]))

    def with_axis(self, axis: int, offset: int) -> Line:
        """The same with one more axis."""
        return self._replace(offsets=(*self.offsets[:axis], offset, *self.offsets[axis:]))

    def places(self, axis: int) -> dict[int, int]:
        """Where the lanes that read anything lie on their axis, which is this one."""
        return {lane: at + self.offsets[axis] for lane, at in enumerate(self.lanes) if at is not None}


class Inner(NamedTuple):
    """A view of a row of the same kernel: for each axis of the row the view's, -1 for none, and where it starts."""

    axes: tuple[int, ...]
    starts: tuple[int, ...]

    def lines(self, lines: Iterable[Line], axis: int) -> list[Line]:
        """Lines of the view as those of the row; `axis` is that of the lanes in the view."""
        places = list(zip(self.axes, self.starts, strict=True))
        return [
            Line(
                tuple(start + (line.offsets[own] if own >= 0 else 0) for own, start in places),
                line.lanes if axis in self.axes else (0,) * len(line.lanes),
            )
            for line in lines
        ]

    def axis(self, axis: int) -> int:
        """The axis of the row that an axis of the view is, -1 for none."""
        return self.axes.index(axis) if axis >= 0 and axis in self.axes else -1


def inner(view: View, shape: Shape) -> Inner | None:
    """How a view steps through the axes of a row-major buffer, each with one of its own or not at all; or `None`."""
    if view.guards or view.grid is not None or not view.shape.volume:
        return None
    steps = dense_strides(shape)
    starts, left = [], view.offset
    for extent, step in zip(shape, steps, strict=True):
        starts.append(left // step if extent > 1 else 0)
        left -= starts[-1] * step
    axes = [-1] * len(shape)
    for own, (extent, step) in enumerate(zip(view.shape, view.strides, strict=True)):
        if extent == 1 or not step:
            continue
        at = next((at for at, each in enumerate(steps) if each == step and shape[at] > 1), None)
        if at is None or axes[at] >= 0 or starts[at] + extent > shape[at]:
            return None
        axes[at] = own
    return Inner(tuple(axes), tuple(starts)) if left == 0 else None


def alike_at_the_end(view: View, shape: Shape) -> int:
    """How many of the last axes of a view are those of the row-major buffer, from end to end."""
    pairs = zip(view.shape[::-1], view.strides[::-1], shape[::-1], dense_strides(shape)[::-1], strict=False)
    starts = inner(view, shape)
    count = 0
    for at, (extent, step, own, wanted) in enumerate(pairs):
        if extent != own or (extent > 1 and (step != wanted or starts is None or starts.starts[-1 - at])):
            break
        count += 1
    return count


def along(lines: Sequence[Line], fold: Fold) -> list[Line]:
    """The windows of a fold along the axis of the lanes: each offset is a line of its own, line after line."""
    axis = fold.axis
    found = []
    for line in lines:
        for at in range(fold.size):
            starts = [None if lane is None else lane + line.offsets[axis] - at * fold.dilation for lane in line.lanes]
            windows = tuple(None if start is None or start % fold.step else start // fold.step for start in starts)
            found.append(Line((*line.offsets[:axis], 0, at, *line.offsets[axis + 1 :]), windows))
    return found


def terms(lines: Sequence[Line], axis: int, extent: int) -> list[Line]:
    """The terms of a reduction, line after line."""
    return [line.with_axis(axis, at) for line in lines for at in range(extent)]


def packed(lines: Sequence[Line], axis: int) -> list[tuple[list[int], list[Line]]]:
    """Lines, by their numbers, of which fewer with lanes next to one another hold all, and these."""
    alike: dict[tuple[int, ...], list[int]] = {}
    for number, line in enumerate(lines):
        alike.setdefault(line.at(axis, 0).offsets, []).append(number)
    found = []
    for offsets, numbers in alike.items():
        distinct = {lines[number] for number in numbers}
        places = [place for line in distinct for place in line.places(axis).values()]
        width, least = len(lines[numbers[0]].lanes), min(places, default=0)
        firsts = range(least, max(places, default=0) + 1, width)
        if len(firsts) < len(distinct):
            found.append((numbers, [Line(offsets, tuple(range(first, first + width))) for first in firsts]))
    return found


def fewest(lines: Sequence[Line], axis: int) -> list[Line]:
    """The lines of which others are taken out."""
    gained = packed(lines, axis) if axis >= 0 else []
    gone = {number for numbers, _ in gained for number in numbers}
    alone = dict.fromkeys(line for number, line in enumerate(lines) if number not in gone)
    return [*alone, *(line for _, made in gained for line in made)]


def first_line(rank: int, lanes: int, active: int) -> Line:
    """The line at which a kernel stands, its first lanes being places."""
    return Line((0,) * rank, tuple(lane if lane < active else None for lane in range(lanes)))
