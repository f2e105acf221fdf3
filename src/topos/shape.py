"""The extents of a tensor, outermost first."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from math import prod

from topos.errors import ShapeError

MOST_AXES = 64
"""NumPy's arrays have no more."""

MOST_ELEMENTS = 1 << 59
"""Of 16 bytes each they fill the address space; extents of zero beside them do not count."""

_NO_SEQUENCE = (set, frozenset, dict, str, bytes, bytearray)  # iterable, but of no order or of no integers


def _held(extents: Iterable[int]) -> int:
    return prod(extent for extent in extents if extent)


def _integer(axis: int, rule: str) -> int:
    try:
        return operator.index(axis)
    except TypeError:
        raise ShapeError(f"{rule}: an axis must be an integer, got {axis!r}") from None


class Shape(tuple[int, ...]):
    """Extents, outermost axis first; zero extents are legal and rank 0 is a scalar.

    Equal to a tuple or list of the same extents; prints as `[2, 3]`.

    >>> Shape((2, 3))
    [2, 3]
    >>> Shape([2, 3]).volume, Shape([2, 3]).without_axis(-1)
    (6, [2])

    Raises `ShapeError` for an extent that is negative or not an integer.
    """

    __slots__ = ()

    def __new__(cls, extents: Iterable[int] = ()) -> Shape:
        if type(extents) is Shape:
            return extents
        if type(extents) is tuple and not extents:
            return SCALAR
        if isinstance(extents, _NO_SEQUENCE):
            raise ShapeError(f"shape: wants a sequence of extents, got {extents!r}")
        if isinstance(extents, int):
            hint = f"a vector of that length is [{extents}]"
            raise ShapeError(f"shape: wants a sequence of extents, got {extents!r}; {hint}")
        try:
            shape = super().__new__(cls, map(operator.index, extents))
        except TypeError:
            raise ShapeError(f"shape: extents must be integers, got {extents!r}") from None
        if shape:
            if min(shape) < 0:
                raise ShapeError(f"shape: extents must not be negative, got {shape}")
            bits = max(shape).bit_length() or 1
            if bits * len(shape) > 59 and (len(shape) > MOST_AXES or _held(shape) > MOST_ELEMENTS):
                facts = f"got {len(shape)} axes and {_held(shape)} elements in {shape}"
                raise ShapeError(f"shape: at most {MOST_AXES} axes and 2**59 elements, {facts}")
        return shape

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self)

    @property
    def volume(self) -> int:
        """The number of elements: the product of the extents, 1 for rank 0."""
        return prod(self)

    @property
    def axes(self) -> range:
        """The axes, `0 .. rank - 1`."""
        return range(len(self))

    def axis(self, axis: int, rule: str) -> int:
        """The axis counted from the front; a negative one counts from the end.

        Raises `ShapeError` that names the rule, the axis and the shape where there is no such axis.
        """
        position = _integer(axis, rule)
        rank = len(self)
        if not -rank <= position < rank:
            raise ShapeError(f"{rule}: no axis {axis} in shape {self} of rank {rank}")
        return position % rank

    def gap(self, axis: int, rule: str) -> int:
        """The position of a new axis, `0 .. rank`, counted from the front; a negative one counts from the end.

        Raises `ShapeError` that names the rule, the axis and the shape where there is no such place.
        """
        position = _integer(axis, rule)
        rank = len(self)
        if not -rank - 1 <= position <= rank:
            raise ShapeError(f"{rule}: no place for a new axis {axis} in {self}")
        return position if position >= 0 else position + rank + 1

    def without_axis(self, axis: int) -> Shape:
        """The shape with one axis taken out."""
        axis = self.axis(axis, "without_axis")
        return Shape((*self[:axis], *self[axis + 1 :]))

    def with_axis(self, axis: int, extent: int) -> Shape:
        """The shape with an axis of `extent` put in before position `axis`, `0 .. rank`."""
        axis = self.gap(axis, "with_axis")
        return Shape((*self[:axis], extent, *self[axis:]))

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self, tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__

    def __repr__(self) -> str:
        return f"[{', '.join(map(str, self))}]"

    __str__ = __repr__


SCALAR = tuple.__new__(Shape)
"""The shape of rank 0: one object, so that who asks for it need not compare."""
