"""Instructions as a file has them: a name, and attributes by name."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from topos import op
from topos._version import __version__
from topos.element import Element
from topos.errors import CheckpointError
from topos.op import Opcode
from topos.shape import Shape
from topos.storage.elements import NamedElements
from topos.storage.text import Facts

_PLAIN = (
    *(op.LEAF, op.PARAMETER, op.INPUT),
    *(op.ADD, op.SUB, op.MUL, op.DIV, op.NEG, op.POWF, op.MAXIMUM, op.STEP, op.SELECT, op.STOP),
    *op.MAPS.values(),
    *(op.MATMUL, op.SUM, op.GATHER, op.SCATTER),
)
_WITH_ATTRIBUTES: tuple[type[Opcode], ...] = (
    *(op.Broadcast, op.BroadcastAlong, op.Reshape, op.Permute, op.Narrow, op.Pad, op.Unfold, op.Fold),
    *(op.SumAlong, op.MaxAlong, op.LogSoftmax, op.LogSumExp),
    op.Cast,
)
PLAIN: Mapping[str, Opcode] = {opcode.name: opcode for opcode in _PLAIN}
KINDS: Mapping[str, type[Opcode]] = {kind.name: kind for kind in _WITH_ATTRIBUTES}
"""Every instruction by its name, those without attributes and those with some."""


def attributes_of(opcode: Opcode, elements: NamedElements) -> dict[str, Any]:
    """What an instruction says beside its name, as JSON. Raises `CheckpointError` for one that is not of the set."""
    known = PLAIN.get(opcode.name, None)
    if type(opcode) is not (type(known) if known is not None else KINDS.get(opcode.name)):
        raise CheckpointError(f"no file has the instruction {opcode.name} of {type(opcode).__module__}")
    return {name: _spelled(fact, elements) for name, fact in opcode.facts()}


def opcode_of(facts: Facts, name: str, elements: Mapping[str, Element]) -> Opcode:
    """The instruction of a name and attributes.

    Raises `CheckpointError` for a name or an attribute that is not known, `ShapeError` for one that cannot be.
    """
    given = Facts(facts.what, facts.take("attributes", dict, {}))
    opcode = PLAIN.get(name)
    if opcode is None:
        kind = KINDS.get(name)
        if kind is None:
            raise CheckpointError(f"{facts.what}: no instruction is called {name!r} in topos {__version__}")
        opcode = kind(*[_read(given, attribute, elements) for attribute in kind.attributes])
    given.end()
    return opcode


def _spelled(fact: Any, elements: NamedElements) -> Any:
    if isinstance(fact, Element):
        return elements.name(fact)
    if isinstance(fact, float):
        return struct.pack("<d", fact).hex()
    return list(fact) if isinstance(fact, Shape) else fact


def _read(given: Facts, attribute: str, elements: Mapping[str, Element]) -> Any:
    if attribute in ("shape", "order"):
        return given.integers(attribute)
    if attribute == "element":
        return named_element(given, given.take("element", str), elements)
    if attribute == "fill":
        return struct.unpack("<d", bits(given, given.take("fill", str, bytes(8).hex()), 8))[0]
    return given.take(attribute, int)


def named_element(facts: Facts, name: str, elements: Mapping[str, Element]) -> Element:
    """An element by its name. Raises `CheckpointError` for one that the file does not say to have."""
    if name not in elements:
        raise CheckpointError(f"{facts.what}: no element is called {name!r}")
    return elements[name]


def bits(facts: Facts, digits: str, size: int) -> bytes:
    """So many bytes from their hexadecimal digits. Raises `CheckpointError` for anything else."""
    try:
        found = bytes.fromhex(digits)
    except ValueError:
        found = b""
    if len(found) != size or len(digits) != 2 * size:
        raise CheckpointError(f"{facts.what}: wants the {size} bytes of a number in hexadecimal, got {digits!r:.40}")
    return found
