"""Even splits: of rows and vectors into the tiles of registers, and of those into tiles of work."""

from __future__ import annotations

from collections.abc import Callable

from topos.backend.native.products.text import Text
from topos.records import NamedTuple


class Split(NamedTuple):
    """`groups` groups of consecutive units: the first `extra` hold `small + 1` units, the others `small`."""

    groups: int
    small: int
    extra: int

    @property
    def largest(self) -> int:
        """The units of the largest group."""
        return self.small + bool(self.extra)

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """(units, groups of that many)."""
        rest = self.groups - self.extra
        found = [(self.small + 1, self.extra)] if self.extra else []
        return [*found, (self.small, rest)] if rest else found

    def start(self, text: Text, group: str) -> str:
        """The first unit of a group."""
        base = text.mul(group, self.small)
        return text.add(base, text.least(group, self.extra)) if self.extra else base

    def each(self, text: Text, group: str, tail: int, full: int, body: Callable[[int, int], None]) -> None:
        """`body(units, active)` for a group known at run time; the last group's `active` is `tail`, if not 0."""

        def others() -> None:
            body(self.small, full)

        def smaller() -> None:
            if not tail:
                return others()
            if self.groups - self.extra == 1:
                return body(self.small, tail)
            last = text.let(f"icmp eq i64 {group}, {self.groups - 1}")
            text.when(last, lambda: body(self.small, tail), others)
            return None

        if self.extra:
            text.when(text.less(group, self.extra), lambda: body(self.small + 1, full), smaller)
        else:
            smaller()


def split(units: int, largest: int) -> Split:
    """The fewest groups of at most `largest` units, as even as can be."""
    count = -(-units // largest)
    return Split(count, units // count, units % count)
