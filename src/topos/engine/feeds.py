"""The feeds of a run as tensors, all validated before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from topos.element import Element
from topos.element.built_in import BUILT_IN
from topos.element.element import Array
from topos.errors import ElementError, FeedError, KinshipError, ShapeError, restated
from topos.graph import Symbol
from topos.graph.spec import Ids, Spec
from topos.op import Input
from topos.records import NamedTuple
from topos.shape import Shape
from topos.tensor import Tensor
from topos.tensor.memory import address_of, owned
from topos.tensor.payload import as_array, rounded
from topos.tensor.selection import checked_ids

same_extents = tuple.__eq__
"""Of two shapes, or of a shape and an array's: a third of the time that `Shape` takes to compare with anything."""


def same_extents_as(shape: Shape) -> Callable[[tuple[int, ...]], bool]:
    """`same_extents` with a shape that is known before: it asks about another one in half the time again."""
    return super(Shape, shape).__eq__


class Feeds:
    """The feeds of one call by row: one payload for every step, or one per step along a leading axis.

    `keys` are the names or symbols that they came under, in order, `rows` the rows of those. `borrowed` are the
    caller's arrays that were taken without a copy: they are read only during the call.
    """

    __slots__ = ("borrowed", "fixed", "keys", "rows", "stacked")

    def __init__(self) -> None:
        self.keys: tuple[Any, ...] = ()
        self.rows: list[int] = []
        self.fixed: dict[int, Tensor] = {}
        self.stacked: dict[int, Stack] = {}
        self.borrowed: list[Array] = []

    def at(self, step: int) -> dict[int, Tensor]:
        """The payloads of one step."""
        if not self.stacked:
            return self.fixed
        return {**self.fixed, **{index: stack.part(stack.array[step, ...]) for index, stack in self.stacked.items()}}


class Stack(NamedTuple):
    """One payload per step along the leading axis of a C-contiguous array, and what makes a tensor of one."""

    array: Array
    part: Callable[[Array], Tensor]

    @property
    def address(self) -> int:
        """Where the payload of the first step lies."""
        return address_of(self.array)

    @property
    def step_bytes(self) -> int:
        """How far the payloads of two steps lie apart."""
        return self.array.nbytes // len(self.array)


def input_index(spec: Spec, key: Any, length: int) -> int:
    """The row of an input named by symbol or name. Raises `FeedError` for anything else."""
    if type(key) is Symbol and key.family is spec.family and 0 <= key.index < length:
        index = key.index
    elif isinstance(key, str):
        index = spec.by_name.get(key, length)
        if index >= length:
            known = ", ".join(repr(spec.names[i]) for i in sorted(spec.names) if type(spec.rows[i].opcode) is Input)
            raise FeedError(f"feed: no node is named {key!r}; named inputs are: {known or 'none'}")
    else:
        try:
            index = spec.index_of(key, "feed", length)
        except KinshipError as error:
            raise restated(error, FeedError, str(error)) from None
    if type(spec.rows[index].opcode) is not Input:
        raise FeedError(f"feed: {spec.label(index)} is not an input")
    return index


def read_feeds(
    spec: Spec,
    length: int,
    feeds: Mapping[Any, Any] | None,
    *,
    steps: int | None = None,
    copy: bool,
    carried: Collection[int] = (),
) -> Feeds:
    """Every feed as tensors. `steps` is the number of steps where a leading axis may give one payload per step.

    `carried` are the inputs that the run's State holds and nobody feeds.

    Raises `FeedError` that names the input, its recording line and both shapes.
    """
    result = Feeds()
    if feeds is None:
        return result
    if type(feeds) is not dict and not isinstance(feeds, Mapping):
        raise FeedError(f"feed: wants a mapping from symbols or names to payloads, got {type(feeds).__name__}")
    result.keys = tuple(feeds)
    for key, payload in feeds.items():
        index = input_index(spec, key, length)
        if index in result.fixed or index in result.stacked:
            raise FeedError(f"feed: {spec.label(index)} is fed twice")
        if index in carried:
            raise FeedError(f"feed: {spec.label(index)} is carried by this entry; the State holds its value")
        result.rows.append(index)
        _read(spec, index, payload, steps, copy, result)
    return result


def read_feed(spec: Spec, index: int, payload: Any, steps: int | None) -> Tensor | Stack:
    """One feed, as `read_feeds` reads it, for an input that is known; it may read the caller's array."""
    result = Feeds()
    _read(spec, index, payload, steps, False, result)
    return result.fixed[index] if index in result.fixed else result.stacked[index]


def _read(spec: Spec, index: int, payload: Any, steps: int | None, copy: bool, result: Feeds) -> None:
    row = spec.rows[index]
    element = row.element
    if fits(payload, element, row.shape):
        if type(payload) is Tensor:
            result.fixed[index] = payload
            return
        if not copy:
            result.borrowed.append(payload)
            result.fixed[index] = Tensor.of(payload, spec.element_of(index), row.shape)
            return
    try:
        ids = spec.ids.get(index)
        if ids is None:
            _read_dense(spec, index, payload, steps, copy, result)
        else:
            _read_ids(spec, index, ids, payload, steps, result)
    except (ElementError, ShapeError, FeedError) as error:
        raise restated(error, FeedError, f"feed: {spec.label(index)}: {error}") from None


def fits(payload: Any, element: Element | None, shape: Shape) -> bool:
    """Whether a payload is what a dense input wants, as it stands: the usual tensor, the usual array."""
    if element is None:
        return False
    if type(payload) is Tensor:
        return payload.element is element and same_extents(payload.shape, shape)
    if type(payload) is np.ndarray and payload.dtype is element.dtype and element in BUILT_IN:
        return same_extents(shape, payload.shape)
    return False


def _read_dense(spec: Spec, index: int, payload: Any, steps: int | None, copy: bool, result: Feeds) -> None:
    row = spec.rows[index]
    assert row.element is not None
    if isinstance(payload, Tensor):
        if payload.ids is not None:
            raise FeedError("wants a dense payload, got a selection")
        array = payload.expect(row.element).dense(row.element)
    else:
        given = as_array(payload)
        array = rounded(payload, given, row.element)
        if np.may_share_memory(array, given):
            if copy:
                array = owned(array, shared=True)
            else:
                result.borrowed.append(array)
    if array.shape == row.shape:
        result.fixed[index] = Tensor.of(array, row.element, row.shape)
    elif steps is not None and array.shape == (steps, *row.shape):
        element = row.element
        result.stacked[index] = Stack(_in_order(array), lambda part: Tensor.of(part, element, row.shape))
    else:
        raise FeedError(f"wants shape {row.shape}{_or_steps(steps, row.shape)}, got {Shape(array.shape)}")


def _read_ids(spec: Spec, index: int, ids: Ids, payload: Any, steps: int | None, result: Feeds) -> None:
    if isinstance(payload, Tensor):
        if payload.ids is None:
            raise FeedError("wants ids or a selection, got a dense tensor")
        if payload.shape != spec.rows[index].shape:
            raise FeedError(f"wants shape {spec.rows[index].shape}, got {payload.shape}")
        if ids.absent is None and not payload.is_complete:
            raise FeedError("the selection selects nothing in some row, but this input declares no absent id")
        result.fixed[index] = payload.among(spec.element)
        return
    given = as_array(payload)
    if given.shape != ids.shape and (steps is None or given.shape != (steps, *ids.shape)):
        raise FeedError(f"wants ids of shape {ids.shape}{_or_steps(steps, ids.shape)}, got {Shape(given.shape)}")
    checked = checked_ids(given, ids.vocab, ids.absent, "ids")

    def selection(part: Array) -> Tensor:
        return Tensor.of_ids(part.reshape(-1), ids.vocab, spec.element)

    if given.shape == ids.shape:
        result.fixed[index] = selection(checked)
    else:
        result.stacked[index] = Stack(_in_order(checked), selection)


def _in_order(array: Array) -> Array:
    """An array that native code may walk."""
    return np.require(array, None, ("C", "ALIGNED"))


def _or_steps(steps: int | None, shape: Shape) -> str:
    return "" if steps is None else f" (or {Shape((steps, *shape))}, one per step)"
