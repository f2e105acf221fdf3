"""What one native call is prepared with: a table whose words say where everything lies, and what they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from numpy import ndarray

from topos.element import Element
from topos.engine.code import NativeCode
from topos.engine.feeds import Feeds, Stack, fits, read_feed, same_extents_as
from topos.graph.spec import Spec
from topos.shape import Shape
from topos.tensor import Tensor
from topos.tensor.memory import address_of

Wanted = tuple[int, int, Element | None, Shape, Callable[[tuple[int, ...]], bool], bool]
"""Of an input that is fed: its row, its word, and which tensors may be read as they stand."""


class Binding:
    """A table of native code, pointed at what a `Table` of payloads held at one moment and at feeds of one kind.

    At the same `moment`, and for feeds under the same `keys` in the same order, a call has nothing to look up: it
    points the words of the feeds at the new ones, and goes. It `repeats` if it is bound to calls of many steps. A
    binding keeps no payload alive, and is used by one call at a time.
    """

    __slots__ = ("_code", "_fed", "_spec", "_words", "keys", "moment", "repeats", "table")

    def __init__(self, spec: Spec, code: NativeCode) -> None:
        self._spec = spec
        self._code = code
        self.table = code.table()
        self._words = self.table.words
        self.moment: object = None
        self.keys: tuple[Any, ...] | None = None
        self.repeats = False
        self._fed: Sequence[Wanted] = ()

    def bind(
        self, given: Mapping[int, Tensor | Stack], fed: Feeds, moment: object, is_settled: bool, repeats: bool
    ) -> None:
        """Points the table at every payload, those of the feeds among them, as they are held at a moment."""
        self.moment = moment if self._code.point(self.table, given, is_settled) else None
        self._fed = [self._wanted(row) for row in fed.rows]
        self.keys, self.repeats = fed.keys, repeats
        self._move(fed.stacked)

    def _wanted(self, row: int) -> Wanted:
        code, recorded, ids = self._code, self._spec.rows[row], self._spec.ids.get(row)
        complete = ids is not None and ids.absent is None
        word, shape = code.places.get(row, code.unread), recorded.shape
        return row, word, recorded.element, shape, same_extents_as(shape), complete

    def _move(self, stacks: Mapping[int, Stack]) -> None:
        """Has each step read its own part of these feeds, and all steps the same of the others."""
        for row, word, *_ in self._fed:
            self._code.move(self.table, word, stacks[row].step_bytes if row in stacks else 0)

    def feed(self, payloads: Iterable[Any], steps: int | None = None) -> list[Tensor | Stack]:
        """Points the table at new feeds; answers those that were made for it, to be kept until the call has ended.

        Raises `FeedError` as `read_feeds` does.
        """
        made: list[Tensor | Stack] = []
        stacks: dict[int, Stack] = {}
        words = self._words
        wanted = zip(self._fed, payloads)  # noqa: B905 - to be strict takes as long as to read one
        for (row, word, element, shape, has_extents, complete), payload in wanted:
            if (
                type(payload) is Tensor
                and payload.element is element
                and (payload.shape is shape or has_extents(payload.shape))
                and (not complete or payload.is_complete)
            ):
                words[word] = payload.address
            elif type(payload) is ndarray and fits(payload, element, shape) and payload.flags.carray:
                words[word] = address_of(payload)
            else:
                read = read_feed(self._spec, row, payload, steps)
                words[word] = read.address
                made.append(read)
                if type(read) is Stack:
                    stacks[row] = read
        if steps is not None:
            self._move(stacks)
        return made
