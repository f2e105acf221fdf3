"""Any nesting of tuples, lists, dicts and dataclasses, with its leaves replaced."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

Leaf = Callable[[Any], Any]


class _Open(NamedTuple):
    """A container on the way: its parts that are left, what the others became, and how it is built of them."""

    left: Iterator[Any]
    done: list[Any]
    build: Callable[[list[Any]], Any]


def mapped(part: Any, leaf: Leaf) -> Any:
    """The same nesting, however deep, with `leaf(part)` for everything that is no container."""
    opened = [_Open(iter((part,)), [], lambda done: done[0])]
    while True:
        left, done, build = opened[-1]
        for item in left:
            container = _opened(item, leaf)
            if container is not None:
                opened.append(container)
                break
            done.append(leaf(item))
        else:
            opened.pop()
            built = build(done)
            if not opened:
                return built
            opened[-1].done.append(built)


def visit(part: Any, see: Callable[[Any], None]) -> None:
    """Shows every leaf of a nesting, in order; of a dict, its values."""
    waiting = [part]
    while waiting:
        part = waiting.pop()
        container = _opened(part, lambda key: key)
        if container is None:
            see(part)
        else:
            waiting += reversed(list(container.left))


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
