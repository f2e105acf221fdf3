"""Lines of places: where the numbers of a row lie that a register's worth of a kernel's results are made of.

Geometry alone: what a fold, a short reduction or a movement between rows makes of lines is the same whether they are
counted, to see what working them out costs, or written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from topos.backend.native.registers import Integer, Operand
from topos.backend.native.views import View, dense_strides
from topos.op import Fold
from topos.records import NamedTuple
from topos.shape import Shape

Place = tuple[int, ...]
"""A place, by how far it lies from a beginning along every axis."""


class Line(NamedTuple):
    """The place of each lane, `None` for those that read nothing."""

    lanes: tuple[Place | None, ...]

    def along(self, axis: int) -> tuple[int | None, ...]:
        """Where the lanes lie on one axis."""
        return tuple(None if place is None else place[axis] for place in self.lanes)

    def with_axis(self, axis: int, at: int) -> Line:
        """The same with one more axis, at one place along it."""
        return Line(tuple(None if place is None else (*place[:axis], at, *place[axis:]) for place in self.lanes))

    def moved(self, axis: int, offset: int) -> Line:
        """The same, farther along an axis."""
        places = ((*place[:axis], place[axis] + offset, *place[axis + 1 :]) if place else place for place in self.lanes)
        return Line(tuple(places)) if offset else self

    def by_place(self, axis: int) -> dict[int, Line]:
        """The lanes that lie at the same place along an axis together, for each of them."""
        found = dict.fromkeys(place[axis] for place in self.lanes if place is not None)
        return {
            at: Line(tuple(place if place is not None and place[axis] == at else None for place in self.lanes))
            for at in found
        }


class Lines(NamedTuple):
    """Lines that begin at one place; `axis` is that of their lanes, -1 where they have one.

    Each `exists` has the lanes of a line that may be read, where not all may.
    """

    begin: tuple[Integer, ...]
    axis: int
    lines: Sequence[Line]
    exists: Sequence[Operand | None]

    def some(self, numbers: Sequence[int]) -> Lines:
        """Some of them."""
        return self._replace(lines=[self.lines[at] for at in numbers], exists=[self.exists[at] for at in numbers])


class Inner(NamedTuple):
    """A view of a row of the same kernel: for each axis of the row the view's, -1 for none, and where it starts."""

    axes: tuple[int, ...]
    starts: tuple[int, ...]

    def line(self, line: Line) -> Line:
        """A line of the view as one of the row."""
        steps = list(zip(self.axes, self.starts, strict=True))
        places = (
            tuple(start + (place[own] if own >= 0 else 0) for own, start in steps) if place is not None else None
            for place in line.lanes
        )
        return Line(tuple(places))

    def axis(self, axis: int) -> int:
        """The axis of the row that an axis of the view is, -1 for none."""
        return self.axes.index(axis) if axis >= 0 and axis in self.axes else -1


def inner(view: View, shape: Shape) -> Inner | None:
    """How a view steps through the axes of a row-major buffer, each with one of its own or not at all; or `None`.

    They are in their order: in another one, lanes would lie far apart.
    """
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
        if at is None or max(axes[at:]) >= 0 or starts[at] + extent > shape[at]:
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


def along(line: Line, fold: Fold) -> list[Line]:
    """The windows of a fold along the axis of the lanes, and their offsets: of each lane the first, the second, ...

    A lane has none where its place is not at a whole number of steps. So few lines hold all offsets, in their order.
    """
    axis = fold.axis
    found: list[list[Place]] = []
    for place in line.lanes:
        starts = ((place[axis] - at * fold.dilation, at) for at in range(fold.size)) if place is not None else ()
        whole = ((start // fold.step, at) for start, at in starts if start % fold.step == 0)
        found.append([(*place[:axis], *each, *place[axis + 1 :]) for each in whole] if place is not None else [])
    return [
        Line(tuple(places[at] if at < len(places) else None for places in found)) for at in range(max(map(len, found)))
    ]


def packed(lines: Sequence[Line], axis: int) -> list[tuple[list[int], list[Line]]]:
    """Lines, by their numbers, of which fewer with lanes next to one another hold all, and these."""
    alike: dict[Place, list[int]] = {}
    for number, line in enumerate(lines):
        others = {(*place[:axis], 0, *place[axis + 1 :]) for place in line.lanes if place is not None}
        if len(others) == 1:
            alike.setdefault(others.pop(), []).append(number)
    found = []
    for other, numbers in alike.items():
        distinct = {lines[number] for number in numbers}
        places = [at for line in distinct for at in line.along(axis) if at is not None]
        width, least = len(lines[numbers[0]].lanes), min(places)
        firsts = range(least, max(places) + 1, width)
        if len(firsts) < len(distinct):
            found.append((numbers, [beside(other, axis, range(first, first + width)) for first in firsts]))
    return found


def fewest(lines: Sequence[Line], axis: int) -> list[Line]:
    """The lines of which others are taken out."""
    gained = packed(lines, axis) if axis >= 0 else []
    gone = {number for numbers, _ in gained for number in numbers}
    alone = dict.fromkeys(line for number, line in enumerate(lines) if number not in gone)
    return [*alone, *(line for _, made in gained for line in made)]


def beside(place: Place, axis: int, lanes: Iterable[int | None]) -> Line:
    """Places that differ along one axis."""
    return Line(tuple(None if at is None else (*place[:axis], at, *place[axis + 1 :]) for at in lanes))


def block(rank: int, axis: int, places: int, lanes: int) -> list[Line]:
    """So many places side by side along an axis, in as few lines as hold them."""
    return [
        beside((0,) * rank, axis, (at if at < places else None for at in range(first, first + lanes)))
        for first in range(0, places, lanes)
    ]
