"""Initialisers that draw: closures over a stream, in order of the calls or keyed by path."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np

from topos.element import Element
from topos.errors import ElementError, KinshipError
from topos.neural.stream import Stream
from topos.shape import Shape
from topos.tensor import Tensor

Array = np.ndarray[Any, np.dtype[Any]]
Draw = Callable[[Stream, Shape], Array]
"""The f64 numbers of a payload of a shape, in row-major order; flat or of that shape."""


class Seeded:
    """An initialiser: `init(shape, element)` is a payload of the numbers that come next in the stream of a seed.

    Calls go on in the stream, so that two layers get different numbers, and the same calls in the same order get the
    same ones, on every machine. Numbers are drawn in f64 and become the element's by `element.sample` where it has
    that, else rounded once. Raises `ElementError` for an element that has neither `sample` nor `round`.
    """

    def __init__(self, rule: str, seed: int, draw: Draw) -> None:
        self._rule, self._stream, self._draw = rule, Stream(seed), draw

    def __call__(self, shape: Iterable[int], element: Element) -> Tensor:
        extents = Shape(shape)
        numbers = self._draw(self._stream, extents).reshape(tuple(extents))
        return made(self._rule, numbers, element)

    def keyed(self) -> Keyed:
        """The same distribution, drawn for each parameter from a stream of its own that its path gives."""
        return Keyed(self._rule, self._stream.seed, self._draw)

    def __repr__(self) -> str:
        return f"init.{self._rule}(seed={self._stream.seed}, position={self._stream.position})"


class Keyed:
    """What a layer asks for an initialiser by the path of a parameter: adding a layer moves no other weight.

    `keyed.at("h0.qkv.weight")` draws from the stream of the seed `mixed(seed ^ fnv1a(path))`, from its beginning: the
    same path starts with the same numbers, whatever else a model has.
    """

    def __init__(self, rule: str, seed: int, draw: Draw) -> None:
        self._rule, self._stream, self._draw = rule, Stream(seed), draw

    def at(self, path: str) -> Seeded:
        """The initialiser of a path."""
        if not isinstance(path, str):
            raise KinshipError(f"init.{self._rule}: a path is a string, got {path!r}")
        try:
            path.encode()
        except UnicodeEncodeError as error:
            raise KinshipError(f"init.{self._rule}: the path {path!r} is no text: {error.reason}") from None
        return Seeded(self._rule, self._stream.at(path).seed, self._draw)

    def __call__(self, shape: Iterable[int], element: Element) -> NoReturn:
        raise KinshipError(f"init.{self._rule}: keyed by path, and asked for none; keyed.at(path) is an initialiser")

    def __repr__(self) -> str:
        return f"init.{self._rule}(seed={self._stream.seed}).keyed()"


def made(rule: str, numbers: Array, element: Element) -> Tensor:
    """Real numbers as a payload of an element, each rounded once or as its `sample` says."""
    if not isinstance(element, Element):
        raise ElementError(f"init.{rule}: wants an element such as f32, got {element!r}")
    if element.sample is not None:
        array = np.asarray(element.sample(numbers))
        if array.dtype != element.dtype or array.shape != numbers.shape:
            found, wanted = f"{array.dtype} {Shape(array.shape)}", f"{element.dtype} {Shape(numbers.shape)}"
            raise ElementError(f"init.{rule}: element {element}: its sample answered {found}, wants {wanted}")
        return Tensor(array, element)
    kind = type(element)
    if kind.round is Element.round and kind.admit is Element.admit:
        raise ElementError(f"init.{rule}: element {element} makes no numbers of real ones; give it `round` or `sample`")
    return Tensor(numbers, element)
