"""Rows of windows that a fold finds in a ring: the latest of an image, each in the place of one that is done with."""

from __future__ import annotations

from topos.backend.native.registers import Operand
from topos.records import NamedTuple


class Ring(NamedTuple):
    """How a fold of some places along an axis reads it: from `begun` on, known at run time.

    Window `w` is row `(w + ahead) % rows` of what it reads.
    """

    begun: Operand
    ahead: int
    rows: int
