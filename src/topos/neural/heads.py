"""Attention of several heads, with its projections, and what it keeps to go on token by token."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from topos.element import Element, f32
from topos.errors import SettingError
from topos.graph import Tape, Value
from topos.neural.attention import scaled_dot_product
from topos.neural.init import constant
from topos.neural.linear import Linear
from topos.neural.module import Module
from topos.neural.options import divides, extent
from topos.neural.positions import Rotary
from topos.neural.sources import Init, Sources
from topos.shape import Shape


class Attention(Module):
    """Attention of several heads: `[..., tokens, width]` to the same (Vaswani et al. 2017, section 3.2.2).

    Tokens attend one another, or with a `context`, `[..., places, width]`, what that has at each place; queries are of
    the tokens in either case. With `layer(x, context=x)` every bit is that of `layer(x)`.

    `inward` is one dense layer to the queries of all heads, then the keys, then the values; each head attends by
    `scaled_dot_product`, with `mask` and `where` as there, and `outward` joins them. With fewer `groups` than `heads`
    there are keys and values for each group only, shared by its heads in order (Ainslie et al. 2023, "GQA"). A `rotary`
    turns queries and keys. A mask that is a payload becomes a constant in each call; one that is a value is shared.
    Raises `ShapeError` where heads do not divide the width, or groups the heads.
    """

    def __init__(
        self,
        tape: Tape,
        width: int,
        heads: int,
        init: Init,
        *,
        groups: int | None = None,
        bias: bool | Init = True,
        rotary: Rotary | None = None,
        element: Element | None = None,
        name: str | None = None,
    ) -> None:
        sources = Sources(tape, "Attention", name)
        self.path = sources.path
        self.width, self.heads = extent(self.refusal, "width", width), extent(self.refusal, "heads", heads)
        self.groups = self.heads if groups is None else extent(self.refusal, "groups", groups)
        width, heads = self.width, self.heads
        divides(self.refusal, "heads", heads, "the width", width)
        divides(self.refusal, "groups", self.groups, "the heads", heads)
        if not isinstance(rotary, Rotary | None):
            raise SettingError(f"{self.called} wants a Rotary or none, got {type(rotary).__name__}")
        columns = (heads + 2 * self.groups) * (width // heads)
        self.inward = Linear(tape, width, columns, init, bias=bias, element=element, name=sources.called("inward"))
        self.outward = Linear(tape, width, width, init, bias=bias, element=element, name=sources.called("outward"))
        self.rotary = rotary

    def express(self, x: Value, mask: Any = None, where: Any = None, context: Value | None = None) -> Value:
        query, key, value = self._projected(x, None) if context is None else self._crossed(x, context)
        return self._attended(query, key, value, mask, where)

    def decode(self, x: Value, at: Value, cache: KeyValueCache) -> tuple[Value, dict[Value, Value]]:
        """One token, `[..., 1, width]`, at the place that the selection `at` names: `(y, carry)`.

        Its key and value take that place in the cache, and it attends them and all before. An entry that carries
        `carry` keeps them.
        """
        self.tape_of(x)
        if x.shape.rank < 2 or x.shape[-2] != 1:
            raise self.refusal(f"wants one token at a time to decode, got {x.shape}")
        if not isinstance(cache, KeyValueCache):
            raise self.refusal(f"wants a KeyValueCache to decode, got {type(cache).__name__}")
        query, *fresh = self._projected(x, at)
        kept = [x.tape.resolve(source) for source in (cache.keys, cache.values)]
        key, value = (cache.updated(source, new, at) for source, new in zip(kept, fresh, strict=True))
        y = self._attended(query, _like(key, query), _like(value, query), None, cache.reached(at))
        return y, dict(zip(kept, (key, value), strict=True))

    def _projected(self, x: Value, at: Value | None) -> tuple[Value, Value, Value]:
        """Queries `[..., heads, tokens, size]`, and keys and values `[..., groups, tokens, size]`."""
        self._expect(x, "tokens")
        columns, heads, groups = self.inward(x), self.heads, self.groups
        if self.rotary is None:
            query, key = self._heads(columns, 0, heads), self._heads(columns, heads, groups)
        else:
            turned = self.rotary(self._heads(columns, 0, heads + groups), at)  # what two read is stored
            query, key = turned.narrow(-3, 0, heads), turned.narrow(-3, heads, groups)
        return query, key, self._heads(columns, heads + groups, groups)

    def _crossed(self, x: Value, context: Value) -> tuple[Value, Value, Value]:
        """The same, with keys and values of a context: each works out its own columns alone."""
        self._expect(x, "tokens")
        self._expect(context, "places")
        if context.shape[:-2] != x.shape[:-2]:
            raise self.refusal(f"wants a context of equal leading axes, got {context.shape} beside {x.shape}")
        heads, groups, size = self.heads, self.groups, self.width // self.heads
        query = self._heads(self.inward.narrowed(x, 0, self.width), 0, heads)
        columns = self.inward.narrowed(context, self.width, 2 * groups * size)
        key, value = (self._heads(columns, start, groups) for start in (0, groups))
        return (query, key, value) if self.rotary is None else (self.rotary(query), self.rotary(key), value)

    def _expect(self, x: Value, rows: str) -> None:
        self.tape_of(x)
        if x.shape.rank < 2 or x.shape[-1] != self.width:
            raise self.refusal(f"wants [..., {rows}, {self.width}], got {x.shape}")

    def _heads(self, columns: Value, start: int, count: int) -> Value:
        """Some columns as heads: `[..., count, tokens, size]`."""
        size = self.width // self.heads
        part = columns.narrow(-1, start * size, count * size)
        return part.reshape([*columns.shape[:-1], count, size]).swap(-3, -2)

    def _attended(self, query: Value, key: Value, value: Value, mask: Any, where: Any) -> Value:
        key, value = self._spread(key), self._spread(value)
        y = scaled_dot_product(query, key, value, mask, where=where).swap(-3, -2)
        return self.outward(y.reshape([*y.shape[:-2], self.width]))  # type: ignore[no-any-return]

    def _spread(self, shared: Value) -> Value:
        """Keys or values of each group for each of its heads."""
        if self.groups == self.heads:
            return shared
        *leading, groups, tokens, size = shared.shape
        spread = shared.broadcast_along(shared.shape.rank - 2, self.heads // groups)
        return spread.reshape([*leading, self.heads, tokens, size])


def _like(kept: Value, query: Value) -> Value:
    """What is kept, in the element of a query."""
    assert query.element is not None
    return kept.to(query.element)


class KeyValueCache(Module):
    """The keys and values of tokens that went before: two inputs of `[..., groups, places, size]` that a State holds.

    `size` is the width of a head. They start at zero; `Attention.decode` replaces one place of them at a time.
    """

    def __init__(
        self, tape: Tape, shape: Iterable[int], *, element: Element | None = None, name: str | None = None
    ) -> None:
        sources = Sources(tape, "KeyValueCache", name)
        self.path = sources.path
        extents = Shape(shape)
        if extents.rank < 3:
            raise self.refusal(f"wants [..., groups, places, size], got {extents}")
        self.places = extents[-2]
        self.keys = sources.input("keys", extents, constant(0), element)
        self.values = sources.input("values", extents, constant(0), element)

    def updated(self, kept: Value, fresh: Value, at: Value) -> Value:
        """What is kept, with what is fresh at the place that a selection names."""
        if not isinstance(at, Value) or at.element is not None or at.shape != [1, self.places]:
            raise self.refusal(f"wants a selection of one of {self.places} places, got {at}")
        if fresh.shape != [*kept.shape[:-2], 1, kept.shape[-1]]:
            raise self.refusal(f"of {kept.shape} has no place for {fresh.shape}")
        assert kept.element is not None
        chosen = at.reshape([self.places, 1]).broadcast_to(kept.shape)
        return chosen.select(fresh.to(kept.element).broadcast_to(kept.shape), kept)

    def reached(self, at: Value) -> Value:
        """One for the place that a selection names and those before it, zero for what comes later: `[1, places]`."""
        places = at.tape.leaf(np.arange(self.places).reshape(self.places, 1), element=f32)
        here = places.gather(at).reshape([1]).broadcast_along(1, self.places)
        return here.step(places.reshape([1, self.places]))
