"""The attributes of a module's arguments and results: where they lie, and whose memory they may take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from topos.emission.mesh import Layout, layout
from topos.emission.text import Named
from topos.engine.entry import Entry
from topos.graph import Symbol
from topos.graph.spec import Spec
from topos.records import NamedTuple


class Attributes(NamedTuple):
    """`layout` says how sources are cut over devices; with `donates`, what replaces a source takes its memory."""

    layout: Layout | None = None
    donates: bool = False

    def header(self) -> list[str]:
        """The lines before the function."""
        return [] if self.layout is None else self.layout.header()

    def of_arguments(self, given: Mapping[int, Named], entry: Entry) -> list[str]:
        """The attributes of each argument: cut as its source was asked for, or whole everywhere."""
        first = len(entry.results)
        places = {source.index: first + place for place, source in enumerate(carried(entry))} if self.donates else {}
        return [
            _braced(
                [] if self.layout is None else [self.layout.attribute_of(row, value.shape)],
                [f"tf.aliasing_output = {places[row]} : i32"] if row in places else [],
            )
            for row, value in given.items()
        ]

    def of_results(self, answered: Sequence[Named], entry: Entry) -> list[str]:
        """Those of each result: what replaces a source lies as that does, what is declared is whole everywhere."""
        layout = self.layout
        if layout is None:
            return [""] * len(answered)
        rows = [*(None for _ in entry.results), *(source.index for source in carried(entry))]
        return [_braced([layout.attribute_of(row, value.shape)]) for row, value in zip(rows, answered, strict=True)]


PLAIN = Attributes()


def laid_out(spec: Spec, length: int, mesh: Any, shardings: Any, is_shardy: bool) -> Attributes:
    """The attributes of a module for a mesh, where one is named, as `layout` checks it."""
    return Attributes(layout(spec, length, mesh, shardings, is_shardy))


def carried(entry: Entry) -> list[Symbol]:
    """The sources that an entry carries, in order."""
    return sorted(entry.carry, key=lambda source: source.index)


def _braced(*attributes: list[str]) -> str:
    listed = [attribute for some in attributes for attribute in some]
    return f" {{{', '.join(listed)}}}" if listed else ""
