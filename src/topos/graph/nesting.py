"""Any nesting of tuples, lists, dicts and dataclasses, with its leaves replaced."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from topos.errors import KinshipError
from topos.records import NamedTuple

Leaf = Callable[[Any], Any]


class _Open(NamedTuple):
    """A container on the way: its parts that are left, what the others became, and how it is built of them."""

    left: Iterator[Any]
    done: list[Any]
    build: Callable[[list[Any]], Any]


def mapped(part: Any, leaf: Leaf) -> Any:
    """The same nesting, however deep, with `leaf(part)` for everything that is no container."""
    opened = [_Open(iter((part,)), [], lambda done: done[0])]
    inside: dict[int, None] = {}  # containers on the way, the innermost last
    while True:
        left, done, build = opened[-1]
        for item in left:
            container = _opened(item, leaf)
            if container is not None:
                _enter(item, inside)
                opened.append(container)
                break
            done.append(leaf(item))
        else:
            opened.pop()
            built = build(done)
            if not opened:
                return built
            inside.popitem()
            opened[-1].done.append(built)


def visit(part: Any, see: Callable[[Any], None]) -> None:
    """Shows every leaf of a nesting, in order; of a dict, its values."""
    opened: list[Iterator[Any]] = [iter((part,))]
    inside: dict[int, None] = {}  # containers on the way, the innermost last
    while opened:
        for item in opened[-1]:
            container = _opened(item, lambda key: key)
            if container is not None:
                _enter(item, inside)
                opened.append(container.left)
                break
            see(item)
        else:
            opened.pop()
            if inside:
                inside.popitem()


def _enter(container: Any, inside: dict[int, None]) -> None:
    """Notes a container on the way down. Raises `KinshipError` for one that holds itself, which has no end."""
    if id(container) in inside:
        raise KinshipError(f"nesting: a {type(container).__name__} holds itself")
    inside[id(container)] = None


def _opened(part: Any, leaf: Leaf) -> _Open | None:
    """A container with all its parts left; `None` for anything else."""
    if isinstance(part, tuple):
        return _open(part, lambda done: type(part)(*done) if hasattr(part, "_fields") else type(part)(done))
    if isinstance(part, list):
        return _open(part, lambda done: done)
    if isinstance(part, dict):
        return _open(part.values(), lambda done: dict(zip(map(leaf, part), done, strict=True)))
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        names = [field.name for field in dataclasses.fields(part) if field.init]
        parts = [getattr(part, name) for name in names]
        return _open(parts, lambda done: dataclasses.replace(part, **dict(zip(names, done, strict=True))))
    return None


def _open(parts: Iterable[Any], build: Callable[[list[Any]], Any]) -> _Open:
    return _Open(iter(parts), [], build)
