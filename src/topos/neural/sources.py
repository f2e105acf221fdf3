"""Where a module records its sources, and under which names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from topos.element import Element
from topos.errors import KinshipError, SettingError, ShapeError
from topos.graph import Tape, Value
from topos.shape import Shape
from topos.tensor import Tensor

Init = Callable[[Shape, Element], Any]
"""What makes an initial payload of a shape and an element; `topos.init` has them."""


class Sources:
    """The sources of one module, on its tape: named after the module where it was given a name, else nameless.

    `path` is the module's, with the scopes of the tape that are open: what messages name (`module.path`), and what an
    initialiser that is keyed by path draws by.
    """

    def __init__(self, tape: Tape, kind: str, name: str | None) -> None:
        if not isinstance(name, str | None):
            raise KinshipError(f"{kind} wants a text for its name, got {name!r}")
        self.tape = tape
        self.name = name or None
        self.path = ".".join(part for part in (tape.path, name) if part)
        self._kind = kind

    def parameter(self, name: str, shape: Iterable[int], init: Init, element: Element | None = None) -> Value:
        """A parameter of `shape` that starts as `init` says; of the tape's element unless another is given."""
        number = element or self.tape.element
        payload = self._started(self._keyed(init, name), name, shape, number)
        return self.tape.parameter(payload, name=self.called(name), element=number)

    def leaf(self, name: str, shape: Iterable[int], init: Init, element: Element | None = None) -> Value:
        """A constant of `shape` that is what `init` says; of the tape's element unless another is given."""
        number = element or self.tape.element
        return self.tape.leaf(self._started(init, name, shape, number), name=self.called(name), element=number)

    def input(self, name: str, shape: Iterable[int], init: Init, element: Element | None = None) -> Value:
        """An input of `shape` that is, unfed, what `init` says; of the tape's element unless another is given."""
        number = element or self.tape.element
        return self.tape.input(self._started(init, name, shape, number), name=self.called(name), element=number)

    def called(self, name: str) -> str | None:
        """The name of a source or of a part, after the module's; none where the module has none."""
        return None if self.name is None else f"{self.name}.{name}"

    def _started(self, init: Init, name: str, shape: Iterable[int], element: Element) -> Any:
        """What an initialiser answers, which has to be of the shape that it was asked for."""
        extents, called = Shape(shape), f"{self.path}: {self._kind}" if self.path else self._kind
        if not callable(init):
            raise SettingError(
                f"{called} wants an initialiser of its {name}, such as init.kaiming(seed=1), got {init!r:.60}"
            )
        payload = init(extents, element)
        found = Shape(payload.shape if isinstance(payload, Tensor) else np.shape(payload))
        if found != extents:
            raise ShapeError(f"{called} wants a {name} of {extents}, its initialiser answered {found}")
        return payload

    def _keyed(self, init: Init, name: str) -> Init:
        at: Callable[[str], Init] | None = getattr(init, "at", None)
        if at is None:
            return init
        if self.name is None:
            raise KinshipError(f"{self._kind}: an initialiser that is keyed by path wants a module with a name")
        return at(f"{self.path}.{name}")
