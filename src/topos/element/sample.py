"""The contract by which an element makes its numbers of real ones that were drawn: what an initialiser asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from topos.element.element import Array


class Sample(Protocol):
    """What an element makes of draws, set as `sample` on an `Element`: a method of that name, or any such function.

    Without it the numbers are rounded, as those of any payload are. With it an element decides itself what a drawn
    number becomes: an exponent where it keeps logarithms, a code on a grid, a value with a slope of its own.
    """

    def __call__(self, numbers: Array, /) -> Array:
        """An array of the element's dtype for f64 `numbers` of any shape, of that shape."""
