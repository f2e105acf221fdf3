"""Carried rows that a step replaces: the bits of the whole select, from a kernel that writes those rows alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from topos import Element, Tape, Value, bf16, f32, f64
from topos.testing import assert_same_bits

pytest.importorskip("llvmlite")

Build = Callable[[Value, Value, Value], Value]


class Layout(NamedTuple):
    """How a mask of one-hot rows over `vocab` lies over a cache, and the shape of what is new."""

    cache: tuple[int, ...]
    vocab: int
    new: tuple[int, ...]
    build: Build


LAYOUTS = {
    "positions of heads": Layout(
        (3, 10, 5),
        10,
        (3, 5),
        lambda cache, ids, new: (
            ids.reshape([10]).broadcast_along(0, 3).broadcast_along(2, 5).select(new.broadcast_along(1, 10), cache)
        ),
    ),
    "rows": Layout(
        (10, 7),
        10,
        (7,),
        lambda cache, ids, new: ids.reshape([10]).broadcast_along(1, 7).select(new.broadcast_along(0, 10), cache),
    ),
    "scattered rows": Layout(
        (10, 7),
        10,
        (7,),
        lambda cache, ids, new: ids.reshape([10]).broadcast_along(1, 7).select(new.reshape([1, 7]).scatter(ids), cache),
    ),
    "a window of the ids": Layout(
        (4, 7),
        10,
        (7,),
        lambda cache, ids, new: (
            ids.reshape([10]).narrow(0, 3, 4).broadcast_along(1, 7).select(new.broadcast_along(0, 4), cache)
        ),
    ),
    "the last axis": Layout((4, 10), 10, (4,), lambda cache, ids, new: ids.select(new.broadcast_along(1, 10), cache)),
    "a position of each": Layout(
        (4, 10, 5),
        10,
        (4, 5),
        lambda cache, ids, new: ids.broadcast_along(2, 5).select(new.broadcast_along(1, 10), cache),
    ),
    "ids along the last axis": Layout(
        (10, 4), 10, (4,), lambda cache, ids, new: ids.transpose().select(new.broadcast_along(0, 10), cache)
    ),
    "one number everywhere": Layout(
        (10, 7), 10, (7,), lambda cache, ids, new: ids.reshape([10]).broadcast_along(1, 7).select(0.5, cache)
    ),
}
ONE_ID = {"positions of heads", "rows", "scattered rows", "a window of the ids", "one number everywhere"}


def stepped(layout: Layout, feeds: Sequence[Sequence[int]], element: Element) -> str:
    """Steps with these ids, natively and by the interpreter; answers how the plan explains itself."""
    rng = np.random.default_rng(3)

    def record(tape: Tape) -> Any:
        cache = tape.input(rng.standard_normal(layout.cache), name="cache")
        ids = tape.selection([len(feeds[0])], layout.vocab, absent=-1, name="ids")
        new = tape.input(shape=layout.new, name="new")
        return cache, layout.build(cache, ids, new)

    network, (cache, following) = Tape.record(record, element=element)
    plan = network.entry([]).carry({cache: following}).lower()
    state, expected = network.state(), network.state()
    for ids in feeds:
        fed = {"ids": np.array(ids), "new": rng.standard_normal(layout.new)}
        plan.advance(state, fed)
        run = network.entry(following).interpret(expected, fed)
        expected.replace({cache.index: run.of(following)})
        assert_same_bits(state.of(cache), expected.of(cache))
    return plan.explain()


@pytest.mark.parametrize("element", [f32, f64, bf16], ids=lambda element: element.name)
@pytest.mark.parametrize("name", LAYOUTS)
def test_only_the_rows_that_the_ids_name_are_written(name: str, element: Element) -> None:
    feeds = [[4], [0], [9], [-1]] if name in ONE_ID else [[1, 9, 0, 3], [-1, 2, -1, 2]]
    told = stepped(LAYOUTS[name], feeds, element)
    assert "replace_" in told
    assert " 0 copies" in told


def test_a_cache_that_is_read_after_its_replacement_is_written_whole() -> None:
    def record(tape: Tape) -> Any:
        cache, ids = tape.input(np.ones((10, 3)), name="cache"), tape.selection([1], 10, name="ids")
        following = ids.reshape([10]).broadcast_along(1, 3).select(5.0, cache)
        return cache, following, (cache * following.sum_along(0).broadcast_along(0, 10)).sum_along(1)

    network, (cache, following, after) = Tape.record(record)
    plan, state = network.entry(after).carry({cache: following}).lower(), network.state()
    run = plan.advance(state, {"ids": [2]})
    assert_same_bits(run.of(after), np.full(10, 42, np.float32))
    assert "replace_" not in plan.explain()
    assert state.of(cache).numpy()[:, 0].tolist() == [1, 1, 5, 1, 1, 1, 1, 1, 1, 1]
