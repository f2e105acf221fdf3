"""How faithful a backend is, and over which elements."""

from __future__ import annotations

from collections.abc import Container
from enum import Enum

from topos.element import Element
from topos.records import NamedTuple


class Fidelity(Enum):
    """What a backend promises about bits. `Numerics.EXACT` admits the first two, `Numerics.FAST` all three."""

    BIT_IDENTICAL = "the defining bits"
    COMPOSED = "the defining bits of a composition of instructions"
    ENVELOPE = "within a stated bound of the defining bits"

    @property
    def is_exact(self) -> bool:
        """Whether the bits are those that the interpreter computes."""
        return self is not Fidelity.ENVELOPE


class Coverage(NamedTuple):
    """A backend's answer to a formula: how faithful it is, and in which elements it computes.

    `precisions` is whatever answers `element in precisions`: a tuple of elements, say.
    """

    fidelity: Fidelity
    precisions: Container[Element]

    def admits(self, element: Element, exact: bool) -> bool:
        """Whether it computes in an element, and as faithfully as a posture asks."""
        return element in self.precisions and (self.fidelity.is_exact or not exact)
