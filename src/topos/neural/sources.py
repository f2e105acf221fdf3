"""Where a module records its sources, and under which names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from topos.element import Element
from topos.errors import KinshipError, SettingError
from topos.graph import Tape, Value
from topos.shape import Shape

Init = Callable[[Shape, Element], Any]
"""What makes an initial payload of a shape and an element; `topos.init` has them."""


class Sources:
    """The sources of one module, on its tape: named after the module where it was given a name, else nameless.

    `path` is the module's, with the scopes of the tape that are open: what messages name (`module.path`), and what an
    initialiser that is keyed by path draws by.
    """

    def __init__(self, tape: Tape, kind: str, name: str | None) -> None:
        self.tape = tape
        self.name = name
        self.path = ".".join(part for part in (tape.path, name) if part)
        self._kind = kind

    def parameter(self, name: str, shape: Iterable[int], init: Init, element: Element | None = None) -> Value:
        """A parameter of `shape` that starts as `init` says; of the tape's element unless another is given.

        Raises `SettingError` where `init` is not a function.
        """
        extents, number = Shape(shape), element or self.tape.element
        if not callable(init):
            raise SettingError(f"{self._kind}: wants an initialiser, such as init.kaiming(seed=1), got {init!r}")
        payload = self._keyed(init, name)(extents, number)
        return self.tape.parameter(payload, name=self.called(name), element=number)

    def leaf(self, name: str, shape: Iterable[int], init: Init, element: Element | None = None) -> Value:
        """A constant of `shape` that is what `init` says; of the tape's element unless another is given."""
        extents, number = Shape(shape), element or self.tape.element
        return self.tape.leaf(init(extents, number), name=self.called(name), element=number)

    def input(self, name: str, shape: Iterable[int], init: Init, element: Element | None = None) -> Value:
        """An input of `shape` that is, unfed, what `init` says; of the tape's element unless another is given."""
        extents, number = Shape(shape), element or self.tape.element
        return self.tape.input(init(extents, number), name=self.called(name), element=number)

    def called(self, name: str) -> str | None:
        """The name of a source or of a part, after the module's; none where the module has none."""
        return None if self.name is None else f"{self.name}.{name}"

    def _keyed(self, init: Init, name: str) -> Init:
        at: Callable[[str], Init] | None = getattr(init, "at", None)
        if at is None:
            return init
        if self.name is None:
            raise KinshipError(f"{self._kind}: an initialiser that is keyed by path wants a module with a name")
        return at(f"{self.path}.{name}")
