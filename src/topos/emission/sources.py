"""Sources: the arguments of the function, parameters first, and the constants of the spec."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from topos.emission.site import Operand, Picks, type_of
from topos.emission.text import Named
from topos.emission.words import DTYPES, Words
from topos.graph.spec import Ids, Spec
from topos.op import Input, Parameter


def arguments(spec: Spec, rows: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The rows that a caller provides, each with its place among the arguments."""
    asked = [row for row in rows if type(spec.rows[row].opcode) in (Parameter, Input)]
    ordered = sorted(asked, key=lambda row: (type(spec.rows[row].opcode) is not Parameter, row))
    return ((row, position) for position, row in enumerate(ordered))


def argument(spec: Spec, row: int, position: int) -> Named:
    """An argument: numbers of the row's shape, or ids of the shape that they are fed in."""
    ids = spec.ids.get(row)
    if ids is not None:
        return Named(f"%arg{position}", tuple(ids.shape), _index_type(ids))
    return Named(f"%arg{position}", tuple(spec.rows[row].shape), type_of(spec.element_of(row)))


def source(spec: Spec, row: int, words: Words, given: Named | None) -> Operand:
    """What stands for a source: the argument given for it, or its constant."""
    if given is not None:
        return _picks(spec.ids[row], words, given) if row in spec.ids else given
    payload, element = spec.payload(row), spec.element_of(row)
    if payload.ids is not None:
        ids = payload.ids.reshape(-1)
        held = words.constant(ids.astype(np.int32), "i32")
        return Picks(words.writer.finish(held), payload.vocab, bool((ids < 0).any()))
    return words.writer.finish(words.constant(payload.dense(element), type_of(element)))


def _picks(ids: Ids, words: Words, given: Named) -> Picks:
    """Ids that were fed, flat, an absent one as -1."""
    flat, count = given, ids.shape.volume
    if given.shape != (count,):
        flat = words.writer.operation("reshape", [given], (count,), given.type, called="flat")
    if ids.absent is not None and ids.absent != -1:
        absent, nothing = (
            words.constant(np.full(count, number, DTYPES[given.type]), given.type, called)
            for number, called in ((ids.absent, "absent"), (-1, "nothing"))
        )
        flat = words.chosen(words.compare("EQ", flat, absent), nothing, flat)
    words.writer.flush()
    return Picks(flat, ids.vocab, ids.absent is not None)


def _index_type(ids: Ids) -> str:
    numbers = (ids.vocab, ids.absent or 0)
    return "i32" if all(-(1 << 31) <= number < 1 << 31 for number in numbers) else "i64"
