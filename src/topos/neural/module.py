"""Modules: what a model is made of, holding symbols and never payloads."""

from __future__ import annotations

import dataclasses
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import wraps
from typing import Any

from topos.errors import KinshipError, RecordedError, SettingError, ShapeError
from topos.graph import Symbol, Tape, Value, detach

_DATA = "<data>"
"""Where a module notes which of its symbols are no parameters: under a name that no attribute has."""

_Path = tuple[Any, Any] | None
"""The path of the part around it, and its own name there; none at the root."""


def _whole(read: Callable[..., Any]) -> Callable[..., Any]:
    """A reading of a module that records nothing where it fails, also of Python's stack."""

    @wraps(read)
    def call(self: Module, *inputs: Any, **options: Any) -> Any:
        tape = next((value.tape for value in inputs if isinstance(value, Value)), None)
        try:
            with nullcontext() if tape is None else tape.transaction():
                return read(self, *inputs, **options)
        except RecursionError as error:
            limit = f"its limit is {sys.getrecursionlimit()} calls"
            raise SettingError(f"{self.called} is nested deeper than Python's stack: {limit}") from error

    function: Any = call
    function.__code__ = function.__code__.replace(co_name=read.__name__)  # a node's place reads it off the code
    return call


class Module:
    """A part of a model: `express(input)` records what it does, and so does calling it.

    A call, `train` or `infer` that fails records nothing.

    A value that is assigned to an attribute, alone or inside lists, dicts and dataclasses, is stored as its symbol: a
    module outlives its tape, and a symbol that is assigned twice ties two places to one parameter. Attributes, lists,
    dicts and dataclasses are walked in definition order. What a module was given as a symbol counts as a parameter,
    unless a part of the same model was given it as the value of an input, a constant or a result.

    >>> from topos import Module, Tape, parameters
    >>> class Scale(Module):
    ...     def __init__(self, tape):
    ...         self.factor = tape.parameter(2.0)
    ...
    ...     def express(self, x):
    ...         return x * self.factor
    >>> tape = Tape()
    >>> scale = Scale(tape)
    >>> scale(tape.input(3.0)).symbol(), parameters(scale)
    (%2, [%0])
    """

    path: str = ""
    """The dotted name that it was constructed under; empty where it has none."""

    def __setattr__(self, name: str, value: Any) -> None:
        data: set[Symbol] = self.__dict__.setdefault(_DATA, set())
        object.__setattr__(self, name, _stored(value, data))

    def express(self, *inputs: Any) -> Any:
        """Records what the module does to its inputs, on their tape."""
        raise NotImplementedError(f"{type(self).__name__}.express")

    @_whole
    def train(self, *inputs: Any, **options: Any) -> tuple[Any, dict[Value, Value]]:
        """As `express`, in training: the output, and what an entry carries of it (`entry.carry`), `{source: next}`.

        What moves while it trains overrides this one and `infer` (`BatchNorm`), and so does what is made of such parts.
        """
        return self.express(*inputs, **options), {}

    @_whole
    def infer(self, *inputs: Any, **options: Any) -> Any:
        """As `express`, once training is over."""
        return self.express(*inputs, **options)

    @_whole
    def __call__(self, *inputs: Any, **options: Any) -> Any:
        return self.express(*inputs, **options)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = _whole_or_nothing(cls.__init__)  # type: ignore[method-assign]
        for name in ("train", "infer"):
            if name in vars(cls):
                setattr(cls, name, _whole(vars(cls)[name]))

    def resolve(self, symbol: Symbol | Value, like: Value) -> Value:
        """What a symbol of the module names on the tape of `like`, cast to its element where it is of another."""
        value = self.tape_of(like).resolve(symbol)
        return value if like.element is None else value.to(like.element)

    def tape_of(self, x: Value) -> Tape:
        """The tape of what a module is given. Raises `RecordedError` for numbers, which are on none."""
        if not isinstance(x, Value):
            raise RecordedError(
                f"{self.called} wants a value of a tape, got {type(x).__name__}; numbers are fed to a tape.input, "
                "ids to a tape.selection"
            )
        return x.tape

    def visit(self) -> Iterator[tuple[str, Symbol]]:
        """Every symbol with its path (`layers.0.weight`), in definition order; a tied one at each of its places.

        Raises `KinshipError` for a module or container that holds itself, and for a value that was put into a list or
        dict after it was assigned.
        """
        for path, part, _ in _walk(self):
            yield _dotted(path), part

    def refusal(self, fact: str) -> ShapeError:
        """The error of a module that is given what does not fit, which names it: `h0.qkv: Linear wants ...`."""
        return ShapeError(f"{self.called} {fact}")

    @property
    def called(self) -> str:
        """What messages call it: `h0.qkv: Linear`, its path and its kind."""
        kind = type(self).__name__
        return f"{self.path}: {kind}" if self.path else kind

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{path}: {symbol}' for path, symbol in self.visit())})"


def _whole_or_nothing(construct: Callable[..., None]) -> Callable[..., None]:
    """A constructor that leaves the tape as it was where it fails, so that no name stays taken."""

    @wraps(construct)
    def call(self: Module, *arguments: Any, **options: Any) -> None:
        tape = next((given for given in (*arguments, *options.values()) if isinstance(given, Tape)), None)
        with nullcontext() if tape is None else tape.transaction():
            construct(self, *arguments, **options)

    return call


def parameters(module: Any) -> list[Symbol]:
    """The parameters of a module, or of a list or dict of modules, each once, in definition order."""
    return list(_first(module))


def named_parameters(module: Any) -> dict[str, Symbol]:
    """The parameters by path; a tied one stands under its first path. Raises `KinshipError` where two have one path."""
    found: dict[str, Symbol] = {}
    for symbol, steps in _first(module).items():
        path = _dotted(steps)
        if path in found:
            raise KinshipError(f"module: two parameters have the path {path}, {found[path]} and {symbol}")
        found[path] = symbol
    return found


def _first(module: Any) -> dict[Symbol, _Path]:
    """Where each parameter is found first: whatever no module knows as an input, a constant or a result."""
    found: dict[Symbol, _Path] = {}
    known: set[Symbol] = set()
    for path, symbol, data in _walk(module):
        known |= data
        found.setdefault(symbol, path)
    return {symbol: path for symbol, path in found.items() if symbol not in known}


def _stored(part: Any, data: set[Symbol]) -> Any:
    """A nesting with a symbol for each value, the same object where there is none; notes which are no parameters."""
    leaves = [leaf for _, leaf, _ in _leaves(part, into_modules=False)]
    for leaf in leaves:
        if isinstance(leaf, set | frozenset | deque) and any(isinstance(one, Value | Symbol | Module) for one in leaf):
            raise KinshipError(f"module: a {type(leaf).__name__} is not walked, put its parts into a list")
    values = [leaf for leaf in leaves if isinstance(leaf, Value)]
    for value in values:
        symbol = value.symbol()
        if value.tape.nodes()[symbol.index].opcode.name != "Parameter":
            data.add(symbol)
    return detach(part) if values else part


def _walk(root: Any) -> Iterator[tuple[_Path, Symbol, set[Symbol]]]:
    """Every symbol below `root` with its path, and what its module knows as no parameters."""
    for path, part, data in _leaves(root, into_modules=True):
        if isinstance(part, Symbol):
            yield path, part, data
        elif isinstance(part, Value):
            raise KinshipError(
                f"module: {_dotted(path)} is a live value, put there after the assignment; assign the whole list "
                "or dict"
            )


def _leaves(root: Any, into_modules: bool) -> Iterator[tuple[_Path, Any, set[Symbol]]]:
    """What lies in the containers below `root`, with its path and what its module knows; models nest deeply."""
    opened: list[Iterator[tuple[_Path, Any, set[Symbol]]]] = [iter([(None, root, set())])]
    inside: dict[int, None] = {}  # containers on the way, the innermost last
    while opened:
        for path, part, data in opened[-1]:
            if not (into_modules if isinstance(part, Module) else _is_container(part)):
                yield path, part, data
                continue
            if id(part) in inside:
                raise KinshipError(f"module: {_dotted(path)} holds itself")
            inside[id(part)] = None
            opened.append(_children(path, part, data))
            break
        else:
            opened.pop()
            if inside:
                inside.popitem()


def _children(path: _Path, part: Any, data: set[Symbol]) -> Iterator[tuple[_Path, Any, set[Symbol]]]:
    if isinstance(part, Module):
        data = vars(part).get(_DATA, set())
    return (((path, name), child, data) for name, child in _named(part))


def _named(part: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(part, Module):
        return vars(part).items()
    if isinstance(part, list | tuple):
        return enumerate(part)
    if isinstance(part, dict):
        return part.items()
    return [(field.name, getattr(part, field.name, None)) for field in dataclasses.fields(part)]


def _is_container(part: Any) -> bool:
    """Whether it is one of those that are walked; a class itself holds nothing."""
    return isinstance(part, dict | list | tuple) or (dataclasses.is_dataclass(part) and not isinstance(part, type))


def _dotted(path: _Path) -> str:
    """A path in one text: only where somebody reads it, a deep one is long."""
    names: list[str] = []
    while path is not None:
        path, name = path
        names.append(str(name))
    return ".".join(reversed(names))
