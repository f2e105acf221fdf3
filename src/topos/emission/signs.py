"""What stands beside the arguments and results of a module: where they lie, and whose memory they may take."""

from __future__ import annotations

from typing import NamedTuple

from topos.emission.mesh import Layout
from topos.engine.entry import Entry
from topos.graph import Symbol


class Signs(NamedTuple):
    """`layout` says how sources are cut over devices; with `donates`, what replaces a source takes its memory."""

    layout: Layout | None = None
    donates: bool = False

    def header(self) -> list[str]:
        """The lines before the function."""
        return [] if self.layout is None else self.layout.header()

    def of_argument(self, row: int, entry: Entry) -> str:
        """The attributes of the argument for a source: as its sharding says, and nothing where there is none."""
        signs = []
        if self.layout is not None and row in self.layout.cuts:
            signs.append(self.layout.attribute(self.layout.cuts[row]))
        if self.donates:
            places = {source.index: place for place, source in enumerate(carried(entry), len(entry.results))}
            signs += [f"tf.aliasing_output = {places[row]} : i32"] if row in places else []
        return f" {{{', '.join(signs)}}}" if signs else ""

    def of_result(self, position: int, shape: tuple[int, ...], entry: Entry) -> str:
        """The attributes of a result: what replaces a source lies as that does, what is declared lies everywhere."""
        if self.layout is None:
            return ""
        position -= len(entry.results)
        source = carried(entry)[position].index if position >= 0 else None
        cuts = self.layout.cuts.get(source) if source is not None else None
        return f" {{{self.layout.attribute(((),) * len(shape) if cuts is None else cuts)}}}"


UNSIGNED = Signs()


def carried(entry: Entry) -> list[Symbol]:
    """The sources that an entry carries, in order."""
    return sorted(entry.carry, key=lambda source: source.index)
