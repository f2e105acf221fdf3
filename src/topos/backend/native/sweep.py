"""A loop over contiguous numbers by whole vectors, and its three ways to end where the length is no multiple."""

from __future__ import annotations

from collections.abc import Callable

from topos.backend.native.registers import Integer
from topos.backend.native.text import Function


def sweep(
    function: Function,
    length: int,
    lanes: int,
    body: Callable[[Integer, int | None], None],
    begin: Integer = 0,
    end: Integer | None = None,
    overlapping: bool = False,
) -> None:
    """Writes `body(index, count)` for vectors at `begin, begin + lanes, ...` below `end`.

    `count` is None for a whole vector. `length` is where the numbers end; `begin` and `end` cut a part out of them for
    one tile: multiples of `lanes`, but that `end` may lie at or past the length. The rest is one more round over its
    first `count` lanes, written (and compiled) a second time. `overlapping` allows the last round to start early and
    do some numbers twice instead, which costs nothing: results must then lie apart from operands, or be the same when
    computed again.
    """
    whole = length // lanes * lanes
    end = length if end is None else end

    def last_early(index: Integer) -> None:
        body(function.least(index, length - lanes), None)

    if overlapping and lanes < length:
        function.loop(begin, function.least(end, length), lanes, last_early if whole < length else whole_at(body))
        return
    function.loop(begin, function.least(end, whole), lanes, whole_at(body))
    if whole == length:
        return
    if isinstance(end, int):
        if end > whole:
            body(whole, length - whole)
    else:
        function.when(function.below(whole, end), lambda: body(whole, length - whole))


def whole_at(body: Callable[[Integer, int | None], None]) -> Callable[[Integer], None]:
    """The body as a round of a loop."""
    return lambda index: body(index, None)
