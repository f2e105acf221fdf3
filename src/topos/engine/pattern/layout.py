"""Windows over an array, and where their parts have gone: what movement makes of the axes of a source.

Each axis of a view is a list of parts in row-major order. A part is an axis of the source as a whole, or which window
it is (`count`), or which place in a window (`offset`).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from topos.op import Fold, MaxAlong, Narrow, Opcode, Pad, Permute, Reshape, SumAlong, Unfold
from topos.records import NamedTuple
from topos.shape import Shape


class Part(NamedTuple):
    """A part of an axis: which axis of the source, which role, and its extent."""

    axis: int
    role: str
    extent: int


class Window(NamedTuple):
    """Windows along an axis of the source, and how far it is padded before and after."""

    axis: int
    size: int
    step: int = 1
    dilation: int = 1
    before: int = 0
    after: int = 0


class Layout:
    """Where the parts of a source's axes lie; each step answers whether it could be followed."""

    def __init__(self, shape: Shape) -> None:
        self.axes: list[list[Part]] = [[Part(axis, "whole", extent)] for axis, extent in enumerate(shape)]
        self.padding: dict[int, tuple[int, int]] = {}
        self.windows: dict[int, Window] = {}
        self.fills: set[str] = set()

    @property
    def parameters(self) -> tuple[Window, ...]:
        """The windows, by their axes."""
        return tuple(
            window._replace(before=before, after=after)
            for axis, window in sorted(self.windows.items())
            for before, after in (self.padding.get(axis, (0, 0)),)
        )

    @property
    def is_windowed(self) -> bool:
        """Whether there are windows along one axis or two, and no padding elsewhere."""
        return 1 <= len(self.windows) <= 2 and set(self.padding) <= set(self.windows)

    def roles(self, axes: Iterable[int]) -> set[str]:
        """Which parts lie in some of the axes; those of extent 1 may lie anywhere."""
        return {part.role for axis in axes for part in self.axes[axis] if part.extent != 1}

    def parts(self, axis: int) -> tuple[tuple[int, str], ...]:
        """The parts of one axis, in order."""
        return tuple((part.axis, part.role) for part in self.axes[axis])

    def follow(self, opcode: Opcode, result: Shape) -> bool:
        """One step from a view to another, of that shape."""
        if isinstance(opcode, Pad):
            return self._pad(opcode.axis, opcode.start, opcode.full_extent, repr(opcode.fill))
        if isinstance(opcode, Unfold):
            return self._unfold(opcode.axis, opcode.size, opcode.step, opcode.dilation, result)
        if isinstance(opcode, Permute):
            self.axes = [self.axes[axis] for axis in opcode.order]
            return True
        if isinstance(opcode, MaxAlong | SumAlong):
            return self._reduce(opcode.axis)
        return isinstance(opcode, Reshape) and self._reshape(result)

    def retrace(self, opcode: Opcode, operand: Shape) -> bool:
        """One step of the adjoint, from its result to its operand: `Fold` as `Unfold`, `Narrow` as `Pad`."""
        if isinstance(opcode, Narrow):
            return self._pad(opcode.axis, opcode.start, operand[opcode.axis], "0.0")
        if isinstance(opcode, Fold):
            return self._unfold(opcode.axis, opcode.size, opcode.step, opcode.dilation, operand)
        if isinstance(opcode, Permute):
            self.axes = [self.axes[opcode.order.index(axis)] for axis in opcode.order.axes]
            return True
        return isinstance(opcode, Reshape) and self._reshape(operand)

    @property
    def is_reduced(self) -> bool:
        """Whether no place in a window is left."""
        return all(part.role != "offset" for parts in self.axes for part in parts)

    def _reduce(self, axis: int) -> bool:
        """Without an axis, which has to hold places in windows and nothing else."""
        parts = self.axes.pop(axis)
        beyond = {part.role for part in parts if part.extent != 1} or {part.role for part in parts}
        return beyond == {"offset"}

    def _whole(self, axis: int) -> Part | None:
        """The axis of the source that this one is, beside what has extent 1."""
        parts = self.axes[axis]
        beyond = [part for part in parts if part.extent != 1] or parts[:1]
        return beyond[0] if len(beyond) == 1 and beyond[0].role == "whole" else None

    def _pad(self, axis: int, start: int, full: int, fill: str) -> bool:
        part = self._whole(axis)
        if part is None:
            return False
        before, after = self.padding.get(part.axis, (0, 0))
        self.padding[part.axis] = before + start, after + full - start - part.extent
        self.axes[axis] = [part._replace(extent=full)]
        self.fills.add(fill)
        return True

    def _unfold(self, axis: int, size: int, step: int, dilation: int, windows: Shape) -> bool:
        part = self._whole(axis)
        if part is None:
            return False
        self.windows[part.axis] = Window(part.axis, size, step, dilation)
        count, offset = Part(part.axis, "count", windows[axis]), Part(part.axis, "offset", size)
        self.axes[axis : axis + 1] = [[count], [offset]]
        return True

    def _reshape(self, shape: Shape) -> bool:
        """Axes are joined, and taken apart where a part begins; extents of 1 come and go."""
        parts = [part for parts in self.axes for part in parts]
        axes: list[list[Part]] = []
        for extent in shape:
            taken: list[Part] = []
            while parts and prod(part.extent for part in taken) < extent:
                taken.append(parts.pop(0))
            if prod(part.extent for part in taken) != extent:
                return False
            axes.append(taken)
        self.axes = axes
        return all(part.extent == 1 for part in parts)
