"""Payloads on their way into a file and out of it: a tensor of the file, one number, or ids."""

from __future__ import annotations

from typing import Any

import numpy as np

from topos.element import Element
from topos.element.element import Array
from topos.errors import CheckpointError, FeedError
from topos.shape import Shape
from topos.storage.elements import as_element, as_stored
from topos.storage.opcodes import bits
from topos.storage.tensors import TensorFile
from topos.storage.text import Facts
from topos.tensor import Tensor
from topos.tensor.payload import everywhere
from topos.tensor.selection import checked_ids


class Stored:
    """The tensors of a file in the making, by name; a payload that stands twice is stored once."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self._known: dict[int, tuple[Tensor, dict[str, Any]]] = {}

    def document(self, payload: Tensor, role: str, label: str) -> dict[str, Any]:
        """What the header says of a payload: the name of a tensor, the bits of the number that fills it, or ids."""
        known = self._known.get(id(payload))
        if known is None:
            known = self._known[id(payload)] = payload, self._put(payload, f"{role}.{label}")
        return known[1]

    def _put(self, payload: Tensor, name: str) -> dict[str, Any]:
        if payload.ids is not None:
            return {"ids": self._add(name, payload.ids), "vocab": payload.vocab}
        constant = payload.as_constant()
        if constant is not None:
            return {"fill": constant.numpy().astype(constant.numpy().dtype.newbyteorder("<")).tobytes().hex()}
        return {"tensor": self._add(name, as_stored(payload.numpy()))}

    def _add(self, name: str, array: Array) -> str:
        while name in self.arrays:
            name += "'"
        self.arrays[name] = array
        return name


class Found:
    """The payloads of a file that is read; those that were one are one again."""

    def __init__(self, file: TensorFile) -> None:
        self._file = file
        self._known: dict[tuple[str, Shape, Element], Tensor] = {}

    def payload(self, facts: Facts, shape: Shape, element: Element | None, common: Element) -> Tensor:
        """What a node's or slot's payload is; `element` is `None` for a selection.

        Raises `CheckpointError` for a payload that the file does not have, or of another shape or element.
        """
        if element is None:
            tensor = self._selection(facts, shape, common)
        elif (digits := facts.take("fill", str, None)) is not None:
            number = np.frombuffer(bits(facts, digits, element.dtype.itemsize), element.dtype.newbyteorder("<"))
            tensor = Tensor.of(everywhere(number.astype(element.dtype).reshape(()), shape), element, shape)
        else:
            tensor = self._dense(facts.take("tensor", str), shape, element)
        facts.end()
        return tensor

    def _dense(self, name: str, shape: Shape, element: Element) -> Tensor:
        key = name, shape, element
        if key not in self._known:
            stored = self._array(name)
            try:
                array = as_element(stored, element)
            except CheckpointError as error:
                raise CheckpointError(f"tensor {name!r}: {error}") from None
            if array.shape != shape:
                raise CheckpointError(f"tensor {name!r}: has shape {Shape(array.shape)}, its node wants {shape}")
            self._known[key] = self._file.held(array, element)
        return self._known[key]

    def _selection(self, facts: Facts, shape: Shape, common: Element) -> Tensor:
        name, vocab = facts.take("ids", str), facts.take("vocab", int)
        ids = self._array(name)
        if ids.dtype != np.int64 or (ids.size, vocab) != shape or ids.ndim != 1:
            raise CheckpointError(f"tensor {name!r}: {ids.dtype} {Shape(ids.shape)} are no ids of a selection {shape}")
        try:
            return Tensor.of_ids(checked_ids(np.asarray(ids), vocab, -1, f"tensor {name!r}"), vocab, common)
        except FeedError as error:
            raise CheckpointError(str(error)) from None

    def _array(self, name: str) -> Array:
        if name not in self._file:
            raise CheckpointError(f"tensor {name!r}: the spec names it, the file does not have it")
        return self._file.array(name)
