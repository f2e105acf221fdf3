"""Programs drawn so that values are moved, summed and multiplied in turn; a seed decides everything of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from topos import Network, Symbol, Tape, Tensor, Value, bf16, f32, f64
from topos.element import Element


class Mixture(NamedTuple):
    """A network, what is read of it, what is carried and what is fed."""

    network: Network
    results: list[Symbol]
    carry: dict[Symbol, Symbol]
    feeds: dict[Symbol, Any]


class Drawing:
    """A program in the making: values, and what may be done with them."""

    MOST = 3000

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.element: Element = (f32, f32, f64, bf16)[self.whole(4)]
        self.is_tame = self.random.random() < 0.5
        self.tape = Tape(self.element)
        self.values: list[Value] = []
        self.sources: list[Value] = []
        self.feeds: dict[Value, Any] = {}

    # numbers
    def whole(self, limit: int) -> int:
        return int(self.random.integers(limit))

    def one(self, options: Sequence[Any]) -> Any:
        return options[self.whole(len(options))]

    def numbers(self, shape: Sequence[int]) -> Any:
        drawn = self.random.normal(0, 1, tuple(shape))
        if not self.is_tame:
            rare = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -3e38, 1.0])
            drawn = np.where(self.random.random(tuple(shape)) < 0.03, self.random.choice(rare, tuple(shape)), drawn)
        drawn = np.where(self.random.random(tuple(shape)) < 0.1, self.random.choice([0.0, -0.0], tuple(shape)), drawn)
        return drawn

    # sources
    def source(self, shape: Sequence[int]) -> Value:
        kind = self.whole(5)
        with np.errstate(all="ignore"):
            payload = self.element.round(self.numbers(shape))
            if kind < 2:
                value = self.tape.parameter(payload)
            elif kind == 2:
                value = self.tape.input(payload)
                if self.whole(2):
                    self.feeds[value] = self.element.round(self.numbers(shape))
            elif kind == 3:
                return self.tape.leaf(payload)
            else:
                return self.tape.leaf(Tensor.filled(shape, self.one([0.0, -0.0, 1.0, 0.5, -2.0]), self.element))
        self.sources.append(value)
        return value

    def shape(self) -> list[int]:
        extents = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 17, 24, 33, 40)
        found = [self.one(extents) for _ in range(1 + self.whole(4))]
        while np.prod(found) > self.MOST:
            found[int(np.argmax(found))] = 2
        if self.whole(12) == 0:
            return [self.one((513, 600, 1030)), self.one((1, 2, 3, 5))][:: self.one((1, -1))]
        return found

    # instructions
    def moved(self, x: Value) -> Value:
        """A movement that keeps every number."""
        rank = x.shape.rank
        way = self.whole(5)
        if way < 2 and rank > 1:
            return x.permute([int(axis) for axis in self.random.permutation(rank)])
        if way == 2 and rank > 1:
            at = self.whole(rank - 1)
            return x.reshape([*x.shape[:at], x.shape[at] * x.shape[at + 1], *x.shape[at + 2 :]])
        splits = [(axis, part) for axis in range(rank) for part in (2, 3, 4, 5, 8) if not x.shape[axis] % part]
        if splits and rank < 5:
            axis, part = self.one(splits)
            return x.reshape([*x.shape[:axis], x.shape[axis] // part, part, *x.shape[axis + 1 :]])
        return x

    def cut(self, x: Value) -> Value:
        """A movement that leaves numbers out, repeats them, or puts some around them."""
        if not x.shape.rank:
            return x
        axis = self.whole(x.shape.rank)
        extent = x.shape[axis]
        way = self.whole(6)
        if way == 0 and extent > 1:
            start = self.whole(extent)
            return x.narrow(axis, start, 1 + self.whole(extent - start))
        if way == 1:
            start, end = self.whole(3), self.whole(3)
            return x.pad(axis, start, start + extent + end, self.one([0.0, -0.0, 1.5, float("-inf")]))
        if way == 2 and extent > 1:
            size = 1 + self.whole(min(extent, 4))
            step, dilation = 1 + self.whole(3), 1 + self.whole(2)
            if (size - 1) * dilation < extent:
                return x.unfold(axis, size, step, dilation)
        if way == 3 and x.shape.rank > 1:
            at = self.whole(x.shape.rank - 1)  # windows of the last axis over one before
            windows, size = x.shape[at], x.shape[-1]
            step = self.one([size, 1 + self.whole(3)])
            full = (windows - 1) * step + size + self.one([0, 0, 1])
            return x.fold(at, size, step, 1, full)
        if way == 4:
            return x.broadcast_along(self.whole(x.shape.rank + 1), self.one((1, 2, 3, 8)))
        return x

    def mapped(self, x: Value) -> Value:
        kinds: list[Callable[[Value], Value]] = [
            lambda x: x * 0.5, lambda x: x + 1.0, lambda x: -x, lambda x: x.relu(), lambda x: x - x.zero_like(),
            lambda x: x.abs(), lambda x: x.zero_like() + x, lambda x: x.stop(), lambda x: x * x, lambda x: x.exp(),
            lambda x: x.tanh(), lambda x: x.gelu(), lambda x: x.to(self.one([f32, f64, bf16])).to(self.element),
            lambda x: x.sigmoid(), lambda x: x.erf(), lambda x: x.expm1(), lambda x: x.step(0.25),
        ]  # fmt: skip
        return self.one(kinds)(x)

    def met(self, x: Value) -> Value:
        """An elementwise instruction over two values of a shape."""
        others = [value for value in self.values if sorted(value.shape) == sorted(x.shape)]
        other = self.one(others) if others and self.whole(4) else self.source(x.shape)
        if other.shape != x.shape:
            order = sorted(range(other.shape.rank), key=lambda axis: other.shape[axis])
            wanted = sorted(range(x.shape.rank), key=lambda axis: x.shape[axis])
            places = dict(zip(wanted, order, strict=True))
            other = other.permute([places[axis] for axis in range(x.shape.rank)])
        elif self.whole(4) == 0 and len(set(x.shape)) < x.shape.rank:
            axes = [axis for axis in x.shape.axes if list(x.shape).count(x.shape[axis]) > 1]
            same = [axis for axis in axes if x.shape[axis] == x.shape[axes[0]]]
            other = other.swap(same[0], same[1])
        kinds: list[Callable[[Value, Value], Value]] = [
            lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x - y, lambda x, y: y.select(x, y),
            lambda x, y: y.step(0.0).select(x, x.zero_like()), lambda x, y: x.maximum(y), lambda x, y: x / y,
        ]  # fmt: skip
        return self.one(kinds)(x, other)

    def reduced(self, x: Value) -> Value:
        if not x.shape.rank:
            return x
        axis = self.whole(x.shape.rank)
        extent = x.shape[axis]
        kinds: list[Callable[[Value], Value]] = [
            lambda x: x.sum_along(axis), lambda x: x.max_along(axis), lambda x: x.softmax(axis),
            lambda x: x.log_softmax(axis), lambda x: x.logsumexp(axis), lambda x: x.mean_along(axis),
            lambda x: x - x.mean_along(axis).broadcast_along(axis, extent),
            lambda x: x * x.sum_along(axis).broadcast_along(axis, extent),
            lambda x: x * x.max_along(axis).broadcast_along(axis, extent),
            lambda x: x.sum().broadcast(x.shape) + x,
        ]  # fmt: skip
        return self.one(kinds)(x)

    def product(self, x: Value) -> Value:
        if x.shape.rank < 2:
            return x
        *leading, rows, terms = x.shape
        columns = self.one((1, 2, 3, 8, 9, 16, 17, 33, 64))
        if self.whole(5) == 0:
            return x @ x.transpose()
        other = self.source([*leading, terms, columns])
        if self.whole(3) == 0:
            other = self.source([*leading, columns, terms]).transpose()
        for _ in range(self.one((0, 0, 1, 2))):
            other = self.one([self.mapped, self.met])(other)
        return x @ other if self.whole(4) else other.transpose() @ x.transpose()

    def attention(self, x: Value) -> Value:
        if x.shape.rank < 2:
            return x
        *leading, rows, depth = x.shape
        keys = self.one((1, 3, 8, 17, 40))
        scores = x @ self.source([*leading, keys, depth]).transpose()
        if self.whole(2):
            scores = scores * 0.3
        if self.whole(2):
            mask = self.tape.leaf(np.tril(np.ones((rows, keys)), self.one((0, keys - rows))))
            for extent in reversed(leading):
                mask = mask.broadcast_along(0, extent)
            scores = mask.select(scores, self.one([float("-inf"), -1e9]))
        self.values.append(scores)
        chances = scores.softmax(-1)
        self.values.append(chances)
        return chances @ self.source([*leading, keys, self.one((1, 3, 8, 16))])

    def convolution(self, x: Value) -> Value:
        if x.shape.rank != 4 or min(x.shape[2:]) < 2:
            return x
        size, step, pad = self.one((1, 2, 3)), self.one((1, 1, 2)), self.one((0, 1))
        if pad:
            x = x.pad(2, pad, x.shape[2] + 2 * pad).pad(3, pad, x.shape[3] + 2 * pad)
        if size > min(x.shape[2:]):
            return x
        windows = x.unfold(3, size, step).unfold(2, size, step).permute([0, 2, 4, 1, 3, 5])
        images, height, width, channels = windows.shape[:4]
        filters = self.one((1, 4, 8, 9))
        rows = windows.reshape([images * height * width, channels * size * size])
        if rows.shape.volume > 8 * self.MOST:
            return x
        kernel = self.source([filters, channels * size * size])
        y = (rows @ kernel.transpose()).reshape([images, height, width, filters]).permute([0, 3, 1, 2])
        return y + self.source([1, filters, 1, 1]).broadcast_to(y.shape) if self.whole(2) else y

    def gathered(self, x: Value) -> Value:
        if x.shape.rank != 2:
            return x
        ids = Tensor.selection(self.random.integers(0, x.shape[0], self.one((1, 4, 9))), x.shape[0])
        picked = self.tape.leaf(ids)
        return x.gather(picked) if self.whole(2) else picked @ x

    # all together
    def step(self) -> None:
        weighted = [
            (self.moved, 8), (self.cut, 4), (self.mapped, 7), (self.met, 6), (self.reduced, 4), (self.product, 3),
            (self.attention, 1), (self.convolution, 2), (self.gathered, 1),
        ]  # fmt: skip
        made = self.one([kind for kind, weight in weighted for _ in range(weight)])
        x = self.values[-1 - min(self.whole(4), self.whole(len(self.values)))]
        y = made(x)
        if y.shape.volume and y.shape.volume <= self.MOST and y is not x:
            self.values.append(y)

    def mixture(self) -> Mixture:
        for _ in range(1 + self.whole(2)):
            self.values.append(self.source(self.shape()))
        for _ in range(3 + self.whole(22)):
            self.step()
        tape = self.tape
        results: list[Value] = []
        gradients: dict[Value, Value] = {}
        if self.whole(4):
            target = self.values[-1].sum()
            for value in self.values[-3:-1]:
                target = target + (value * value).sum() if self.whole(2) else target
            gradients = dict(tape.differentiate(target, self.sources)) if self.sources else {}
            results.append(target)
        results += [self.one(self.values) for _ in range(self.whole(4))]
        results += [gradient for gradient in gradients.values() if self.whole(3) == 0]
        carry = self.carried(gradients)
        if self.whole(4) == 0 and self.sources:
            results.append(self.one(self.sources))
        if not results and not carry:
            results.append(self.values[-1])
        symbols = [*dict.fromkeys(value.symbol() for value in results)]
        feeds = {value.symbol(): payload for value, payload in self.feeds.items()}
        carries = {source.symbol(): following.symbol() for source, following in carry.items()}
        return Mixture(tape.into_network(), symbols, carries, feeds)

    def carried(self, gradients: Mapping[Value, Value]) -> dict[Value, Value]:
        carry: dict[Value, Value] = {}
        if not self.whole(3):
            return carry
        for source in self.sources:
            alike = [v for v in (*self.values, *self.sources, *gradients.values()) if v.shape == source.shape]
            way = self.whole(7)
            if way < 3 and source in gradients:
                carry[source] = source - gradients[source] * 0.1
            elif way == 3 and source in gradients:  # with a momentum
                moment = self.tape.parameter(np.zeros(source.shape))
                carry[moment] = moment * 0.9 + gradients[source]
                carry[source] = source - carry[moment] * 0.1
            elif way == 4:
                carry[source] = self.one(alike) if alike else source
            elif way == 5:
                carry[source] = source * self.one(alike).tanh() + self.one(alike) if alike else source
        return carry
