"""Elements by name: a file says which one, the program that reads it says what it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from topos.element import Element, bf16, f32, f64
from topos.element.element import Array
from topos.errors import CheckpointError
from topos.storage.dtypes import code_of

BUILT_IN: dict[str, Element] = {element.name: element for element in (f32, f64, bf16)}


class NamedElements:
    """The elements that a file names, on the way out; a user's is held to one name, and that to one element."""

    def __init__(self) -> None:
        self._others: dict[str, Element] = {}

    def name(self, element: Element) -> str:
        """What the file calls an element. Raises `CheckpointError` where another one has that name."""
        known = BUILT_IN.get(element.name) or self._others.setdefault(element.name, element)
        if known is not element:
            raise CheckpointError(f"element {element.name}: two elements have this name, and a file has names alone")
        if element.dtype.hasobject:
            raise CheckpointError(f"element {element.name}: its numbers are Python objects, which no file holds")
        return element.name

    def document(self) -> dict[str, str]:
        """The user's elements, each with the dtype that its numbers have in this file."""
        return {name: str(element.dtype) for name, element in self._others.items()}


def given_elements(document: Any, elements: Mapping[str, Element]) -> dict[str, Element]:
    """The elements that a file names: the built-in ones, and of those that the reader was given, its own.

    Raises `CheckpointError` for one that was not given, or whose numbers are of another dtype than the file's.
    """
    if not isinstance(document, dict):
        raise CheckpointError(f"elements: wants an object, got {document!r:.40}")
    found = dict(BUILT_IN)
    for name, dtype in document.items():
        element = elements.get(name)
        if not isinstance(element, Element):
            raise CheckpointError(
                f"element {name}: is not one of topos; give it to load(path, elements={{{name!r}: ...}})"
            )
        if str(element.dtype) != dtype:
            raise CheckpointError(
                f"element {name}: the file's numbers are {dtype}, the given element's {element.dtype}"
            )
        found[name] = element
    return found


def as_stored(array: Array) -> Array:
    """Numbers as the format has them: of a dtype that it does not have, as the bytes of each, along a last axis."""
    if code_of(array.dtype) is not None:
        return array
    dense = np.asarray(array, order="C")
    return dense.reshape(-1).view(np.uint8).reshape(*array.shape, array.dtype.itemsize)


def as_element(array: Array, element: Element) -> Array:
    """What `as_stored` was given, of the element's dtype. Raises `CheckpointError` for numbers that are not its own."""
    if array.dtype == element.dtype:
        return array
    size = element.dtype.itemsize
    if code_of(element.dtype) is not None or array.dtype != np.uint8 or array.shape[-1:] != (size,):
        raise CheckpointError(f"wants numbers of {element}, got {array.dtype} {list(array.shape)}")
    return np.array(array, order="C").reshape(-1).view(element.dtype).reshape(array.shape[:-1])
