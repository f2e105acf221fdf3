"""Recording lines, as a file has them: file, line and the function that was called, each place once."""

from __future__ import annotations

from types import CodeType
from typing import Any

from topos.errors import CheckpointError
from topos.graph.place import Place, line


class Lines:
    """The places of a network on their way out."""

    def __init__(self) -> None:
        self.document: list[list[Any]] = []
        self._known: dict[Place, int] = {}

    def index(self, place: Place) -> int:
        """Which of the file's places this is."""
        if place not in self._known:
            self._known[place] = len(self.document)
            file, _, number = line(place).rpartition(":")
            self.document.append([file, int(number), place[2]])
        return self._known[place]


def places_of(document: Any) -> list[Place]:
    """The places of a file, as whoever prints them wants them: code that holds nothing but its file and line."""
    blank = compile("", "", "exec")
    return [_place(blank, entry) for entry in document]


def _place(blank: CodeType, entry: Any) -> Place:
    kinds = [type(part) for part in entry] if isinstance(entry, list) else []
    if kinds != [str, int, str] or not 0 <= entry[1] < 1 << 31:
        raise CheckpointError(f"places: wants a file, a line and a function, got {entry!r:.60}")
    file, number, called = entry
    return blank.replace(co_filename=file, co_firstlineno=number), -1, called
