"""The one source of randomness: splitmix64, a published stream of 64-bit integers that any language can reproduce."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from topos.element import f64
from topos.engine import Numerics
from topos.errors import SettingError
from topos.shape import Shape
from topos.tensor import Tensor

GAMMA = 0x9E3779B97F4A7C15
"""What the state of the generator grows by from draw to draw: the odd integer next to `2**64 / golden ratio`."""
_WORD = (1 << 64) - 1
_FACTORS = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_PIECE = 1 << 15  # draws worked out at a time: they and what is made of them stay in a cache

Array = np.ndarray[Any, np.dtype[Any]]


class Stream:
    """The draws of a seed in order: draw `i` is `mixed(seed + (i + 1) * GAMMA)`, in integers modulo `2**64`.

    `position` is the number of draws that were taken. A seed is any integer, taken modulo `2**64`. The generator and
    its mixing function: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, with
    the constants of Stafford's variant 13, as `SplittableRandom` and Vigna's `splitmix64.c` have them.

    >>> Stream(1234567).integers(2).tolist()
    [6457827717110365317, 3203168211198807973]
    """

    __slots__ = ("position", "seed")

    def __init__(self, seed: int, position: int = 0) -> None:
        self.seed = expect_seed(seed)
        self.position = position

    def integers(self, count: int) -> Array:
        """The next `count` draws, as unsigned 64-bit integers."""
        first = (self.seed + (self.position + 1) * GAMMA) & _WORD
        self.position += count
        state = np.arange(count, dtype=np.uint64)
        state *= np.uint64(GAMMA)
        state += np.uint64(first)
        return mixed(state)

    def reals(self, count: int) -> Array:
        """The next `count` draws as f64 in `[0, 1)`: their top 53 bits times `2**-53`, exactly."""
        return self._pieces(count, lambda length: (self.integers(length) >> np.uint64(11)) * 2.0**-53)

    def signed(self, count: int) -> Array:
        """The next `count` draws as f64 in `[-1, 1)`: twice the reals less 1, exactly."""
        reals = self.reals(count)
        return reals + reals - 1.0

    def normals(self, count: int) -> Array:
        """Numbers of the standard normal distribution, one for each next two reals `u` and `v`.

        `sqrt(-2 * ln(1 - u)) * cos(2 * pi * v)`, each step rounded to f64, by the `ln` and `cos` of `f64` (Box and
        Muller, "A note on the generation of random normal deviates", 1958).
        """
        return self._pieces(count, self._normals)

    def truncated_normals(self, count: int, limit: float) -> Array:
        """The next `count` of the normals that lie in `[-limit, limit]`; those between them are passed over."""
        found, have = np.empty(count), 0
        while have < count:  # no more than are wanted at a time: the last one that is drawn is one that is kept
            drawn = self.normals(count - have)
            kept = drawn[np.abs(drawn) <= limit]
            found[have : have + kept.size] = kept
            have += kept.size
        return found

    def order(self, count: int) -> Array:
        """A permutation of `0 .. count - 1`, by the next `count - 1` draws (Durstenfeld, "Algorithm 235", 1964).

        For `i = count - 1 .. 1` the entries `i` and `j` are swapped, where `j` is the upper 64 bits of the 128 bits of
        a draw times `i + 1`.
        """
        result = list(range(count))
        extents = range(count, 1, -1)
        for extent, draw in zip(extents, self.integers(max(0, count - 1)).tolist(), strict=True):
            chosen = draw * extent >> 64
            result[extent - 1], result[chosen] = result[chosen], result[extent - 1]
        return np.array(result, np.int64)

    def at(self, path: str) -> Stream:
        """The stream of a path, wherever this one stands: of the seed `mixed(seed ^ fnv1a(path))`."""
        return Stream(int(mixed(np.array([self.seed ^ fnv1a(path)], np.uint64))[0]))

    def _normals(self, count: int) -> Array:
        drawn = self.reals(2 * count)
        with Numerics.exactly():  # the defining bits, whoever computes: many are a native kernel's work
            u, v = (Tensor(np.ascontiguousarray(drawn[part::2]), f64) for part in (0, 1))
            return (((1.0 - u).ln() * -2.0).sqrt() * (v * (2.0 * math.pi)).cos()).numpy()

    @staticmethod
    def _pieces(count: int, draw: Any) -> Array:
        if count <= _PIECE:
            return np.array(draw(count))
        result = np.empty(count)
        for start in range(0, count, _PIECE):
            result[start : start + _PIECE] = draw(min(_PIECE, count - start))
        return result


def expect_seed(seed: Any) -> int:
    """A seed as a stream has it, any integer modulo `2**64`. Raises `SettingError` for anything else."""
    try:
        return operator.index(seed) & _WORD
    except TypeError:
        hint = "; a seed makes the initialiser: init.kaiming(seed=1)" if isinstance(seed, Shape) else ""
        raise SettingError(f"seed: wants an integer, got {seed!r}{hint}") from None


def mixed(state: Array) -> Array:
    """The finalizer of splitmix64 over unsigned 64-bit integers: a bijection in which each bit moves half of all."""
    for shift, factor in zip((30, 27), _FACTORS, strict=True):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(state ^ (state >> np.uint64(31)))


def fnv1a(text: str) -> int:
    """The 64-bit FNV-1a hash of a text's UTF-8 bytes (Fowler, Noll and Vo; RFC 9923).

    >>> hex(fnv1a("a"))
    '0xaf63dc4c8601ec8c'
    """
    result = 0xCBF29CE484222325
    for byte in text.encode():
        result = ((result ^ byte) * 0x100000001B3) & _WORD
    return result
