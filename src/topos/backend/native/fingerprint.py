"""What a program is made from, as one name: equal names, equal programs.

It covers all that lowering reads of a spec. What has no name of its own, such as an element or an instruction that a
user defines, has no fingerprint either.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cache as once
from itertools import chain
from pathlib import Path
from typing import Any

from topos.backend.native import cache
from topos.backend.native.objects import circumstances
from topos.backend.native.target import Target
from topos.element import Element
from topos.element.built_in import BUILT_IN
from topos.graph.spec import Spec
from topos.op import Leaf, Opcode
from topos.shape import Shape
from topos.tensor import Tensor


class _Nameless(Exception):
    """Something that is told from others by what it is, and not by a name."""


def fingerprint(
    spec: Spec, scheduled: Sequence[int], results: Iterable[int], carried: Mapping[int, int], target: Target
) -> str | None:
    """The name of a schedule's program on a target; `None` where it has none."""
    rows = dict.fromkeys(chain(scheduled, carried))
    telling = _Telling(spec, rows)
    try:
        facts = [telling.row(row) for row in rows]
    except _Nameless:
        return None
    ends = repr((len(scheduled), sorted(results), list(carried.items()), spec.element.name, target))
    return cache.key_of("program", *facts, ends, *circumstances(target), _sources())


class _Telling:
    """What lowering may know of each of some rows, as texts; those of equal facts are made once."""

    def __init__(self, spec: Spec, covered: Mapping[int, None]) -> None:
        self._spec, self._covered = spec, covered
        self._opcodes: dict[int, str] = {}
        self._shapes: dict[Shape, str] = {}
        self._numbers: dict[int, str] = {}

    def row(self, row: int) -> str:
        """The facts of a row."""
        spec, covered = self._spec, self._covered
        opcode, operands, shape, element, _, _ = spec.rows[row]
        if element is not None and element not in BUILT_IN:
            raise _Nameless
        for operand in operands:
            if operand not in covered:
                raise _Nameless
        name = self._opcodes.get(id(opcode))  # the spec keeps it
        if name is None:
            name = self._opcodes[id(opcode)] = _opcode(opcode)
        extents = self._shapes.get(shape)
        if extents is None:
            extents = self._shapes[shape] = str(tuple(shape))
        told = f"{row} {name} {operands} {extents} {element and element.name}"
        payload = spec.payloads.get(row)
        if payload is not None:
            if payload.ids is not None:
                told += " selection"
            elif isinstance(opcode, Leaf):
                told += self._number(payload)
        ids = spec.ids.get(row)
        return told if ids is None else f"{told} {tuple(ids.shape)} {ids.vocab} {ids.absent}"

    def _number(self, payload: Tensor) -> str:
        """The number at every place of a leaf, where it is one."""
        told = self._numbers.get(id(payload))
        if told is None:
            constant = payload.as_constant()
            told = "" if constant is None else f" {float(constant.scalar())!r} {constant.element}"
            self._numbers[id(payload)] = told
        return told


def _opcode(opcode: Opcode) -> str:
    kind = type(opcode)
    if not kind.__module__.startswith("topos.op."):
        raise _Nameless
    return f"{kind.__module__}.{kind.__qualname__}{[_fact(getattr(opcode, name)) for name in kind.attributes]}"


def _fact(fact: Any) -> str:
    if isinstance(fact, tuple):
        return f"({', '.join(map(_fact, fact))})"
    if isinstance(fact, Enum):
        return f"{type(fact).__qualname__}.{fact.name}"
    if isinstance(fact, Element):
        if fact in BUILT_IN:
            return fact.name
    elif fact is None or type(fact) in (bool, int, float, str):
        return repr(fact)
    raise _Nameless


@once
def _sources() -> str:
    """The state of the code that makes programs: the facts of its files that Python goes by for its bytecode."""
    folder = Path(__file__).parents[2]
    return repr(sorted(_files(str(folder)))) if folder.is_dir() else ""


def _files(folder: str) -> list[tuple[str, int, int]]:
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if name.endswith(".py"):
                facts = entry.stat()
                found.append((entry.path, facts.st_mtime_ns, facts.st_size))
            elif "." not in name and name != "__pycache__" and entry.is_dir():
                found += _files(entry.path)
    return found
