"""The nodes of a spec, as a file has them: written down row by row, and recorded again through the rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topos.element import Element
from topos.errors import CheckpointError, ToposError
from topos.graph import Network, Tape
from topos.graph.append import append_row
from topos.graph.place import Place
from topos.graph.spec import Ids, Spec
from topos.op import Input, Leaf, Opcode, Parameter, Source
from topos.shape import Shape
from topos.storage.elements import NamedElements
from topos.storage.opcodes import attributes_of, named_element, opcode_of
from topos.storage.payloads import Found, Stored
from topos.storage.places import Lines
from topos.storage.text import Facts

ROLES: dict[type[Opcode], str] = {Leaf: "leaf", Parameter: "initial", Input: "default"}
"""What the payloads of a spec are called in a file, before the names of their nodes."""


def label(spec: Spec, index: int) -> str:
    """What a tensor of a node is called in a file: the node's name, or its number."""
    name = spec.names.get(index, "")
    return name if name and not name.startswith("%") else f"%{index}"


def node_document(
    spec: Spec, index: int, stored: Stored, elements: NamedElements, lines: Lines | None
) -> dict[str, Any]:
    """One row as JSON; what is as most rows have it is left out."""
    row = spec.rows[index]
    document: dict[str, Any] = {"op": row.opcode.name, "operands": list(row.operands), "shape": list(row.shape)}
    if not row.operands:
        del document["operands"]
    attributes = attributes_of(row.opcode, elements)
    ids, payload = spec.ids.get(index), spec.payloads.get(index)
    facts = {
        "attributes": attributes or None,
        "element": elements.name(row.element) if row.element not in (None, spec.element) else None,
        "name": spec.names.get(index),
        "origin": row.origin,
        "place": lines.index(row.place) if lines is not None and row.place is not None else None,
        "ids": None if ids is None else {"shape": list(ids.shape), "vocab": ids.vocab, "absent": ids.absent},
        "payload": None if payload is None else stored.document(payload, ROLES[type(row.opcode)], label(spec, index)),
    }
    return document | {name: fact for name, fact in facts.items() if fact is not None}


class Reader:
    """Records the nodes of a file on a tape: each is checked by the rules, and against what the file says of it."""

    def __init__(self, element: Element, elements: Mapping[str, Element], found: Found, places: list[Place]) -> None:
        self.tape = Tape(element)
        self._spec = self.tape.spec
        self._elements = elements
        self._found = found
        self._places = places

    def network(self) -> Network:
        """The sealed spec."""
        return self.tape.into_network()

    def record(self, document: Any) -> None:
        """Appends one node. Raises `CheckpointError` that names it for whatever this version does not know."""
        index = len(self._spec.rows)
        name = document.get("op") if isinstance(document, dict) else None
        facts = Facts(f"node %{index} {name}" if isinstance(name, str) else f"node %{index}", document)
        try:
            self._record(facts, index)
        except ToposError as error:
            raise CheckpointError(_naming(facts.what, error)) from None

    def _record(self, facts: Facts, index: int) -> None:
        spec = self._spec
        opcode = opcode_of(facts, facts.take("op", str), self._elements)
        shape, element = Shape(facts.integers("shape")), facts.take("element", str, spec.element.name)
        origin, place = facts.take("origin", int, None), facts.take("place", int, None)
        called = facts.take("name", str, None)
        if isinstance(opcode, Source):
            self._source(facts, opcode, shape, named_element(facts, element, self._elements))
        else:
            append_row(spec, opcode, self._operands(facts, opcode), None)
        facts.end()
        if called is not None:
            spec.name(index, called)
        row = spec.rows[index]
        if row.shape != shape or spec.element_of(index).name != element:
            answered = f"the rule answers {row.shape} {spec.element_of(index)}"
            raise CheckpointError(f"{answered}, the file says {shape} {element}")
        where = None if place is None else self._at(self._places, place, "place")
        rule = None if origin is None else self._at(range(index), origin, "origin")
        spec.rows[index] = row._replace(place=where, origin=rule)

    def _source(self, facts: Facts, opcode: Source, shape: Shape, element: Element) -> None:
        ids = facts.take("ids", dict, None)
        if ids is not None and type(opcode) is Input:
            self.tape.place(opcode, _ids(Facts(f"{facts.what}: ids", ids)))
            return
        payload = Facts(facts.what, facts.take("payload", dict))
        common = self._spec.element
        selects = payload.has("ids") and type(opcode) is Leaf
        self.tape.place(opcode, self._found.payload(payload, shape, None if selects else element, common))

    def _operands(self, facts: Facts, opcode: Opcode) -> list[int]:
        operands = facts.integers("operands")
        if len(operands) != opcode.arity:
            raise CheckpointError(f"wants {opcode.arity} operands, got {operands}")
        return [self._at(range(len(self._spec.rows)), operand, "operand") for operand in operands]

    @staticmethod
    def _at(things: Any, index: int, what: str) -> Any:
        if not 0 <= index < len(things):
            raise CheckpointError(f"{what} {index} is not one of the {len(things)} before it")
        return things[index]


def _naming(what: str, error: ToposError) -> str:
    text = str(error)
    return text if text.startswith((what, "tensor ")) else f"{what}: {text}"


def _ids(facts: Facts) -> Ids:
    """What the ids of a fed selection must look like."""
    ids = Ids(Shape(facts.integers("shape")), facts.take("vocab", int), facts.take("absent", (int, type(None))))
    facts.end()
    if ids.vocab < 0:
        raise CheckpointError(f"{facts.what}: a vocab cannot be {ids.vocab}")
    return ids
