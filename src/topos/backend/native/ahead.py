"""Texts that become objects while the next ones are being written.

Writing holds the interpreter's lock, and each call of llvmlite would wait for it; making machine code needs no lock and
takes by far the longest. So whoever offers a text waits while it is parsed, and goes on while its code is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from topos.backend.native import counts
from topos.backend.native.emission import CompilationError, Ready, Wanted, free_emit
from topos.backend.native.llvm import ask, beside, later
from topos.backend.native.processors import allowed
from topos.backend.native.target import Target

_SEAT = -1
"""Of the second thread, whose machine no other one uses."""
_AT_A_TIME = 2
"""Texts that are given away and not yet made: one under way, and one so that nothing has to wait for the next offer."""


class Ahead:
    """What is offered while a program is written, the longest text of those at hand first.

    `missing` says what is to be made of a text, or that it is there already. Whatever goes wrong here is left to be
    found by who asks for the object in earnest.
    """

    def __init__(self, target: Target, missing: Callable[[str], Wanted | None]) -> None:
        self._target = target
        self._missing = missing
        self._waiting: dict[str, None] = {}
        self._given: dict[str, tuple[Ready, Future[int | None]]] = {}
        self._seen: set[str] = set()
        self._useful = allowed() > 1 and free_emit() is not None

    def offer(self, text: str) -> None:
        """A text that is going to be needed."""
        if not self._useful or text in self._seen:
            return
        self._seen.add(text)
        self._waiting[text] = None
        while self._waiting and sum(not made.done() for _, made in self._given.values()) < _AT_A_TIME:
            text = max(self._waiting, key=len)
            del self._waiting[text]
            self._give(text)

    def _give(self, text: str) -> None:
        with suppress(CompilationError):
            wanted = self._missing(text)
            if wanted is not None:
                ready = ask(lambda: Ready(wanted, self._target, _SEAT, prepared=0))
                self._given[wanted.key] = ready, beside(ready.emit)

    def keys(self) -> frozenset[str]:
        """Of the objects that are being made."""
        return frozenset(self._given)

    def objects(self) -> Mapping[str, bytes]:
        """What was made, once all of it is."""
        given, self._given = self._given, {}
        buffers = {key: made.result() for key, (_, made) in given.items()}
        return ask(lambda: {key: content for key in given if (content := _content(given[key][0], buffers[key]))})

    def abandon(self) -> None:
        """Lets go of what nobody asked for."""
        for ready, made in self._given.values():
            made.add_done_callback(partial(_let_go, ready))
        self._given = {}


def _content(ready: Ready, buffer: int | None) -> bytes | None:
    with suppress(CompilationError):
        content = ready.content(buffer)
        counts.count(counts.COLD, ready.wanted.what, ready.elapsed_s)
        return content
    return None


def _let_go(ready: Ready, made: Future[int | None]) -> None:
    later(lambda: _freed(ready, made.result()))


def _freed(ready: Ready, buffer: int | None) -> None:
    with suppress(CompilationError):
        ready.content(buffer)
