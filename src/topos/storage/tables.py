"""The tables beside a network: parameters, moments, states, as a file has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topos.engine import State
from topos.errors import CheckpointError, KinshipError
from topos.graph import Network, Parameters, Table
from topos.graph.spec import Spec
from topos.op import Input, Parameter
from topos.storage.nodes import label
from topos.storage.payloads import Found, Stored
from topos.storage.text import Facts

Tables = Parameters | State | Mapping[str, Parameters | State]
"""One table of a network, or several by label (weights and moments)."""


def tables_document(tables: Any, network: Network, stored: Stored) -> Any:
    """One table, or several by label, as JSON. Raises `CheckpointError` for what is no table of the network."""
    if tables is None or isinstance(tables, Table):
        return None if tables is None else _table(tables, network, stored, "")
    if not isinstance(tables, Mapping) or not all(isinstance(name, str) for name in tables):
        raise CheckpointError(f"parameters: wants a table, or tables by label, got {type(tables).__name__}")
    return {"tables": {name: _table(table, network, stored, name) for name, table in tables.items()}}


def tables_of(document: Any, network: Network, found: Found) -> Any:
    """What `tables_document` was given; the initials where that was nothing."""
    if document is None:
        return network.parameters()
    facts = Facts("parameters", document)
    if not facts.has("tables"):
        return _read_table("parameters", document, network, found)
    labelled = facts.take("tables", dict)
    facts.end()
    return {name: _read_table(f"table {name!r}", table, network, found) for name, table in labelled.items()}


def _table(table: Any, network: Network, stored: Stored, name: str) -> dict[str, Any]:
    if not isinstance(table, Parameters | State):
        raise CheckpointError(f"parameters: wants Parameters or a State, got {type(table).__name__}")
    spec = network.spec
    if table.family is not spec.family:
        raise KinshipError("save: the table of parameters belongs to another spec")
    kind = "State" if isinstance(table, State) else "Parameters"
    entries: list[list[Any]] = []
    for index, tensor in table.entries.items():
        row = spec.rows[index] if index < len(network) else None
        if row is None or type(row.opcode) not in (Parameter, Input):
            raise CheckpointError(f"{kind.lower()}: %{index} is neither a parameter nor an input of the network")
        if tensor is not None and (tensor.element is not row.element or tensor.shape != row.shape):
            facts = f"wants {row.shape} {row.element}, the table holds {tensor.shape} {tensor.element}"
            raise CheckpointError(f"{kind.lower()}: {spec.label(index)} {facts}")
        role = name or kind.lower()
        entries.append([index, None if tensor is None else stored.document(tensor, role, label(spec, index))])
    slots = [symbol.index for symbol in table.parameters().symbols()] if isinstance(table, State) else None
    return {"kind": kind, "entries": entries} | ({} if slots is None else {"slots": slots})


def _read_table(what: str, document: Any, network: Network, found: Found) -> Parameters | State:
    facts = Facts(what, document)
    kind, listed = facts.take("kind", str), facts.take("entries", list)
    if kind not in ("Parameters", "State"):
        raise CheckpointError(f"{what}: no table is called {kind!r}")
    spec, entries = network.spec, {}
    for entry in listed:
        index, payload = _slot(what, entry, spec)
        row = spec.rows[index]
        slot = Facts(f"{what}: {spec.label(index)}", payload) if payload is not None else None
        entries[index] = None if slot is None else found.payload(slot, row.shape, row.element, spec.element)
    slots = facts.integers("slots") if kind == "State" else []
    facts.end()
    return State(spec.family, entries, frozenset(slots)) if kind == "State" else Parameters(spec.family, entries)


def _slot(what: str, entry: Any, spec: Spec) -> tuple[int, Any]:
    """A row that a table covers, and what the file says of its payload."""
    index = entry[0] if isinstance(entry, list) and len(entry) == 2 else None
    if type(index) is int and 0 <= index < len(spec.rows) and index not in spec.ids:
        kind = type(spec.rows[index].opcode)
        if kind is Parameter or kind is Input:
            return index, entry[1]
    raise CheckpointError(f"{what}: wants a parameter or a dense input and its payload, got {entry!r:.60}")
