"""Where a token stands: tables that are added, and rotations of queries and keys."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from topos.element import Element, f32, f64
from topos.errors import ShapeError
from topos.graph import Tape, Value
from topos.neural.limits import expect_positive
from topos.neural.module import Module
from topos.neural.options import Refuse, extent, refusing
from topos.neural.sources import Init, Sources
from topos.op import concat, stack
from topos.shape import Shape
from topos.tensor import Tensor


def sinusoids(shape: Iterable[int], element: Element = f32) -> Tensor:
    """The table of Vaswani et al. 2017, section 3.5, `[places, width]`; an initialiser, and a payload.

    Column `2 * i` at place `p` is `sin(p / 10000 ** (2 * i / width))` and column `2 * i + 1` the cosine, worked out in
    f64. Raises `ShapeError` where the width is not even.

    >>> sinusoids([2, 2])
    Tensor([[0.        , 1.        ],
            [0.84147096, 0.5403023 ]], f32)
    """
    extents = Shape(shape)
    if extents.rank != 2:
        raise ShapeError(f"sinusoids: wants [places, width], got {extents}")
    turned = _angles(refusing("sinusoids"), extents[0], extents[1], 10000.0)
    return Tensor(stack([turned.sin(), turned.cos()], 2).reshape(extents).convert(element))


class Positions(Module):
    """`x + table`, row by row: `[..., tokens, width]`, of at most `places` tokens.

    `table` is `[places, width]` and starts as `init` says: a parameter, or with `trained=False` a constant, as that of
    `sinusoids`. Token `i` takes row `i`, or the rows that a selection `at` of `places` names, one for each token.
    Raises `ShapeError`.
    """

    def __init__(
        self,
        tape: Tape,
        places: int,
        width: int,
        init: Init,
        *,
        trained: bool = True,
        element: Element | None = None,
        name: str | None = None,
    ) -> None:
        sources = Sources(tape, "Positions", name)
        self.path = sources.path
        shape = [extent(self.refusal, "places", places), extent(self.refusal, "width", width)]
        record = sources.parameter if trained else sources.leaf
        self.table = record("table", shape, init, element)

    def express(self, x: Value, at: Value | None = None) -> Value:
        table = self.resolve(self.table, like=x)
        rows = _rows(self.refusal, table, x, table.shape[1], at)
        return x + rows.broadcast_to(x.shape)


class Rotary(Module):
    """Queries and keys turned by where they stand (Su et al. 2021, "RoFormer", section 3.2.2).

    `[..., tokens, width]`, of at most `places` tokens: column `i` of the first half and column `i` of the second are a
    pair, which place `p` turns by `p / base ** (2 * i / width)`. So do the weights of Llama and GPT-NeoX pair them; the
    paper pairs neighbours, `2 * i` and `2 * i + 1`, which is the same up to the order of columns. The cosines and
    sines, `[places, width / 2]`, are constants, worked out in f64. Token `i` stands at place `i`, or where a selection
    `at` of `places` says, one for each token. Raises `ShapeError`, also for an odd width.
    """

    def __init__(
        self,
        tape: Tape,
        places: int,
        width: int,
        *,
        base: float = 10000.0,
        element: Element | None = None,
        name: str | None = None,
    ) -> None:
        sources = Sources(tape, "Rotary", name)
        self.path = sources.path
        places, width = extent(self.refusal, "places", places), extent(self.refusal, "width", width)
        base = expect_positive(self.called, "base", base)
        turned = _angles(self.refusal, places, width, base)
        shape = [places, width // 2]
        self.cosines = sources.leaf("cosines", shape, lambda shape, element: turned.cos().convert(element), element)
        self.sines = sources.leaf("sines", shape, lambda shape, element: turned.sin().convert(element), element)

    def express(self, x: Value, at: Value | None = None) -> Value:
        tables = self.resolve(self.cosines, like=x), self.resolve(self.sines, like=x)
        half = tables[0].shape[1]
        cosines, sines = (_rows(self.refusal, table, x, 2 * half, at) for table in tables)
        first, second = x.narrow(-1, 0, half), x.narrow(-1, half, half)
        cosines, sines = cosines.broadcast_to(first.shape), sines.broadcast_to(first.shape)
        return concat([first * cosines - second * sines, second * cosines + first * sines], -1)


def _angles(refuse: Refuse, places: int, width: int, base: float) -> Tensor:
    """`p / base ** (2 * i / width)` in f64: `[places, width / 2]`."""
    if width % 2:
        raise refuse(f"wants an even width, got {width}")
    half = width // 2
    frequencies = Tensor.filled([half], base, f64).powf(Tensor(np.arange(0.0, width, 2), f64) / width)
    return Tensor(np.arange(float(places)), f64).broadcast_along(1, half) / frequencies.broadcast_along(0, places)


def _rows(refuse: Refuse, table: Value, x: Value, width: int, at: Value | None) -> Value:
    """The rows of a table for the tokens of `x`."""
    places = table.shape[0]
    if x.shape.rank < 2 or x.shape[-1] != width or (at is None and x.shape[-2] > places):
        raise refuse(f"wants [..., tokens, {width}] of at most {places} tokens, got {x.shape}")
    tokens = x.shape[-2]
    if at is None:
        return table if tokens == places else table.narrow(0, 0, tokens)
    if not isinstance(at, Value) or at.element is not None or at.shape != [tokens, places]:
        raise refuse(f"wants a selection of {tokens} of {places} places, got {at}")
    return table.gather(at)
