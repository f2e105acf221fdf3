"""Who reads what: for each buffer the rows that read it, and the drafts in which those stand."""

from __future__ import annotations

from collections.abc import Mapping, Set

from topos.backend.native.placement import Placement
from topos.backend.native.views import View
from topos.graph.spec import Spec


class Readers:
    """The readers of each row's buffer. Rows move from draft to draft as they like; which are there is told to it."""

    def __init__(self, placement: Placement, spec: Spec, views: Mapping[int, View]) -> None:
        self._placement, self._spec, self._views = placement, spec, views
        self._readers: dict[int, set[int]] = {}
        for row in (row for draft in placement.drafts for row in draft.rows):
            self.meet(row)

    def bases(self, row: int) -> set[int]:
        """The buffers that a row reads."""
        return {self._views[operand].row for operand in self._spec.rows[row].operands if operand in self._views}

    def of(self, base: int) -> Set[int]:
        """The rows that read a buffer."""
        return self._readers.get(base, set())

    def homes(self, base: int) -> set[int]:
        """The drafts that read a buffer."""
        return {self._placement.home[reader] for reader in self.of(base)}

    def add(self, base: int, reader: int) -> None:
        """From now on a row reads a buffer, through whatever it has for an operand."""
        self._readers.setdefault(base, set()).add(reader)

    def meet(self, row: int) -> None:
        """From now on a row reads its operands."""
        for base in self.bases(row):
            self.add(base, row)

    def leave(self, row: int) -> None:
        """From now on a row reads nothing."""
        for base in self.bases(row):
            self._readers[base].discard(row)
